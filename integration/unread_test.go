// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// h2cClient speaks HTTP/2 without TLS.
func h2cClient(t testing.TB) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// echo answers at once and sends back what it receives as it comes.
func echo(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	flush(w)
	buf := make([]byte, 1024)
	for {
		n, err := r.Body.Read(buf)
		_, _ = w.Write(buf[:n])
		flush(w)
		if err != nil {
			return
		}
	}
}

// unreadRequests are POSTs whose body is not read before they are placed, and
// whether they count as placements.
var unreadRequests = []struct {
	name, path string
	header     []string
	placed     int
}{
	{"unknown path", "/some/api", nil, 1},
	{"prompt, incremental", chatPath, []string{"Incremental", "?1"}, 1},
	{"files", "/v1/files", nil, 1},
	{"count tokens", "/v1/messages/count_tokens", nil, 0},
	{"tokenize", "/tokenize", nil, 0},
	{"response by id", "/v1/responses/resp_1/cancel", nil, 0},
}

// Both sides talk at the same time: each part is sent after the one before has
// come back, so a body that is read first ends in a standstill.
func TestFullDuplex(t *testing.T) {
	for _, test := range unreadRequests {
		t.Run(test.name, func(t *testing.T) {
			u := newRawUpstream(t, echo)
			s := start(t, fmt.Sprintf(siteConfig, u.address(), "", ""))
			body, sending := io.Pipe()
			r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost, "http://"+s.sites[0]+test.path, body)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i+1 < len(test.header); i += 2 {
				r.Header.Set(test.header[i], test.header[i+1])
			}
			res, err := h2cClient(t).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.ProtoMajor != 2 || res.StatusCode != http.StatusOK {
				t.Fatalf("%s %s, want HTTP/2.0 200 OK", res.Proto, res.Status)
			}
			for i := range 20 {
				part := fmt.Sprintf("part %02d", i)
				if _, err := io.WriteString(sending, part); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(part))
				if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != part {
					t.Fatalf("came back: %q, %v, want %q", got, err, part)
				}
				if i > 0 {
					continue
				}
				if got := s.fleet().of(u); got.RequestsInFlight != 1 || got.PrefillTokens != 0 || sum(got.Placements) != test.placed {
					t.Errorf("in the middle: %+v, want 1 in flight and %d placements", got, test.placed)
				}
			}
			sending.Close()
			if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
				t.Errorf("at the end: %q, %v", rest, err)
			}
			s.settled()
		})
	}
}

// Over HTTP/1.1 the upstream has the first bytes before the client sends the
// others.
func TestUploadPassesUnread(t *testing.T) {
	for _, test := range unreadRequests {
		t.Run(test.name, func(t *testing.T) {
			first := make(chan string, 1)
			rest := make(chan string, 1)
			u := newRawUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
				buf := make([]byte, len("first"))
				_, _ = io.ReadFull(r.Body, buf)
				first <- string(buf)
				more, _ := io.ReadAll(r.Body)
				rest <- string(more)
			})
			s := start(t, fmt.Sprintf(siteConfig, u.address(), "", ""))
			body, sending := io.Pipe()
			r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost, "http://"+s.sites[0]+test.path, body)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i+1 < len(test.header); i += 2 {
				r.Header.Set(test.header[i], test.header[i+1])
			}
			done := make(chan error, 1)
			go func() {
				res, err := client.Do(r)
				if err == nil {
					res.Body.Close()
				}
				done <- err
			}()
			if _, err := io.WriteString(sending, "first"); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-first:
				if got != "first" {
					t.Errorf("received %q, want the first part", got)
				}
			case <-r.Context().Done():
				t.Fatal("the upstream has not received the first part")
			}
			if got := s.fleet().of(u).RequestsInFlight; got != 1 {
				t.Errorf("requests in flight = %d, want 1", got)
			}
			if _, err := io.WriteString(sending, " and the others"); err != nil {
				t.Fatal(err)
			}
			sending.Close()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-rest:
				if got != " and the others" {
					t.Errorf("received %q, want the others", got)
				}
			case <-r.Context().Done():
				t.Error("the upstream has not received the others")
			}
			s.settled()
		})
	}
}

// switchProtocols answers an upgrade and echoes lines.
func switchProtocols(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n")
	_ = rw.Flush()
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = rw.WriteString("echo " + line)
		_ = rw.Flush()
	}
}

func TestUpgrade(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		t.Run(method, func(t *testing.T) {
			u := newRawUpstream(t, switchProtocols)
			s := start(t, fmt.Sprintf(siteConfig, u.address(), "", ""))
			conn, err := net.Dial("tcp", s.sites[0])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			defer context.AfterFunc(withPatience(t), func() { conn.Close() })()
			fmt.Fprintf(conn, "%s /v1/realtime?model=m HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", method, s.sites[0])
			br := bufio.NewReader(conn)
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "websocket" {
				t.Fatalf("status %d, Upgrade %q, want 101 and websocket", res.StatusCode, res.Header.Get("Upgrade"))
			}
			if line, err := br.ReadString('\n'); line != "hello\n" {
				t.Fatalf("received %q, %v, want hello", line, err)
			}
			for i := range 3 {
				fmt.Fprintf(conn, "line %d\n", i)
				want := fmt.Sprintf("echo line %d\n", i)
				if line, err := br.ReadString('\n'); line != want {
					t.Fatalf("received %q, %v, want %q", line, err, want)
				}
			}
			if got := s.fleet().of(u); got.RequestsInFlight != 1 || got.RequestsWaiting != 0 || sum(got.Placements) != 0 {
				t.Errorf("while it runs: %+v, want 1 in flight and no placement", got)
			}
			conn.Close()
			s.settled()
		})
	}
}
