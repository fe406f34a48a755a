// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// longest is the length of a message that is read at most. What a router tells
// at once is shorter.
const longest = 4 << 20

// What is wrong with bytes that should be a message.
var (
	errNoMessage = errors.New("it is no message of this version")
	errDamaged   = errors.New("it is damaged")
	errTooLong   = errors.New("it is longer than 4 MiB")
)

// What no router tells, and would be of harm: names take memory, and a number that
// no other one is greater than stays for ever.
const (
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
	end := len(message) - crc32.Size
	switch {
	case len(message) > longest:
		return 0, errTooLong
	case end < len(mark) || string(message[:len(mark)]) != mark:
		return 0, errNoMessage
	case crc32.Checksum(message[:end], checksum) != binary.LittleEndian.Uint32(message[end:]):
		return 0, errDamaged
	}
	r := reader{b: message[len(mark):end]}
	router = r.hash()
	*n = fleet.News{
		Serial: r.atMost(lastSerial), Loads: n.Loads[:0], Homes: n.Homes[:0], Blocks: n.Blocks[:0], Responses: n.Responses[:0],
	}
	for range r.count(1, mostUpstreams) {
		r.names = append(r.names, string(r.take(r.atMost(longestName))))
	}
	for range r.count(leastLoad, mostUpstreams) {
		n.Loads = append(n.Loads, r.load())
	}
	for range r.count(leastHome, fleet.HomesAtOnce) {
		n.Homes = append(n.Homes, r.home())
	}
	prompts := r.count(leastPrompt, fleet.PromptsAtOnce)
	hashes := make([]uint64, 0, min(len(r.b)/8, fleet.HashesAtOnce))
	for range prompts {
		var b fleet.Blocks
		b, hashes = r.prompt(hashes)
		n.Blocks = append(n.Blocks, b)
	}
	for range r.count(leastResponse, fleet.ResponsesAtOnce) {
		n.Responses = append(n.Responses, fleet.StoredResponse{Key: fleet.ResponseKey(r.hash()), Upstream: r.name(r.number())})
	}
	if r.failed || len(r.b) > 0 {
		*n = fleet.News{}
		return 0, errDamaged
	}
	return router, nil
}

// reader takes the parts of a message off b. After the first that is not there it
// gives zeros.
type reader struct {
	b      []byte
	names  []string
	failed bool
}

func (r *reader) fail() { r.b, r.failed = nil, true }

func (r *reader) take(n uint64) (taken []byte) {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	taken, r.b = r.b[:n], r.b[n:]
	return taken
}

// number reads a varint. One that a counter never comes to is damage.
func (r *reader) number() uint64 { return r.atMost(math.MaxInt64 / 2) }

// atMost reads a number that is no greater than most.
func (r *reader) atMost(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > most {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) integer() int { return int(min(r.number(), math.MaxInt32)) }

// count reads how many items follow, each of which takes so many bytes or more.
func (r *reader) count(least int, most uint64) uint64 {
	n := r.atMost(most)
	if n > uint64(len(r.b)/least) {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) hash() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) name(at uint64) string {
	if at < uint64(len(r.names)) {
		return r.names[at]
	}
	r.fail()
	return ""
}

func (r *reader) load() fleet.Load {
	return fleet.Load{
		Upstream: r.name(r.number()),
		Load: picker.Load{
			Requests: r.integer(), Prompts: r.integer(), Waiting: r.integer(), Prefill: r.integer(),
		},
		Assigned: r.atMost(lastSerial),
	}
}

func (r *reader) home() fleet.Home {
	h := fleet.Home{Session: sessions.Key(r.hash())}
	home := r.number()
	h.Settled = home&1 != 0
	if home /= 2; home > 0 {
		h.Upstream = r.name(home - 1)
	}
	h.Version = sessions.Version{Number: r.atMost(lastVersion), Since: int64(r.hash())}
	h.Size = r.integer()
	h.Line = sessions.Line{Head: r.hash(), Last: r.hash(), Blocks: r.integer()}
	return h
}

// prompt reads a prompt, whose blocks it appends to hashes.
func (r *reader) prompt(hashes []uint64) (b fleet.Blocks, all []uint64) {
	place := r.number()
	b = fleet.Blocks{Upstream: r.name(place / 2), Gone: place&1 != 0, After: r.hash()}
	first := len(hashes)
	for range r.count(8, uint64(fleet.HashesAtOnce-first)) {
		hashes = append(hashes, r.hash())
	}
	b.Hashes = hashes[first:len(hashes):len(hashes)]
	return b, hashes
}
