// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Mooncake is a trace in the format of the Mooncake project: one request per
// line, each at its time, without sessions.
type Mooncake []mooncakeRequest

type mooncakeRequest struct {
	Timestamp int64    `json:"timestamp"` // ms since the beginning
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"` // one for 512 tokens and all before them
}

// mooncakeBlock is how many tokens one hash of the format stands for.
const mooncakeBlock = 512

func readMooncake(d *json.Decoder) (Trace, error) {
	list, err := readLines[mooncakeRequest](d)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b mooncakeRequest) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return Mooncake(list), nil
}

// Replay returns the requests with their distances scaled so that Rate of them
// come per second in the mean. After the last one they begin again with other
// texts.
func (m Mooncake) Replay(o Replay) Arrivals {
	if len(m) == 0 {
		return func() (time.Duration, *Script, bool) { return 0, nil, false }
	}
	span := max(float64(m[len(m)-1].Timestamp-m[0].Timestamp)/1000, 1)
	scale := float64(len(m)) / span / o.Rate
	n := 0
	return func() (time.Duration, *Script, bool) {
		q, round := m[n%len(m)], n/len(m)
		n++
		at := (float64(q.Timestamp-m[0].Timestamp)/1000 + float64(round)*span) * scale
		return seconds(at), Single(q.request(o, uint64(round))), true
	}
}

// request cuts the blocks of the format into smaller ones. What is left over
// at the end of the prompt is no whole block, and answers have no names.
func (q *mooncakeRequest) request(o Replay, round uint64) Request {
	n := min(q.Input/o.BlockTokens, len(q.HashIDs)*mooncakeBlock/o.BlockTokens)
	blocks := make([]uint64, n)
	for i := range blocks {
		token := (i + 1) * o.BlockTokens
		id := q.HashIDs[(token-1)/mooncakeBlock]
		blocks[i] = mix(useText, o.Seed, round, id, uint64(token%mooncakeBlock))
	}
	return Request{Tokens: q.Input, Blocks: blocks, Output: q.Output, Streamed: true}
}
