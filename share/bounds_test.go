// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/sessions"
)

// What a router tells at most is read, and what is more is not.
func TestDecodeIsBounded(t *testing.T) {
	const name = "a:1"
	loads := func(n int) (list []fleet.Load) {
		for i := range n {
			list = append(list, fleet.Load{Upstream: fmt.Sprint(i)})
		}
		return list
	}
	homes := func(n int) []fleet.Home { return make([]fleet.Home, n) }
	prompts := func(n, hashes int) []fleet.Blocks {
		list := make([]fleet.Blocks, n)
		for i := range list {
			list[i].Upstream = name
		}
		list[0].Hashes = make([]uint64, hashes/2)
		list[n-1].Hashes = make([]uint64, hashes-hashes/2)
		return list
	}
	responses := func(n int) []fleet.StoredResponse { return make([]fleet.StoredResponse, n) }
	named := func(n int) []fleet.Load { return []fleet.Load{{Upstream: strings.Repeat("x", n)}} }
	version := func(n uint64) []fleet.Home {
		return []fleet.Home{{Session: 7, Upstream: name, Version: sessions.Version{Number: n}}}
	}
	for what, test := range map[string]struct{ most, more fleet.News }{
		"serial":    {fleet.News{Serial: lastSerial}, fleet.News{Serial: lastSerial + 1}},
		"assigned":  {fleet.News{Loads: []fleet.Load{{Assigned: lastSerial}}}, fleet.News{Loads: []fleet.Load{{Assigned: lastSerial + 1}}}},
		"version":   {fleet.News{Homes: version(lastVersion)}, fleet.News{Homes: version(lastVersion + 1)}},
		"name":      {fleet.News{Loads: named(longestName)}, fleet.News{Loads: named(longestName + 1)}},
		"upstreams": {fleet.News{Loads: loads(mostUpstreams)}, fleet.News{Loads: loads(mostUpstreams + 1)}},
		"homes":     {fleet.News{Homes: homes(fleet.HomesAtOnce)}, fleet.News{Homes: homes(fleet.HomesAtOnce + 1)}},
		"prompts":   {fleet.News{Blocks: prompts(fleet.PromptsAtOnce, 2)}, fleet.News{Blocks: prompts(fleet.PromptsAtOnce+1, 2)}},
		"hashes":    {fleet.News{Blocks: prompts(2, fleet.HashesAtOnce)}, fleet.News{Blocks: prompts(2, fleet.HashesAtOnce+1)}},
		"responses": {fleet.News{Responses: responses(fleet.ResponsesAtOnce)}, fleet.News{Responses: responses(fleet.ResponsesAtOnce + 1)}},
	} {
		if _, err := Decode(Encode(nil, 1, &test.most), new(fleet.News)); err != nil {
			t.Errorf("%s: what is told at most is not read: %v", what, err)
		}
		if _, err := Decode(Encode(nil, 1, &test.more), new(fleet.News)); err == nil {
			t.Errorf("%s: more than that is read", what)
		}
	}
}
