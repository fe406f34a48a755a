// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/caddy-llm/loadaware/fleet"
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

var checksum = crc32.MakeTable(crc32.Castagnoli)

// Encode appends the news of a router to b as one message.
func Encode(b []byte, router uint64, n *fleet.News) []byte {
	first := len(b)
	w := writer{b: append(b, mark...), places: map[string]uint64{}}
	w.hash(router)
	w.number(n.Serial)
	w.upstreams(n)
	w.number(uint64(len(n.Loads)))
	for i := range n.Loads {
		w.load(&n.Loads[i])
	}
	w.number(uint64(len(n.Homes)))
	for i := range n.Homes {
		w.home(&n.Homes[i])
	}
	w.number(uint64(len(n.Blocks)))
	for i := range n.Blocks {
		w.prompt(&n.Blocks[i])
	}
	w.number(uint64(len(n.Responses)))
	for _, r := range n.Responses {
		w.hash(uint64(r.Key))
		w.number(w.places[r.Upstream])
	}
	return binary.LittleEndian.AppendUint32(w.b, crc32.Checksum(w.b[first:], checksum))
}

// writer appends the parts of a message.
type writer struct {
	b      []byte
	names  []string
	places map[string]uint64
}

// upstreams writes the list of all upstreams that the news name.
func (w *writer) upstreams(n *fleet.News) {
	for i := range n.Loads {
		w.place(n.Loads[i].Upstream)
	}
	for i := range n.Homes {
		if home := n.Homes[i].Upstream; home != "" {
			w.place(home)
		}
	}
	for i := range n.Blocks {
		w.place(n.Blocks[i].Upstream)
	}
	for i := range n.Responses {
		w.place(n.Responses[i].Upstream)
	}
	w.number(uint64(len(w.names)))
	for _, name := range w.names {
		w.number(uint64(len(name)))
		w.b = append(w.b, name...)
	}
}

func (w *writer) place(name string) {
	if _, ok := w.places[name]; !ok {
		w.places[name] = uint64(len(w.names))
		w.names = append(w.names, name)
	}
}

func (w *writer) load(l *fleet.Load) {
	w.number(w.places[l.Upstream])
	w.integer(l.Requests)
	w.integer(l.Prompts)
	w.integer(l.Waiting)
	w.integer(l.Prefill)
	w.number(l.Assigned)
}

func (w *writer) home(h *fleet.Home) {
	home := uint64(0)
	if h.Upstream != "" {
		home = 2 * (w.places[h.Upstream] + 1)
	}
	w.hash(uint64(h.Session))
	w.number(home + bit(h.Settled))
	w.number(h.Version.Number)
	w.hash(uint64(h.Version.Since))
	w.integer(h.Size)
	w.hash(h.Line.Head)
	w.hash(h.Line.Last)
	w.integer(h.Line.Blocks)
}

func (w *writer) prompt(b *fleet.Blocks) {
	w.number(2*w.places[b.Upstream] + bit(b.Gone))
	w.hash(b.After)
	w.number(uint64(len(b.Hashes)))
	for _, hash := range b.Hashes {
		w.hash(hash)
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (w *writer) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }
func (w *writer) integer(n int)   { w.number(uint64(max(n, 0))) }
func (w *writer) hash(h uint64)   { w.b = binary.LittleEndian.AppendUint64(w.b, h) }
