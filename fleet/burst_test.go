// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/sessions"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bed is a fleet with a pool of n upstreams, all of them usable, at a time
// that the test moves.
type bed struct {
	*Fleet
	pool    *Pool
	usable  []int
	options Options
	now     time.Time
}

func newBed(n int) *bed { return newBedAt(n, 1) }

func newBedAt(n int, seed uint64) *bed {
	names, usable := make([]string, n), make([]int, n)
	for i := range names {
		names[i], usable[i] = fmt.Sprintf("vllm-%d:8000", i), i
	}
	return &bed{
		Fleet:   New(rand.New(rand.NewPCG(seed, seed)).Uint64),
		pool:    NewPool(names),
		usable:  usable,
		options: DefaultOptions(),
		now:     start,
	}
}

// place places req on one of the usable upstreams, all of them if none is
// given.
func (b *bed) place(req Request, usable ...int) (*Placement, int) {
	if len(usable) == 0 {
		usable = b.usable
	}
	p := new(Placement)
	return p, b.Place(p, &req, b.pool, usable, &b.options, b.now)
}

// serve places req and lets it succeed at once.
func (b *bed) serve(req Request, usable ...int) int {
	p, at := b.place(req, usable...)
	p.FirstOutput(b.now)
	p.End(CauseEnd, b.now)
	return at
}

func (b *bed) view(t *testing.T, at int) UpstreamView {
	t.Helper()
	for _, u := range b.View(b.now).Upstreams {
		if u.Name == b.pool.Names()[at] {
			return u
		}
	}
	t.Fatalf("View() shows no %s", b.pool.Names()[at])
	return UpstreamView{}
}

// text returns the blocks of a prompt that begins with some tokens of a shared
// text and goes on with some of its own.
func text(shared uint64, sharedTokens int, own uint64, ownTokens int) []uint64 {
	blocks := make([]uint64, 0, (sharedTokens+ownTokens)/BlockTokens)
	h := mix(shared)
	for range sharedTokens / BlockTokens {
		h = mix(h)
		blocks = append(blocks, h)
	}
	h = mix(h ^ mix(own))
	for len(blocks) < cap(blocks) {
		h = mix(h)
		blocks = append(blocks, h)
	}
	return blocks
}

func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// prompt is a request without a session.
func prompt(tokens int, blocks []uint64) Request {
	return Request{Tokens: tokens, Blocks: blocks, Prefills: true}
}

// turn is a request of a session whose prompt was not read.
func turn(session sessions.Key, tokens int) Request {
	return Request{Session: session, Tokens: tokens, Prefills: true}
}

func sorted(counts []int) []int {
	counts = slices.Clone(counts)
	slices.Sort(counts)
	return counts
}

func TestBurstOfEqualColdRequests(t *testing.T) {
	tests := []struct {
		name   string
		blocks func(i int) []uint64
		// warm is what one upstream has served before
		warm []uint64
	}{
		{name: "without blocks", blocks: func(int) []uint64 { return nil }},
		{name: "different prompts", blocks: func(i int) []uint64 { return text(0, 0, uint64(i+1), 32_000) }},
		{name: "with the first 512 tokens in common", blocks: func(i int) []uint64 { return text(1, 512, uint64(i+1), 31_488) }},
		{
			name:   "with the first 512 tokens on one upstream",
			blocks: func(i int) []uint64 { return text(1, 512, uint64(i+1), 31_488) },
			warm:   text(1, 512, 0, 0),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(6) {
				for warmAt := range 3 {
					b := newBedAt(3, seed)
					if test.warm != nil {
						b.serve(prompt(512, test.warm), warmAt)
					}
					counts := make([]int, 3)
					for i := range 128 {
						_, at := b.place(prompt(32_000, test.blocks(i)))
						counts[at]++
					}
					if got, want := sorted(counts), []int{42, 43, 43}; !slices.Equal(got, want) {
						t.Errorf("seed %d, warm %d: 128 requests went %v, want %v in any order", seed, warmAt, counts, want)
					}
				}
			}
		})
	}
}

