// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// digest is a short name for a body.
func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// hashing answers with the digest and the length of what it receives.
func hashing(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	n, err := io.Copy(h, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s %d %d\n\n", hex.EncodeToString(h.Sum(nil)), n, r.ContentLength)
}

func gzipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.Bytes()
}

// nested is JSON of a depth that a recursive parser pays for.
func nested(depth int) string {
	return `{"model":"m","messages":` + strings.Repeat(`[{"content":`, depth/2) + `"x"` + strings.Repeat(`}]`, depth/2) + "}"
}

// A body that is no proper request made a router fail.
//
// The engine answers for a body that makes no sense. It gets what was sent, and
// the client gets its answer.
func TestCaseC67BadBodiesPass(t *testing.T) {
	upstreams := []*upstream{newRawUpstream(t, hashing), newRawUpstream(t, hashing)}
	s := start(t, fmt.Sprintf(siteConfig, addresses(upstreams), "", retry503))
	whole := chat(words("whole", 5000))
	for _, test := range []struct {
		name   string
		body   []byte
		header []string
	}{
		{"empty", nil, nil},
		{"space", []byte(" \r\n"), nil},
		{"not JSON", []byte("Say hello."), nil},
		{"array", []byte(`["a","b"]`), nil},
		{"null", []byte("null"), nil},
		{"string", []byte(`"messages"`), nil},
		{"other types", []byte(`{"model":{},"stream":"yes","messages":7,"metadata":[],"tools":null,"prompt_cache_key":[1]}`), nil},
		{"null members", []byte(`{"model":null,"messages":[null,{"content":null},{"content":[null,{"type":null}]}]}`), nil},
		{"10,000 levels", []byte(nested(10_000)), nil},
		{"10,000 arrays", []byte(strings.Repeat("[", 10_000)), nil},
		{"1,000,000 objects", []byte(strings.Repeat(`{"messages":`, 1_000_000)), nil},
		{"truncated", []byte(whole[:len(whole)/2]), nil},
		{"truncated in an escape", []byte(`{"model":"m","messages":[{"role":"user","content":"\ud83d\u`), nil},
		{"two values", []byte(whole + whole), nil},
		{"gzip", gzipped(whole), []string{"Content-Encoding", "gzip"}},
		{"no JSON by its type", []byte(whole), []string{"Content-Type", "text/plain"}},
		{"form by its type", []byte(whole), []string{"Content-Type", "multipart/form-data"}},
		{"odd type", []byte(whole), []string{"Content-Type", ";;=/\"\\"}},
		{"invalid UTF-8", []byte("{\"model\":\"\xff\xfe\",\"messages\":[{\"content\":\"\xc3\x28\xed\xa0\x80\"}]}"), nil},
		{"zero bytes", make([]byte, 100_000), nil},
		{"byte order mark", []byte("\ufeff" + whole), nil},
		{"bad session", []byte(whole), []string{"X-Session-ID", strings.Repeat("s", 10_000)}},
		{"45 MB", []byte(chat(strings.Repeat("forty five million", 2_500_000))), nil},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", test.name, chunked), func(t *testing.T) {
				for _, path := range []string{chatPath, "/v1/completions", "/v1/audio/transcriptions", "/invocations"} {
					if len(test.body) > 1<<24 && path != chatPath {
						continue
					}
					var body io.Reader = bytes.NewReader(test.body)
					length := len(test.body)
					if chunked {
						body, length = unsized{body}, -1
					}
					r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost, "http://"+s.sites[0]+path, body)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", "application/json")
					for i := 0; i+1 < len(test.header); i += 2 {
						r.Header.Set(test.header[i], test.header[i+1])
					}
					res, err := client.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					text, err := io.ReadAll(res.Body)
					res.Body.Close()
					if err != nil {
						t.Fatal(err)
					}
					want := fmt.Sprintf("data: %s %d %d\n\n", digest(test.body), len(test.body), length)
					if res.StatusCode != http.StatusOK || string(text) != want {
						t.Errorf("%s: status %d: %q, want %q", path, res.StatusCode, text, want)
					}
				}
				s.settled()
				for _, u := range upstreams {
					if got := s.failedLoad(u); got != 0 {
						t.Errorf("failed load = %v, want 0", got)
					}
				}
			})
		}
	}
}

