// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

// Load is what one router, or several together, hold on an upstream.
type Load struct {
	// Requests is how many requests are in flight, Prompts how many of those
	// have a prompt, and Waiting how many have shown no output yet.
	Requests, Prompts, Waiting int

	// Prefill is how many prefill tokens are reserved.
	Prefill int
}

// Plus returns both loads together.
func (l Load) Plus(other Load) Load {
	return Load{
		Requests: l.Requests + other.Requests,
		Prompts:  l.Prompts + other.Prompts,
		Waiting:  l.Waiting + other.Waiting,
		Prefill:  l.Prefill + other.Prefill,
	}
}

// Minus returns what is left of the load without other, which must be part of it.
func (l Load) Minus(other Load) Load {
	return Load{
		Requests: l.Requests - other.Requests,
		Prompts:  l.Prompts - other.Prompts,
		Waiting:  l.Waiting - other.Waiting,
		Prefill:  l.Prefill - other.Prefill,
	}
}

// Peers is what the other routers of the fleet hold on the upstream, as far as is
// known. It counts in the cost as what this router holds does.
func (u *Upstream) Peers() Load { return u.peers }

// SetPeers sets what the other routers hold.
func (u *Upstream) SetPeers(l Load) {
	u.peers = l
	u.peersPeak = max(u.peersPeak, l.Requests)
}

// allWaiting is how many requests wait for their first output, those of all
// routers together.
func (u *Upstream) allWaiting() int { return u.waiting.len + u.peers.Waiting }

// TakePeersPeak returns the most requests that the other routers had in flight at
// any moment since the last call.
func (u *Upstream) TakePeersPeak() int {
	peak := u.peersPeak
	u.peersPeak = u.peers.Requests
	return peak
}

// Assigned orders the upstreams of this router by when it last placed a request
// with a prompt there. It is 0 while it never has.
func (u *Upstream) Assigned() uint64 { return u.placed }

// Assign makes u the most recently chosen upstream for requests with a prompt,
// because another router has placed one there.
func (l *Ledger) Assign(u *Upstream) {
	l.chosen++
	u.assigned = l.chosen
}
