// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() {
	caddy.RegisterModule(new(changingUpstreams))
}

// changingUpstreams is a source of upstreams that a test changes at any time.
type changingUpstreams struct {
	Name string `json:"name"`
}

// changing are the addresses of the sources, by their name.
var changing sync.Map

// CaddyModule returns the Caddy module information.
func (*changingUpstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.upstreams.changing",
		New: func() caddy.Module { return new(changingUpstreams) },
	}
}

// UnmarshalCaddyfile takes the name of the source.
func (c *changingUpstreams) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&c.Name) {
		return d.ArgErr()
	}
	return nil
}

// GetUpstreams implements reverseproxy.UpstreamSource.
func (c *changingUpstreams) GetUpstreams(*http.Request) ([]*reverseproxy.Upstream, error) {
	var list []*reverseproxy.Upstream
	if addresses, ok := changing.Load(c.Name); ok {
		for _, address := range addresses.([]string) {
			list = append(list, &reverseproxy.Upstream{Dial: address})
		}
	}
	return list, nil
}

// Pods that were gone kept their place in a router, or came back as zombies.
//
// A dynamic list drops an upstream and has it again while a request runs there.
// What that request gives back must come off the counters that it raised, and
// those are the ones in view.
func TestCaseC49LeavingUpstreamKeepsItsStreams(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	name := t.Name()
	both := []string{upstreams[0].address(), upstreams[1].address()}
	changing.Store(name, both)
	defer changing.Delete(name)
	s := start(t, fmt.Sprintf("{site0} {\nllm_loadaware\nreverse_proxy {\ndynamic changing %s\nlb_policy llm_loadaware\n}\n}\n", name))

	waits := open(t, s, upstreams, chat(words("waits", 9000)))
	shown := open(t, s, upstreams, chat(words("shown", 1000)))
	if shown.at == waits.at {
		t.Fatal("both requests went to the same upstream")
	}
	shown.show(s)
	running := s.held()

	// without the upstream of the waiting request, without both, and back
	for _, list := range [][]string{{shown.at.address()}, {waits.at.address()}, nil, both, {both[1], both[0]}} {
		changing.Store(name, list)
		for _, u := range upstreams {
			u.setAnswer(answerAtOnce)
		}
		status := ended(t, s.sites[0], chat("hello"))
		if want := map[bool]int{true: 503, false: 200}[len(list) == 0]; status != want {
			t.Errorf("status with upstreams %v = %d, want %d", list, status, want)
		}
		s.returnsTo(running)
	}
	waits.show(s)
	waits.end()
	s.returnsTo(map[string]holds{shown.at.address(): {Requests: 1}})
	shown.end()
	s.settled()
}
