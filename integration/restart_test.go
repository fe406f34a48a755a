// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// lasting is a site that tells where and why it has placed a request.
const lasting = `
{site0} {
	llm_loadaware
	header >X-Upstream {http.llm_loadaware.upstream}
	header >X-Reason {http.llm_loadaware.reason}
	header >X-Uncached {http.llm_loadaware.uncached_tokens}
	reverse_proxy %s {
		lb_policy llm_loadaware {
			%s
		}
	}
}
`

// talk lets n sessions have a turn, and returns where they were placed.
func talk(t *testing.T, s *server, n int) (homes []string) {
	t.Helper()
	for i := range n {
		res := begin(t, s.sites[0], chatPath, chat(words(fmt.Sprint(i), 3000)), "X-Session-ID", fmt.Sprint(i))
		rest(t, res)
		homes = append(homes, res.Header.Get("X-Upstream"))
	}
	return homes
}

// talkOn lets the sessions go on, and checks that each does so at its home, and
// that only what its prompt grew is to be computed there.
func talkOn(t *testing.T, when string, s *server, homes []string) {
	t.Helper()
	// the other way round, so that taking turns meets no home
	for i, home := range slices.Backward(homes) {
		prompt := conversation(words(fmt.Sprint(i), 3000), "an answer", "another question")
		res := begin(t, s.sites[0], chatPath, prompt, "X-Session-ID", fmt.Sprint(i))
		rest(t, res)
		h := res.Header
		var uncached int
		if _, err := fmt.Sscan(h.Get("X-Uncached"), &uncached); err != nil || uncached > 600 ||
			h.Get("X-Upstream") != home || h.Get("X-Reason") != "pinned" {
			t.Errorf("%s: session %d was placed on %s, %s, %d tokens uncached, want it pinned on %s with a few",
				when, i, h.Get("X-Upstream"), h.Get("X-Reason"), uncached, home)
		}
	}
}

// stored is the file with the sessions of the default fleet.
func (s *server) stored() string {
	return filepath.Join(s.storage, "llm_loadaware", "default", "sessions")
}

// A restart of Caddy sends no session away from its cache: one that ends writes
// at once, and one that is killed leaves what was written.
func TestSessionsSurviveProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Caddy in processes of its own")
	}
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := newServer(t)
	config := fmt.Sprintf(lasting, addresses(upstreams), "metrics off")

	first := s.spawn(t, config)
	homes := talk(t, s, 7)
	first.end(syscall.SIGTERM)

	second := s.spawn(t, config)
	talkOn(t, "after an end", s, homes)
	second.end(syscall.SIGKILL)

	third := s.spawn(t, config)
	talkOn(t, "after a kill", s, homes)
	third.end(syscall.SIGTERM)
}

// Only the turns of sessions that are in the snapshot are known after a start:
// without the index, too.
func TestSessionsSurviveStop(t *testing.T) {
	for _, option := range []string{"", "prefix_index off"} {
		upstreams := newUpstreams(t, 3, answerAtOnce)
		s := newServer(t)
		config := s.adapt(fmt.Sprintf(lasting, addresses(upstreams), option))
		s.run(config)
		homes := talk(t, s, 7)
		if err := caddy.Stop(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(s.stored())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "Session") || strings.Contains(string(text), words("0", 20)) {
			t.Errorf("what a client sent is stored: %q", text)
		}
		s.run(config)
		if f := s.fleet(); f.Sessions != len(homes) {
			t.Errorf("%q: %d sessions after a start, want %d", option, f.Sessions, len(homes))
		}
		talkOn(t, "after a start "+option, s, homes)
	}
}

// The responses that an engine keeps are found again.
func TestResponsesSurviveStop(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := newServer(t)
	config := s.adapt(fmt.Sprintf(lasting, addresses(upstreams), ""))
	for i, u := range upstreams {
		u.setAnswer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"resp_%d","object":"response"}`, i)
		})
	}
	s.run(config)
	made := map[string]string{}
	for i := range 6 {
		status, upstream, text := answerOf(t, s, http.MethodPost, "/v1/responses", fmt.Sprintf(`{"model":"m","input":%q}`, words(fmt.Sprint(i), 500)))
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
		made[strings.Split(text, `"`)[3]] = upstream
	}
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	s.run(config)
	if len(made) != len(upstreams) {
		t.Fatalf("responses were made by %v, want all upstreams", made)
	}
	for id, upstream := range made {
		if _, at, _ := answerOf(t, s, http.MethodGet, "/v1/responses/"+id, ""); at != upstream {
			t.Errorf("%s was asked for at %s, want %s", id, at, upstream)
		}
	}
}

// Validation and a config that fails write nothing.
func TestValidationStoresNothing(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	s := newServer(t)
	var c caddy.Config
	if err := json.Unmarshal(s.adapt(fmt.Sprintf(lasting, up.address(), "")), &c); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&c); err != nil {
		t.Fatal(err)
	}
	taken := newUpstream(t, answerAtOnce)
	if err := caddy.Load(s.adapt(strings.ReplaceAll(fmt.Sprintf(lasting, up.address(), ""), "{site0}", taken.URL)), true); err == nil {
		t.Fatal("a config that listens on a taken address was loaded")
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(s.stored()))); !os.IsNotExist(err) {
		t.Errorf("something was stored: %v", err)
	}
}

// A reload goes on with what the fleet knows, and neither reads nor writes. A
// config without the fleet writes it, and the next one with it reads it.
func TestReloadDoesNotRestore(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	config := fmt.Sprintf(lasting, addresses(upstreams), "")
	s := start(t, config)
	homes := talk(t, s, 5)
	if err := os.MkdirAll(filepath.Dir(s.stored()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.stored(), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.reload(fmt.Sprintf(lasting, addresses(upstreams), "stickiness 40000")); err != nil {
		t.Fatal(err)
	}
	s.accepts()
	if text, err := os.ReadFile(s.stored()); err != nil || string(text) != "nonsense" {
		t.Errorf("the reload has stored %q, %v", text, err)
	}
	talkOn(t, "after a reload", s, homes)
	if err := s.reload("{site0} {\nrespond hello\n}\n"); err != nil {
		t.Fatal(err)
	}
	s.accepts()
	if err := s.reload(config); err != nil {
		t.Fatal(err)
	}
	s.accepts()
	talkOn(t, "after a while without the fleet", s, homes)
}

// Whatever is stored in the place of the sessions, Caddy starts and says so
// once.
func TestDamagedStoreIsIgnored(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := newServer(t)
	logged := s.logging()
	if err := os.MkdirAll(filepath.Dir(s.stored()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.stored(), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(s.adapt(fmt.Sprintf(lasting, addresses(upstreams), "metrics off")))
	talk(t, s, 2)
	if err := caddy.Stop(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(logged(), "\n"), "warn stored sessions are not restored  it is no snapshot of this version"; got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
	if text, err := os.ReadFile(s.stored()); err != nil || string(text) == "nonsense" {
		t.Errorf("stored %q, %v, want the sessions", text, err)
	}
}