func TestBurstOfIdenticalSmallRequests(t *testing.T) {
	for _, tokens := range []int{0, 1, 20, 300, 1000} {
		for _, n := range []int{2, 3, 5} {
			b := newBed(n)
			counts := make([]int, n)
			for range 64 {
				_, at := b.place(prompt(tokens, text(1, tokens, 0, 0)))
				counts[at]++
			}
			if s := sorted(counts); s[n-1]-s[0] > 1 {
				t.Errorf("64 requests of %d tokens went %v, want them within 1", tokens, counts)
			}
		}
	}
}

// Slow sequential traffic finds no load at any pick. It must not all land on
// one upstream.
func TestSequentialTrafficSpreads(t *testing.T) {
	tests := []struct {
		name    string
		request func(i int) Request
	}{
		{"new sessions", func(i int) Request { return turn(sessions.Key(i+1), 2000) }},
		{"new sessions with different prompts", func(i int) Request {
			return Request{Session: sessions.Key(i + 1), Tokens: 2000, Blocks: text(0, 0, uint64(i+1), 2000), Prefills: true}
		}},
		{"no sessions", func(int) Request { return prompt(2000, nil) }},
		{"no sessions and different prompts", func(i int) Request { return prompt(2000, text(0, 0, uint64(i+1), 2000)) }},
		{"no prefill", func(int) Request { return Request{Tokens: 2000} }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(4)
			counts := make([]int, 4)
			for i := range 200 {
				counts[b.serve(test.request(i))]++
				b.now = b.now.Add(3 * time.Second)
			}
			for at, n := range counts {
				if n < 30 {
					t.Errorf("%v of 200 requests went to %d of %v, want at least 30", n, at, counts)
				}
			}
		})
	}
}

// A burst over one document that one upstream holds must not queue there: the
// document is read again elsewhere before that takes longer than waiting.
func TestBurstOverSharedPrefix(t *testing.T) {
	owns := []struct {
		name   string
		tokens func(*rand.Rand) int
	}{
		{"500 own", func(*rand.Rand) int { return 500 }},
		{"2,000 own", func(*rand.Rand) int { return 2000 }},
		{"8,000 own", func(*rand.Rand) int { return 8000 }},
		{"500 to 8,000 own", func(r *rand.Rand) int { return 500 + r.IntN(7501) }},
	}
	for _, shared := range []int{512, 8_000, 16_000, 40_000} {
		for _, own := range owns {
			t.Run(fmt.Sprintf("%d shared, %s", shared, own.name), func(t *testing.T) {
				least, most := 128, 0
				var widest []int
				for seed := range uint64(6) {
					r := rand.New(rand.NewPCG(seed, 9))
					b := newBedAt(3, seed)
					b.serve(prompt(shared, text(1, shared, 0, 0)), int(seed)%3)
					counts := make([]int, 3)
					for i := range 128 {
						n := own.tokens(r)
						_, at := b.place(prompt(shared+n, text(1, shared, uint64(i+1), n)))
						counts[at]++
					}
					s := sorted(counts)
					if widest == nil || s[2]-s[0] > widest[2]-widest[0] {
						widest = s
					}
					least, most = min(least, s[0]), max(most, s[2])
				}
				t.Logf("widest spread %v, least %d, most %d", widest, least, most)
				if least < 38 || most > 50 {
					t.Errorf("128 requests went %v, want each between 38 and 50", widest)
				}
			})
		}
	}
}

// A cold prompt of 140,000 tokens keeps an engine busy for ten seconds; eight
// warm turns beside it do not.
func TestLongPrefillLosesToWarmRequests(t *testing.T) {
	b := newBed(2)
	cold, _ := b.place(prompt(140_000, nil), 0)
	for key := range sessions.Key(8) {
		b.serve(turn(key+1, 60_000), 1)
		b.place(turn(key+1, 60_200), 1)
	}
	for range 3 {
		if _, at := b.place(prompt(4000, nil)); at != 1 {
			t.Errorf("Place() = %v in the middle of a prefill of 140,000 tokens, want 1", at)
		}
	}
	cold.FirstOutput(b.now)
	if _, at := b.place(prompt(4000, nil)); at != 0 {
		t.Errorf("Place() = %v after that prefill, want 0", at)
	}
}
