// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quic-go/quic-go/http3"
)

// speaker is a client of one protocol.
type speaker struct {
	name      string
	tls       bool
	major     int
	transport func(t *testing.T, trusted *x509.CertPool) http.RoundTripper

	// switches says that the protocol has websockets, in a form that this
	// client speaks
	switches bool
}

// speakers are clients of every protocol. Go speaks the websockets of HTTP/2
// only where an environment variable says so.
var speakers = []speaker{
	{"HTTP/1.1", false, 1, plainTransport(func(p *http.Protocols) { p.SetHTTP1(true) }), true},
	{"HTTP/1.1 over TLS", true, 1, plainTransport(func(p *http.Protocols) { p.SetHTTP1(true) }), true},
	{"h2c", false, 2, plainTransport(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }), false},
	{"h2", true, 2, plainTransport(func(p *http.Protocols) { p.SetHTTP2(true) }), false},
	{"h3", true, 3, func(t *testing.T, trusted *x509.CertPool) http.RoundTripper {
		transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
		t.Cleanup(func() { transport.Close() })
		return transport
	}, true},
}

// plainTransport is a transport of net/http that speaks only what is set.
func plainTransport(set func(*http.Protocols)) func(*testing.T, *x509.CertPool) http.RoundTripper {
	return func(t *testing.T, trusted *x509.CertPool) http.RoundTripper {
		transport := &http.Transport{
			Protocols:             new(http.Protocols),
			TLSClientConfig:       &tls.Config{RootCAs: trusted},
			ExpectContinueTimeout: patience,
		}
		set(transport.Protocols)
		t.Cleanup(transport.CloseIdleConnections)
		return transport
	}
}

// certificate writes the certificate for loopback that httptest has, and returns
// its files and who trusts it.
func certificate(t *testing.T) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	der, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: server.Certificate().Raw},
		key:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusted = x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	return cert, key, trusted
}

// bothConfig proxies what is under /plain as Caddy alone does it, and the rest
// with the modules, without and with TLS.
const bothConfig = `
(both) {
	handle_path /plain/* {
		reverse_proxy {upstream}
	}
	handle {
		llm_loadaware
		reverse_proxy {upstream} {
			lb_policy llm_loadaware
		}
	}
}
{site0} {
	import both
}
https://{tls} {
	tls {cert} {key}
	import both
}
`

// mirror is an upstream that notes what it receives, and answers with a header,
// a body and a trailer.
type mirror struct {
	mu   sync.Mutex
	seen string
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	header := r.Header.Clone()
	// what the modules add, and what is another one in each test
	for _, field := range []string{"Idempotency-Key", "X-Forwarded-Host", "X-Forwarded-For"} {
		header.Del(field)
	}
	m.mu.Lock()
	m.seen = fmt.Sprint(r.Method, " ", r.URL, " ", r.ContentLength, " ", header, " ", string(body), " ", r.Trailer)
	m.mu.Unlock()
	if r.URL.Path == "/nowhere" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Allow", "GET, POST")
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", "12345")
		return
	}
	if r.Method != http.MethodOptions {
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, `{"input_tokens":7,"received":%d}`, len(body))
		w.Header().Set("X-Sum", fmt.Sprint(len(body)))
	}
}

// take returns what was received last.
func (m *mirror) take() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.seen
	m.seen = ""
	return seen
}

// Whatever a client speaks, the engine and the client get what they get by Caddy
// alone, and each request is in flight once.
func TestClientProtocols(t *testing.T) {
	cert, key, trusted := certificate(t)
	for _, sp := range speakers {
		t.Run(sp.name, func(t *testing.T) {
			m := new(mirror)
			u := newRawUpstream(t, m.ServeHTTP)
			transport, base, s := sp.start(t, u, cert, key, trusted)
			for _, test := range []struct {
				name, method, path, body string
				header                   http.Header
				trailer                  http.Header
				chunked                  bool
				placed                   int
			}{
				{name: "chat", method: "POST", path: chatPath, body: unstreamed(oddBody), placed: 1},
				{name: "long chat", method: "POST", path: chatPath, body: unstreamed(chat(words("long", 100_000))), placed: 1},
				{name: "chunked chat", method: "POST", path: chatPath, body: oddBody, chunked: true, placed: 1},
				{name: "count", method: "POST", path: "/v1/messages/count_tokens", body: oddBody},
				{name: "tokenize", method: "POST", path: "/tokenize", body: oddBody},
				{
					name: "upload", method: "POST", path: "/v1/audio/transcriptions", body: "--b\r\n\r\n\x00\xff\r\n--b--\r\n",
					header: http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}, placed: 1,
				},
				{
					name: "expects continue", method: "POST", path: chatPath, body: oddBody,
					header: http.Header{"Expect": {"100-continue"}}, placed: 1,
				},
				{
					name: "expects continue, unread", method: "POST", path: "/tokenize", body: oddBody,
					header: http.Header{"Expect": {"100-continue"}},
				},
				{
					name: "trailer", method: "POST", path: chatPath, body: oddBody, chunked: true,
					trailer: http.Header{"X-Checksum": {"abc"}}, placed: 1,
				},
				{
					name: "trailer, unread", method: "POST", path: "/tokenize", body: oddBody, chunked: true,
					trailer: http.Header{"X-Checksum": {"abc"}},
				},
				{name: "HEAD", method: "HEAD", path: "/v1/models"},
				{name: "OPTIONS", method: "OPTIONS", path: chatPath, header: http.Header{"Origin": {"https://example.com"}}},
				{name: "GET", method: "GET", path: "/v1/models?after=x%20y"},
				{name: "DELETE", method: "DELETE", path: "/v1/responses/resp_1"},
				{name: "not found", method: "GET", path: "/nowhere"},
			} {
				exchange := func(prefix string) string {
					t.Helper()
					var body io.Reader = strings.NewReader(test.body)
					if test.chunked {
						body = unsized{body}
					}
					r, err := http.NewRequestWithContext(withPatience(t), test.method, base+prefix+test.path, body)
					if err != nil {
						t.Fatal(err)
					}
					maps.Copy(r.Header, test.header)
					r.Trailer = test.trailer.Clone()
					res, err := transport.RoundTrip(r)
					if err != nil {
						t.Fatalf("%s: %v", test.name, err)
					}
					defer res.Body.Close()
					text, err := io.ReadAll(res.Body)
					if err != nil {
						t.Fatalf("%s: %v", test.name, err)
					}
					if res.ProtoMajor != sp.major {
						t.Fatalf("%s: answered with %s", test.name, res.Proto)
					}
					res.Header.Del("Date")
					return fmt.Sprint(res.Status, " ", res.ContentLength, " ", res.Header, " ", string(text), " ", res.Trailer)
				}
				answer, seen := exchange("/plain"), m.take()
				before := s.fleet().total()
				if got := exchange(""); got != answer {
					t.Errorf("%s: answered with\n%s, want as by Caddy alone\n%s", test.name, got, answer)
				}
				if got := m.take(); got != seen || !strings.Contains(got, test.body) {
					t.Errorf("%s: the engine received\n%s, want as by Caddy alone\n%s", test.name, got, seen)
				}
				s.settled()
				after := s.fleet().total()
				if got := sum(after.Placements) - sum(before.Placements); got != test.placed {
					t.Errorf("%s: %d placements, want %d", test.name, got, test.placed)
				}
			}
		})
	}
}

