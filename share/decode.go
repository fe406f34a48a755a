// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"errors"
	"math"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/internal/packed"
	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// longest is the length of a message that is read at most. What a router tells
// at once is shorter.
const longest = 4 << 20

// What is wrong with bytes that should be a message.
var (
	errNoMessage = errors.New("it is no message of this version")
	errTooLong   = errors.New("it is longer than 4 MiB")
)

// What no router tells, and would be of harm: names take memory, and a number that
// no other one is greater than stays for ever. A number that a counter never comes
// to is damage.
const (
	mostNumber    = math.MaxInt64 / 2
	mostUpstreams = 1 << 12
	longestName   = 300
	lastSerial    = 1 << 53
	lastVersion   = 1 << 40
)

// The least bytes that the items of a message take.
const (
	leastLoad     = 6
	leastHome     = 8 + 1 + 1 + 8 + 1 + 8 + 8 + 1
	leastPrompt   = 1 + 8 + 1
	leastResponse = 8 + 1
)

// Decode sets n to the news of a message, and returns the router that told them.
// n may be used again. The memory that is taken is in proportion to the message.
func Decode(message []byte, n *fleet.News) (router uint64, err error) {
	switch {
	case len(message) > longest:
		return 0, errTooLong
	case !packed.Marked(message, mark):
		return 0, errNoMessage
	}
	opened, err := packed.Open(message, mark, mostNumber)
	if err != nil {
		return 0, err
	}
	r := reader{opened}
	router = r.Hash()
	*n = fleet.News{
		Serial: r.AtMost(lastSerial), Loads: n.Loads[:0], Homes: n.Homes[:0], Blocks: n.Blocks[:0], Responses: n.Responses[:0],
	}
	r.Names(mostUpstreams, longestName)
	for range r.Count(leastLoad, mostUpstreams) {
		n.Loads = append(n.Loads, r.load())
	}
	for range r.Count(leastHome, fleet.HomesAtOnce) {
		n.Homes = append(n.Homes, r.home())
	}
	prompts := r.Count(leastPrompt, fleet.PromptsAtOnce)
	hashes := make([]uint64, 0, min(r.Left()/8, fleet.HashesAtOnce))
	for range prompts {
		var b fleet.Blocks
		b, hashes = r.prompt(hashes)
		n.Blocks = append(n.Blocks, b)
	}
	for range r.Count(leastResponse, fleet.ResponsesAtOnce) {
		n.Responses = append(n.Responses, fleet.StoredResponse{Key: fleet.ResponseKey(r.Hash()), Upstream: r.Name(r.Number())})
	}
	if err := r.End(); err != nil {
		*n = fleet.News{}
		return 0, err
	}
	return router, nil
}

// reader takes the parts of a message.
type reader struct{ packed.Reader }

func (r *reader) load() fleet.Load {
	return fleet.Load{
		Upstream: r.Name(r.Number()),
		Load: picker.Load{
			Requests: r.Int(), Prompts: r.Int(), Waiting: r.Int(), Prefill: r.Int(),
		},
		Assigned: r.AtMost(lastSerial),
	}
}

func (r *reader) home() fleet.Home {
	h := fleet.Home{Session: sessions.Key(r.Hash())}
	home := r.Number()
	h.Settled = home&1 != 0
	if home /= 2; home > 0 {
		h.Upstream = r.Name(home - 1)
	}
	h.Version = sessions.Version{Number: r.AtMost(lastVersion), Since: int64(r.Hash())}
	h.Size = r.Int()
	h.Line = sessions.Line{Head: r.Hash(), Last: r.Hash(), Blocks: r.Int()}
	return h
}

// prompt reads a prompt, whose blocks it appends to hashes.
func (r *reader) prompt(hashes []uint64) (b fleet.Blocks, all []uint64) {
	place := r.Number()
	b = fleet.Blocks{Upstream: r.Name(place / 2), Gone: place&1 != 0, After: r.Hash()}
	first := len(hashes)
	for range r.Count(8, uint64(fleet.HashesAtOnce-first)) {
		hashes = append(hashes, r.Hash())
	}
	b.Hashes = hashes[first:len(hashes):len(hashes)]
	return b, hashes
}
