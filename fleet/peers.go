// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

const (
	// PeerLifetime is how long what another router holds counts after its last
	// news: it may have died.
	PeerLifetime = 3 * time.Second

	// peerRemembered is how long the serial of its last news is known, so that
	// none that are late bring it back.
	peerRemembered = time.Minute

	// mostPeers is how many routers share a fleet at most.
	mostPeers = 256

	// heardLate is how long a peer's request may be in a report before it is
	// heard of.
	heardLate = 100 * time.Millisecond
)

// peers are the other routers of the fleet.
type peers struct {
	known map[uint64]*peer

	// due is when one may have been silent for too long, not later
	due time.Time

	// alive is how many count
	alive int

	// claims are the prompts that they can take back
	claims claims

	// sessions, kvTokens, noIndex and prefillTTL are what the last placement
	// wanted: what is heard and told has no options of its own
	sessions   sessions.Bounds
	kvTokens   int
	noIndex    bool
	prefillTTL time.Duration
}

// peer is one other router.
type peer struct {
	// serial is that of its last news, which came at heard
	serial uint64
	heard  time.Time

	// holds is what it holds, nil while it counts for nothing
	holds map[*upstream]*peerLoad

	// assigned is the highest Assigned of its loads
	assigned uint64
}

// peerLoad is what a peer held on an upstream in the news of a serial.
type peerLoad struct {
	picker.Load
	serial uint64
}

// bound keeps what a placement wants for what is heard and told.
func (p *peers) bound(o *Options) {
	p.sessions, p.kvTokens, p.noIndex, p.prefillTTL = o.Sessions, o.KVTokens, !o.PrefixIndex, o.PrefillTTL
}

// expirePeers lets those go that were not heard for too long. The caller holds
// the lock.
func (f *Fleet) expirePeers(now time.Time) {
	if len(f.peers.known) == 0 || now.Before(f.peers.due) {
		return
	}
	f.peers.due = now.Add(peerRemembered)
	for router, p := range f.peers.known {
		end := p.heard.Add(PeerLifetime)
		if p.holds != nil && !now.Before(end) {
			f.release(p)
		}
		if p.holds == nil {
			end = p.heard.Add(peerRemembered)
		}
		if !now.Before(end) {
			f.forgetPeer(router)
		} else if end.Before(f.peers.due) {
			f.peers.due = end
		}
	}
}

// forgetPeer forgets a peer and what it holds. The caller holds the lock.
func (f *Fleet) forgetPeer(router uint64) {
	f.release(f.peers.known[router])
	delete(f.peers.known, router)
}

// release makes what p holds count for nothing. The caller holds the lock.
func (f *Fleet) release(p *peer) {
	if p.holds == nil {
		return
	}
	for u, held := range p.holds {
		u.counters.SetPeers(u.counters.Peers().Minus(held.Load))
	}
	p.holds = nil
	f.peers.alive--
}

// hearLoads makes the loads what the router holds, and reports that nothing newer
// was heard of it. The caller holds the lock.
func (f *Fleet) hearLoads(router uint64, n *News, now time.Time) (fresh bool) {
	if n.Serial == 0 {
		return false
	}
	p := f.peers.known[router]
	if p == nil {
		if len(f.peers.known) >= mostPeers {
			return false
		}
		if f.peers.known == nil {
			f.peers.known = make(map[uint64]*peer)
		}
		p = new(peer)
		f.peers.known[router] = p
	}
	if n.Serial <= p.serial {
		return false
	}
	p.serial, p.heard = n.Serial, now
	if end := now.Add(PeerLifetime); len(f.peers.known) == 1 || end.Before(f.peers.due) {
		f.peers.due = end
	}
	if p.holds == nil {
		p.holds = make(map[*upstream]*peerLoad)
		f.peers.alive++
	}
	f.hold(p, n, now)
	f.assign(p, n.Loads, now)
	return true
}

// hold makes the loads what p holds. The caller holds the lock.
func (f *Fleet) hold(p *peer, n *News, now time.Time) {
	for i := range n.Loads {
		l := &n.Loads[i]
		u := f.remembered(l.Upstream, now)
		if u == nil {
			continue
		}
		held := p.holds[u]
		if held == nil {
			held = new(peerLoad)
			p.holds[u] = held
		}
		if held.serial == n.Serial {
			// told twice in the same news
			continue
		}
		load := atLeastNothing(l.Load)
		u.hearPeers(u.counters.Peers().Minus(held.Load).Plus(load), now)
		*held = peerLoad{load, n.Serial}
	}
	for u, held := range p.holds {
		if held.serial != n.Serial {
			u.counters.SetPeers(u.counters.Peers().Minus(held.Load))
			held.Load = picker.Load{}
		}
		if held.Load == (picker.Load{}) {
			delete(p.holds, u)
		}
	}
}

// atLeastNothing returns a load that no number of is under 0.
func atLeastNothing(l picker.Load) picker.Load {
	return picker.Load{
		Requests: max(l.Requests, 0), Prompts: max(l.Prompts, 0), Waiting: max(l.Waiting, 0), Prefill: max(l.Prefill, 0),
	}
}

// hearPeers sets what the peers hold on u. What is heard just after a report was
// taken may be in it, and is not from elsewhere. The caller holds the lock.
func (u *upstream) hearPeers(l picker.Load, now time.Time) {
	u.counters.SetPeers(l)
	more := l.Requests - u.peersReported
	if _, taken := u.engine.Report(); more > 0 && now.Sub(taken) < heardLate {
		u.engine.Account(more)
		u.peersReported += more
	}
}

// assign makes the upstreams on which p has placed requests since its last news
// those that were chosen last, in the order in which it has. The caller holds the
// lock.
func (f *Fleet) assign(p *peer, loads []Load, now time.Time) {
	last := p.assigned
	f.assigned = f.assigned[:0]
	for i := range loads {
		if loads[i].Assigned > last {
			f.assigned = append(f.assigned, &loads[i])
			p.assigned = max(p.assigned, loads[i].Assigned)
		}
	}
	slices.SortFunc(f.assigned, func(a, b *Load) int { return cmp.Compare(a.Assigned, b.Assigned) })
	for _, l := range f.assigned {
		if u := f.remembered(l.Upstream, now); u != nil {
			f.ledger.Assign(u.counters)
		}
	}
	clear(f.assigned)
}

// inFlight is how many requests with a prompt all routers have on u, and prefill
// how many prefill tokens they hold there. The caller holds the lock.
func (u *upstream) inFlight() int { return u.prompts + u.counters.Peers().Prompts }

func (u *upstream) prefill() int { return u.counters.Prefill() + u.counters.Peers().Prefill }