// A client that breaks off in the middle of its body gives what it holds back.
// No upstream has failed, so none is charged for it.
func TestClientBreaksOffInBody(t *testing.T) {
	body := chat(words("broken off", 200_000))
	for _, test := range []struct{ name, handler, head string }{
		{"read", "", "Content-Length: %d\r\n\r\n"},
		{"over max_body", "{\n\tmax_body 64KiB\n}", "Content-Length: %d\r\n\r\n"},
		{"unread", "", "Incremental: ?1\r\nContent-Length: %d\r\n\r\n"},
		{"chunked", "", "Transfer-Encoding: chunked\r\n\r\n%x\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			begun := make(chan struct{}, 10)
			broken := make(chan error, 10)
			u := newRawUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				begun <- struct{}{}
				_, err := io.Copy(io.Discard, r.Body)
				broken <- err
				if err != nil {
					panic(http.ErrAbortHandler)
				}
			})
			s := start(t, fmt.Sprintf(siteConfig, u.address(), test.handler, ""))
			conn, err := net.Dial("tcp", s.sites[0])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nX-Session-ID: s\r\n"+test.head, chatPath, s.sites[0], len(body))
			if _, err := io.WriteString(conn, body[:len(body)/2]); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(test.head, "chunked") && (test.handler != "" || strings.Contains(test.head, "Incremental")) {
				// what streams through has begun to arrive
				select {
				case <-begun:
				case <-withPatience(t).Done():
					t.Fatal("the upstream has not received the first part")
				}
			}
			conn.Close()
			eventually(t, func() bool { return sum(s.fleet().total().Releases) == 1 },
				func() string { return fmt.Sprintf("fleet: %+v, want a release", s.fleet()) })
			s.settled()
			if got := s.fleet().total(); got.Releases["canceled"] != 1 {
				t.Errorf("releases = %v, want 1 by a client that left", got.Releases)
			}
			if got := s.failedLoad(u); got != 0 {
				t.Errorf("failed load = %v, want 0", got)
			}
			select {
			case err := <-broken:
				if err == nil {
					t.Error("the upstream has a whole body, want one that is broken off")
				}
			default:
			}
		})
	}
}

// A body over Caddy's own limit is the client's mistake. It costs no upstream
// anything, and the client is told as it is without the modules.
func TestBodyOverRequestBodyLimit(t *testing.T) {
	u := newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf(`
{site0} {
	request_body {
		max_size 10KB
	}
	llm_loadaware
	reverse_proxy %[1]s {
		lb_policy llm_loadaware
	}
}
{site1} {
	request_body {
		max_size 10KB
	}
	reverse_proxy %[1]s
}
`, u.address()))
	body := chat(words("too long", 10_000))
	for _, site := range s.sites[:2] {
		r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost, "http://"+site+chatPath, unsized{strings.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d, want 413", res.StatusCode)
		}
	}
	s.settled()
	if got := s.failedLoad(u); got != 0 {
		t.Errorf("failed load = %v, want 0", got)
	}
}

// Bodies that find no room stream through, and those that do are whole.
func TestMaxBuffered(t *testing.T) {
	for _, test := range []struct{ name, handler string }{
		{"both limits", "{\n\tmax_body 64KiB\n\tmax_buffered 128KiB\n}"},
		{"room for some", "{\n\tmax_buffered 300KiB\n}"},
		{"no room", "{\n\tmax_buffered 1B\n}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			// every upstream waits until all requests have arrived
			const requests = 50
			var all sync.WaitGroup
			all.Add(requests)
			arrived := make(chan struct{})
			go func() {
				all.Wait()
				close(arrived)
			}()
			answer := func(w http.ResponseWriter, r *http.Request) {
				var got bytes.Buffer
				_, _ = io.Copy(&got, r.Body)
				all.Done()
				if reached(r, arrived) {
					r.Body = io.NopCloser(&got)
					hashing(w, r)
				}
			}
			upstreams := []*upstream{newRawUpstream(t, answer), newRawUpstream(t, answer)}
			s := start(t, fmt.Sprintf(siteConfig, addresses(upstreams), test.handler, ""))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var wg sync.WaitGroup
			for i := range requests {
				wg.Go(func() {
					body := chat(words(fmt.Sprint("buffered ", i), 25_000))
					res, err := send(ctx, s.sites[0], chatPath, body)
					if err != nil {
						t.Error(err)
						return
					}
					defer res.Body.Close()
					text, _ := io.ReadAll(res.Body)
					want := fmt.Sprintf("data: %s %d %d\n\n", digest([]byte(body)), len(body), len(body))
					if res.StatusCode != http.StatusOK || string(text) != want {
						t.Errorf("status %d: %q, want %q", res.StatusCode, text, want)
					}
				})
			}
			wg.Wait()
			s.settled()
		})
	}
}
