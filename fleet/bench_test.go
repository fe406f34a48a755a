// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/sessions"
)

func BenchmarkPlace(b *testing.B) {
	requests := []struct {
		name    string
		request func(n int) Request
	}{
		{"load", func(int) Request { return prompt(2000, nil) }},
		{"pinned", func(n int) Request { return turn(sessions.Key(n+1), 2000) }},
	}
	for _, n := range []int{8, 64, 512} {
		for _, r := range requests {
			bed := newBed(n)
			b.Run(fmt.Sprintf("%s/%d/serial", r.name, n), func(b *testing.B) {
				var p Placement
				req := r.request(0)
				bed.serve(req)
				b.ReportAllocs()
				for b.Loop() {
					bed.Place(&p, &req, bed.pool, bed.usable, &bed.options, start)
					p.End(CauseEnd, start)
				}
			})
			b.Run(fmt.Sprintf("%s/%d/parallel", r.name, n), func(b *testing.B) {
				var goroutines atomic.Int64
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					var p Placement
					pool := NewPool(bed.pool.Names())
					req := r.request(int(goroutines.Add(1)))
					for pb.Next() {
						bed.Place(&p, &req, pool, bed.usable, &bed.options, start)
						p.End(CauseEnd, start)
					}
				})
			})
		}
	}
}

func BenchmarkPlaceBlocks(b *testing.B) {
	const tokens = 500 * BlockTokens
	benchmarks := []struct {
		name    string
		prompts int
		end     Cause
	}{
		{"warm", 1, CauseEnd},
		{"cold and full", 1000, CauseEnd},
		{"taken back", 1, CauseRetried},
	}
	for _, bench := range benchmarks {
		b.Run(bench.name, func(b *testing.B) {
			bed := newBed(8)
			requests := make([]Request, bench.prompts)
			for i := range requests {
				requests[i] = prompt(tokens, text(0, 0, uint64(i+1), tokens))
				bed.serve(requests[i])
			}
			var p Placement
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				bed.Place(&p, &requests[i%len(requests)], bed.pool, bed.usable, &bed.options, start)
				p.End(bench.end, start)
			}
		})
	}
}

// informed returns a bed whose upstreams have reported everything, each of
// another speed.
func informed(n int) *bed {
	b := known(n)
	for range 50 {
		b.answer(told("m", 100_000), 33_000)
	}
	for at := range b.usable {
		b.prefilled(at, 16, 4000*float64(1+at%4))
	}
	for at, name := range b.pool.Names() {
		b.Observe(name, engines.Report{
			Running: engines.Known(float64(at % 3)), Waiting: engines.Known(0), KVUsage: engines.Known(float64(at%4) / 3),
			KVTokens: engines.Known(1_000_000), Computed: engines.Known(5), Generated: engines.Known(5),
			PrefixQueries: engines.Known(5), PrefixHits: engines.Known(5), Started: engines.Known(1),
		}, b.now, time.Hour)
		b.ObserveModels(name, models("m", fmt.Sprint(at)), b.now, time.Hour)
	}
	b.now = b.now.Add(speedsFor)
	return b
}

// BenchmarkPlaceInformed is 500 blocks over upstreams of which everything is
// known.
func BenchmarkPlaceInformed(b *testing.B) {
	bed := informed(8)
	req := told("m", 500*BlockTokens*bytesPerToken)
	req.Session, req.Blocks = 7, text(1, 500*BlockTokens, 0, 0)
	bed.serve(req)
	var p Placement
	b.ReportAllocs()
	for b.Loop() {
		bed.Place(&p, &req, bed.pool, bed.usable, &bed.options, bed.now)
		p.End(CauseEnd, bed.now)
	}
}

// BenchmarkPlaceAt is what another policy's choice costs here: 500 blocks over
// upstreams of which everything is known, and the choice is not this one's.
func BenchmarkPlaceAt(b *testing.B) {
	for _, n := range []int{8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bed := informed(n)
			req := told("m", 500*BlockTokens*bytesPerToken)
			req.Session, req.Blocks = 7, text(1, 500*BlockTokens, 0, 0)
			bed.serve(req)
			var p Placement
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				bed.PlaceAt(&p, i%n, &req, bed.pool, bed.usable, &bed.options, bed.now)
				p.End(CauseEnd, bed.now)
			}
		})
	}
}

func BenchmarkFirstOutput(b *testing.B) {
	bed := newBed(8)
	var p Placement
	req := turn(1, 2000)
	b.ReportAllocs()
	for b.Loop() {
		bed.Place(&p, &req, bed.pool, bed.usable, &bed.options, start)
		p.FirstOutput(start)
		p.End(CauseEnd, start)
	}
}

// How long the lock is held for who looks on.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{4, 64, 512} {
		bed := newBed(n)
		bed.List(bed.pool.Names())
		for i := range trailLength {
			bed.serve(turn(sessions.Key(i+1), 2000))
		}
		b.Run(fmt.Sprintf("view/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bed.View(bed.now)
			}
		})
		b.Run(fmt.Sprintf("outlines/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bed.Outlines(20)
			}
		})
	}
}
