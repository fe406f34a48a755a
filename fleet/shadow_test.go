// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/sessions"
)

// placeAt is place where another policy has chosen the upstream.
func (b *bed) placeAt(at int, req Request, usable ...int) *Placement {
	if len(usable) == 0 {
		usable = b.usable
	}
	p := new(Placement)
	b.PlaceAt(p, at, &req, b.pool, usable, &b.options, b.now)
	return p
}

// withoutReasons is all of a fleet that does not tell who has chosen.
func (b *bed) withoutReasons() string {
	v := b.View(b.now)
	v.Shadow = ShadowTotals{}
	for i := range v.Upstreams {
		u := &v.Upstreams[i]
		u.Totals.Placements = [reasons]uint64{ReasonLoad: sum(u.Totals.Placements[:])}
	}
	decisions := b.Placements(1)
	for i := range decisions {
		decisions[i].Reason, decisions[i].Shadow = 0, Choice{}
	}
	return fmt.Sprintf("%+v %+v", v, decisions)
}

// Another policy that chooses as this one would leaves everything as if this one
// had chosen: reservations, releases, homes and the prefix index.
func TestPlaceAtTheSame(t *testing.T) {
	for seed := range uint64(30) {
		own, other := newRandom(seed), newRandom(seed)
		own.options.Queue, other.options.Queue = Queue{}, Queue{}
		placed := uint64(0)
		for i := range 150 {
			req, usable := own.request()
			other.request()
			p, at := own.place(req, usable...)
			q := other.placeAt(at, req, usable...)
			want := Choice{p.Upstream(), p.Reason(), p.UncachedTokens()}
			if got := q.Shadow(); got != want || q.Upstream() != p.Upstream() || q.Reason() != ReasonShadow {
				t.Fatalf("seed %d, request %d: on %s for %s instead of %+v, want %+v", seed, i, q.Upstream(), q.Reason(), got, want)
			}
			placed++
			if got, want := other.withoutReasons(), own.withoutReasons(); got != want {
				t.Fatalf("seed %d, request %d: the fleet is\n%s\nwant\n%s", seed, i, got, want)
			}
			own.open, other.open = append(own.open, p), append(other.open, q)
			for range 2 {
				own.step()
				other.step()
			}
		}
		if got := other.View(other.now).Shadow; got != (ShadowTotals{Same: placed}) {
			t.Fatalf("seed %d: totals = %+v, want %d the same and no differences", seed, got, placed)
		}
	}
}

// Whatever another policy chooses, what it holds is given back, and what would
// have been chosen is what is explained.
func TestPlaceAtAnywhere(t *testing.T) {
	for seed := range uint64(30) {
		r := newRandom(seed)
		r.options.Queue = Queue{}
		same, other := uint64(0), uint64(0)
		for i := range 150 {
			req, usable := r.request()
			at := r.IntN(len(r.pool.Names()))
			d := r.Explain(&req, r.pool, usable, &r.options, r.now)
			p := r.placeAt(at, req, usable...)
			if want := (Choice{d.Upstream, d.Reason, d.UncachedTokens}); p.Shadow() != want {
				t.Fatalf("seed %d, request %d: would have been %+v, want %+v as explained", seed, i, p.Shadow(), want)
			}
			made := r.Placements(1)[0]
			if p.Upstream() != r.pool.Names()[at] || made.Upstream != p.Upstream() || made.Shadow != p.Shadow() ||
				made.UncachedTokens != p.UncachedTokens() {
				t.Fatalf("seed %d, request %d: placed on %s and remembered as %+v", seed, i, p.Upstream(), made)
			}
			if p.session != nil && p.session.Home() != p.Upstream() {
				t.Fatalf("seed %d, request %d: home = %s, want %s", seed, i, p.session.Home(), p.Upstream())
			}
			if d.Upstream == p.Upstream() {
				same++
			} else {
				other++
			}
			r.open = append(r.open, p)
			for range 2 {
				r.step()
			}
		}
		for _, p := range r.open {
			p.End(CauseEnd, r.now)
		}
		v := r.View(r.now)
		atRest(t, v)
		if v.Shadow.Same != same || v.Shadow.Other != other {
			t.Errorf("seed %d: totals = %+v, want %d the same and %d other ones", seed, v.Shadow, same, other)
		}
	}
}

