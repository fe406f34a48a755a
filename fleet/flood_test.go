// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// Others cannot make a fleet know any number of upstreams, and what is known of
// those goes though nothing is placed.
func TestHeardUpstreamsAreBounded(t *testing.T) {
	b := shared(1, 2)[0]
	b.List(b.pool.Names())
	for serial := range 3 {
		n := &News{Serial: uint64(serial + 1)}
		for i := range mostRemembered {
			name := fmt.Sprint(serial, "-", i)
			n.Loads = append(n.Loads, Load{Upstream: name, Load: picker.Load{Requests: 1}, Assigned: uint64(i + 1)})
			n.Homes = append(n.Homes, Home{Session: sessions.Key(i + 1), Upstream: name, Version: sessions.Version{Number: uint64(serial + 1)}})
			n.Blocks = append(n.Blocks, Blocks{Upstream: name, Hashes: []uint64{uint64(i + 1)}})
		}
		b.Hear(1, n, b.now)
		if got := len(b.upstreams); got != mostRemembered {
			t.Errorf("the fleet knows %d upstreams, want %d", got, mostRemembered)
		}
	}
	b.Hear(1, &News{Serial: 9, Loads: []Load{{Upstream: b.pool.Names()[0], Load: picker.Load{Requests: 1}}}}, b.now)
	if got := b.peersOf()[0].Requests; got != 1 {
		t.Errorf("the peer holds %d requests on a listed upstream, want 1", got)
	}
	b.wait(PeerLifetime)
	b.told()
	b.wait(departed)
	b.told()
	if got := len(b.upstreams); got != 2 {
		t.Errorf("the fleet knows %d upstreams later, want the two that are listed", got)
	}
}
