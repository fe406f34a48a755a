// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A handler between this module's and the proxy may limit the body or put another
// in its place. What it does must reach the upstream as without this module.
func TestBodyHandlersInside(t *testing.T) {
	const site = `
{site0} {
	llm_loadaware
	handle {
		request_body {
			%s
		}
		reverse_proxy %s {
			lb_policy llm_loadaware
		}
	}
}
`
	t.Run("max_size", func(t *testing.T) {
		up := newUpstream(t, answerAtOnce)
		s := start(t, fmt.Sprintf(site, "max_size 10KB", up.address()))
		r, err := http.NewRequest(http.MethodPost, "http://"+s.sites[0]+chatPath, struct{ *strings.Reader }{strings.NewReader(chat(words("long", 10_000)))})
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = -1
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d, want 413", res.StatusCode)
		}
		s.settled()
	})
	t.Run("set", func(t *testing.T) {
		const other = `{"model":"other","messages":[]}`
		up := newUpstream(t, answerAtOnce)
		s := start(t, fmt.Sprintf(site, "set `"+other+"`", up.address()))
		if status, text := exchange(t, s.sites[0], chatPath, chat("hello")); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
		if got := up.last().body; got != other {
			t.Errorf("upstream received %q, want %q", got, other)
		}
		s.settled()
	})
}

// A client that offers another protocol is charged like any other: its prompt is
// not read, but its size is known.
func TestUpgradeOfferIsCharged(t *testing.T) {
	upstreams := newUpstreams(t, 1, nil)
	s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
	st := open(t, s, upstreams, chat(words("offer", 4000)), "Connection", "Upgrade", "Upgrade", "h2c")
	if got := s.fleet().of(st.at); got.PrefillTokens < 4000 || got.PrefixBlocks != 0 {
		t.Errorf("upstream has %+v, want 4,000 prefill tokens by size and no blocks", got)
	}
	st.show(s)
	st.end()
	s.settled()
	if got := sum(s.fleet().total().Placements); got != 1 {
		t.Errorf("placements = %d, want 1", got)
	}
}

// A failure that a handler in between hides from the client is one all the same.
func TestHiddenFailureTeachesNothing(t *testing.T) {
	up := newUpstream(t, fails(http.StatusServiceUnavailable))
	s := start(t, fmt.Sprintf(`
{site0} {
	route {
		llm_loadaware
		intercept {
			@failed status 5xx
			handle_response @failed {
				respond "try later" 200
			}
		}
		reverse_proxy %s {
			lb_policy llm_loadaware
		}
	}
}
`, up.address()))
	res, err := send(t.Context(), s.sites[0], chatPath, chat(words("hidden", 1000)), "X-Session-ID", "s")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d, want 200 in place of the upstream's 503", res.StatusCode)
	}
	s.settled()
	f := s.fleet()
	if got := f.of(up); f.Sessions != 0 || got.PrefixBlocks != 0 || got.Releases["error"] != 1 {
		t.Errorf("fleet = %+v, want no session, no block, and an error", f)
	}
}