func TestShadowTotals(t *testing.T) {
	const a, z = 0, 1
	tests := []struct {
		name    string
		before  func(b *bed)
		request Request
		at      int
		usable  []int
		want    ShadowTotals
		reason  Reason
	}{
		{
			name:    "past a cached prompt",
			before:  func(b *bed) { b.serve(prompt(2048, text(1, 2048, 0, 0)), z) },
			request: prompt(3072, text(1, 2048, 1, 1024)), at: a,
			want: ShadowTotals{Other: 1, Prefill: Differences{Saved: 2048}, Cost: Differences{Saved: 2048}}, reason: ReasonPrefix,
		},
		{
			name:    "on the cached prompt",
			before:  func(b *bed) { b.serve(prompt(2048, text(1, 2048, 0, 0)), z) },
			request: prompt(3072, text(1, 2048, 1, 1024)), at: z,
			want: ShadowTotals{Same: 1}, reason: ReasonPrefix,
		},
		{
			// 40,000 tokens wait at the home, and one request; what the prompt did
			// not grow by is avoidable, and delays half a request that waits
			name:    "on a home under pressure",
			before:  func(b *bed) { b.serve(turn(7, 1000), a); b.loaded(a, 40_000) },
			request: turn(7, 1200), at: a,
			want:   ShadowTotals{Other: 1, Prefill: Differences{Lost: 1000}, Cost: Differences{Saved: 40_000 + 4096 - 1000 - 1000}},
			reason: ReasonMovedPressure,
		},
		{
			// the home costs 1,000 tokens and a request more, and stickiness keeps it
			name:    "away from a home that costs more",
			before:  func(b *bed) { b.serve(turn(7, 1000), a); b.loaded(a, 2000) },
			request: turn(7, 1200), at: z,
			want:   ShadowTotals{Other: 1, Prefill: Differences{Saved: 1000}, Cost: Differences{Lost: 2000 + 4096 - 1000 - 1000}},
			reason: ReasonPinned,
		},
		{
			name: "on a drained upstream",
			before: func(b *bed) {
				b.serve(prompt(2048, text(1, 2048, 0, 0)), z)
				b.serve(prompt(9, nil), a)
				b.drain(a, true)
			},
			request: prompt(3072, text(1, 2048, 1, 1024)), at: a,
			want: ShadowTotals{Other: 1, Prefill: Differences{Saved: 2048}}, reason: ReasonPrefix,
		},
		{
			name:    "on one that the proxy no longer offers",
			before:  func(b *bed) { b.wait(time.Hour) },
			request: prompt(1000, nil), at: a, usable: []int{z},
			want: ShadowTotals{Other: 1}, reason: ReasonLoad,
		},
		{
			name:    "without a prompt",
			before:  func(*bed) {},
			request: Request{Tokens: 1000}, at: a,
			want: ShadowTotals{},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			test.before(b)
			p := b.placeAt(test.at, test.request, test.usable...)
			if got := b.View(b.now).Shadow; got != test.want {
				t.Errorf("totals = %+v, want %+v", got, test.want)
			}
			if test.want == (ShadowTotals{}) {
				if p.Shadow() != (Choice{}) || b.view(t, test.at).Requests != 1 {
					t.Errorf("a request without a prompt was compared: %+v, and %+v", p.Shadow(), b.view(t, test.at))
				}
				return
			}
			if got := p.Shadow().Reason; got != test.reason {
				t.Errorf("would have been placed for %s, want %s", got, test.reason)
			}
			if got := b.view(t, test.at).Totals.Placements[ReasonShadow]; got != 1 {
				t.Errorf("placements for shadow = %d, want 1", got)
			}
		})
	}
}

// Where the proxy offers nothing any more there is nothing to compare with.
func TestPlaceAtNothing(t *testing.T) {
	b := newBed(2)
	req := turn(7, 1000)
	var p Placement
	b.PlaceAt(&p, 1, &req, b.pool, nil, &b.options, b.now)
	if p.Upstream() != b.pool.Names()[1] || p.Shadow() != (Choice{}) || p.UncachedTokens() != 1000 {
		t.Errorf("placed on %s with %d tokens instead of %+v, want 1000 and nothing to compare with", p.Upstream(), p.UncachedTokens(), p.Shadow())
	}
	p.End(CauseEnd, b.now)
	v := b.View(b.now)
	atRest(t, v)
	if v.Shadow != (ShadowTotals{}) {
		t.Errorf("totals = %+v, want none", v.Shadow)
	}
}

// What another policy has placed is where this one finds it when it takes over.
func TestTakeOver(t *testing.T) {
	b := newBed(3)
	for i := range 30 {
		p := b.placeAt(i%3, story(sessions.Key(1+i), 2048))
		p.FirstOutput(b.now)
		p.End(CauseEnd, b.now)
	}
	for i := range 30 {
		p, at := b.place(story(sessions.Key(1+i), 2048))
		if at != i%3 || p.Reason() != ReasonPinned {
			t.Errorf("session %d goes to %d for %s, want %d for pinned", i, at, p.Reason(), i%3)
		}
		if got := p.UncachedTokens(); got != 0 {
			t.Errorf("session %d: %d uncached tokens, want none", i, got)
		}
		p.End(CauseEnd, b.now)
	}
}

func TestPlaceAtAllocatesNothing(t *testing.T) {
	b := newBed(8)
	req := prompt(2048, text(1, 2048, 0, 0))
	b.serve(req)
	var p Placement
	at := 0
	if n := testing.AllocsPerRun(100, func() {
		b.PlaceAt(&p, at%8, &req, b.pool, b.usable, &b.options, b.now)
		p.End(CauseEnd, b.now)
		at++
	}); n != 0 {
		t.Errorf("PlaceAt() allocates %v times, want none", n)
	}
}
