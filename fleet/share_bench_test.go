// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/caddy-llm/loadaware/sessions"
)

// BenchmarkShare is what sharing adds: to a placement with 500 blocks, all cached,
// and what one message of 20 ms costs the router that tells it and one that hears
// it, with 20 turns of sessions that have grown by four blocks each.
func BenchmarkShare(b *testing.B) {
	b.Run("place", func(b *testing.B) {
		bed := shared(1, 8)[0]
		req := story(7, 500*BlockTokens)
		bed.serve(req)
		var p Placement
		var n News
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			bed.Place(&p, &req, bed.pool, bed.usable, &bed.options, bed.now)
			p.End(CauseEnd, bed.now)
			if i%1000 == 999 {
				bed.News(&n, bed.now)
			}
		}
	})
	const turns = 20
	for _, hears := range []bool{false, true} {
		name := "news"
		if hears {
			name = "hear"
		}
		b.Run(name, func(b *testing.B) {
			beds := shared(2, 8)
			var n News
			sizes := [turns]int{}
			for b.Loop() {
				b.StopTimer()
				for i := range sizes {
					// begun anew before it is longer than any prompt
					sizes[i] = (sizes[i]+4)%500 + 4
					beds[0].serve(story(sessions.Key(i+1), sizes[i]*BlockTokens))
				}
				if !hears {
					b.StartTimer()
				}
				beds[0].News(&n, start)
				if hears {
					b.StartTimer()
					beds[1].Hear(1, &n, start)
				}
			}
		})
	}
}