// start runs Caddy with an upstream, and returns a client, the address it has to
// ask, and Caddy.
func (sp speaker) start(t *testing.T, u *upstream, cert, key string, trusted *x509.CertPool) (http.RoundTripper, string, *server) {
	t.Helper()
	s := newServer(t)
	fill := strings.NewReplacer("{upstream}", u.address(), "{tls}", s.sites[1], "{cert}", cert, "{key}", key)
	s.run(s.adapt(fill.Replace(bothConfig)))
	base := "http://" + s.sites[0]
	if sp.tls {
		base = "https://" + s.sites[1]
	}
	return sp.transport(t, trusted), base, s
}

// A stream comes through as it is made, and its prefill tokens end with its first
// event, in every protocol.
func TestClientProtocolsStream(t *testing.T) {
	cert, key, trusted := certificate(t)
	for _, sp := range speakers {
		t.Run(sp.name, func(t *testing.T) {
			st := newStage()
			u := newUpstream(t, st.answer)
			transport, base, s := sp.start(t, u, cert, key, trusted)
			body := chat(words("the prompt", 3000))
			r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost, base+chatPath, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			res, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if got := s.fleet().of(u); got.RequestsInFlight != 1 || got.PrefillTokens < 3000 {
				t.Errorf("with the header: %+v, want 1 request and 3000 tokens", got)
			}
			close(st.output)
			wantNext(t, res.Body, "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n")
			if got := s.fleet().of(u); got.RequestsInFlight != 1 || got.PrefillTokens != 0 {
				t.Errorf("with the first event: %+v, want 1 request and no tokens", got)
			}
			close(st.end)
			if text, err := io.ReadAll(res.Body); err != nil || string(text) != "data: [DONE]\n\n" {
				t.Errorf("the rest is %q, %v", text, err)
			}
			s.settled()
			if got := u.last().body; got != body {
				t.Errorf("the engine received %d bytes, want the %d that were sent", len(got), len(body))
			}
		})
	}
}

// Websockets of HTTP/1.1 and HTTP/3 reach the engine, and are in flight while
// they last.
func TestClientProtocolsUpgrade(t *testing.T) {
	cert, key, trusted := certificate(t)
	for _, sp := range slices.DeleteFunc(slices.Clone(speakers), func(sp speaker) bool { return !sp.switches }) {
		t.Run(sp.name, func(t *testing.T) {
			u := newRawUpstream(t, switchProtocols)
			transport, base, s := sp.start(t, u, cert, key, trusted)
			r, status := sp.upgrade(t, base+"/v1/realtime?model=m")
			var out io.Writer
			if sp.major == 3 {
				reading, writing := io.Pipe()
				r.Body, out = reading, writing
				defer writing.Close()
			}
			res, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != status {
				t.Fatalf("status %d, want %d", res.StatusCode, status)
			}
			if sp.major == 1 {
				out = res.Body.(io.Writer)
			}
			wantNext(t, res.Body, "hello\n")
			for i := range 3 {
				fmt.Fprintf(out, "line %d\n", i)
				wantNext(t, res.Body, fmt.Sprintf("echo line %d\n", i))
			}
			if got := s.fleet().of(u); got.RequestsInFlight != 1 || got.RequestsWaiting != 0 || sum(got.Placements) != 0 {
				t.Errorf("while it runs: %+v, want 1 in flight and no placement", got)
			}
			out.(io.Closer).Close()
			s.settled()
		})
	}
}

// upgrade returns a request for a websocket, and the status that grants it.
func (sp speaker) upgrade(t *testing.T, url string) (r *http.Request, granted int) {
	t.Helper()
	method := http.MethodGet
	if sp.major > 1 {
		method = http.MethodConnect
	}
	r, err := http.NewRequestWithContext(withPatience(t), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-WebSocket-Version", "13")
	if sp.major > 1 {
		r.Proto = "websocket"
		return r, http.StatusOK
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
	return r, http.StatusSwitchingProtocols
}

// wantNext reads what is to come next.
func wantNext(t *testing.T, from io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("received %q, %v, want %q", got, err, want)
	}
}
