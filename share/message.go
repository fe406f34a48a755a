// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/internal/packed"
)

// mark begins every message. Its last byte is the version of the form:
//
//	mark, router, serial
//	n, then n upstreams: length, name
//	n, then n loads: upstream, requests, prompts, waiting, prefill, assigned
//	n, then n homes: session, home, number, since, size, head, last, blocks
//	n, then n prompts: upstream and whether it is gone, block before, m, then m hashes
//	n, then n responses: key, upstream
//	checksum of all before
//
// Keys, hashes, the router and the time since take eight bytes and the checksum
// four, little endian. All else is a varint: upstreams by their place in the list,
// doubled with 1 for a prompt that is gone; homes by their place from 1, 0 for
// none, doubled with 1 for one that is settled.
const mark = "llmnews\x01"

// Encode appends the news of a router to b as one message.
func Encode(b []byte, router uint64, n *fleet.News) []byte {
	w := writer{packed.NewWriter(b, mark)}
	w.Hash(router)
	w.Number(n.Serial)
	w.upstreams(n)
	w.Count(len(n.Loads))
	for i := range n.Loads {
		w.load(&n.Loads[i])
	}
	w.Count(len(n.Homes))
	for i := range n.Homes {
		w.home(&n.Homes[i])
	}
	w.Count(len(n.Blocks))
	for i := range n.Blocks {
		w.prompt(&n.Blocks[i])
	}
	w.Count(len(n.Responses))
	for _, r := range n.Responses {
		w.Hash(uint64(r.Key))
		w.Number(w.Place(r.Upstream))
	}
	return w.End()
}

// writer appends the parts of a message.
type writer struct{ packed.Writer }

// upstreams writes the list of all upstreams that the news name.
func (w *writer) upstreams(n *fleet.News) {
	for i := range n.Loads {
		w.Name(n.Loads[i].Upstream)
	}
	for i := range n.Homes {
		if home := n.Homes[i].Upstream; home != "" {
			w.Name(home)
		}
	}
	for i := range n.Blocks {
		w.Name(n.Blocks[i].Upstream)
	}
	for i := range n.Responses {
		w.Name(n.Responses[i].Upstream)
	}
	w.Names()
}

func (w *writer) load(l *fleet.Load) {
	w.Number(w.Place(l.Upstream))
	w.Count(l.Requests)
	w.Count(l.Prompts)
	w.Count(l.Waiting)
	w.Count(l.Prefill)
	w.Number(l.Assigned)
}

func (w *writer) home(h *fleet.Home) {
	home := uint64(0)
	if h.Upstream != "" {
		home = 2 * (w.Place(h.Upstream) + 1)
	}
	w.Hash(uint64(h.Session))
	w.Number(home + packed.Bit(h.Settled))
	w.Number(h.Version.Number)
	w.Hash(uint64(h.Version.Since))
	w.Count(h.Size)
	w.Hash(h.Line.Head)
	w.Hash(h.Line.Last)
	w.Count(h.Line.Blocks)
}

func (w *writer) prompt(b *fleet.Blocks) {
	w.Number(2*w.Place(b.Upstream) + packed.Bit(b.Gone))
	w.Hash(b.After)
	w.Count(len(b.Hashes))
	for _, hash := range b.Hashes {
		w.Hash(hash)
	}
}
