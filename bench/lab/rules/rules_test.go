// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/fleet"
)

// chain is a prompt of that many router blocks.
func chain(text uint64, blocks int) []uint64 {
	list := make([]uint64, blocks)
	for i := range list {
		list[i] = text<<32 | uint64(i)
	}
	return list
}

func ask(session, text uint64, blocks int) *Request {
	return &Request{Session: session, Tokens: blocks * fleet.BlockTokens, Blocks: chain(text, blocks)}
}

// bench is a rule on three engines.
type bench struct {
	Rule
	view View
}

func newBench(name string) *bench {
	options := fleet.DefaultOptions()
	return &bench{
		Rule: New(name, Config{
			Engines: 3, IndexTokens: 1_000_000, PrefillRate: 12_000, Options: options, Random: rand.New(rand.NewPCG(1, 1)),
		}),
		view: View{
			Usable:      []int{0, 1, 2},
			Outstanding: func(int) int { return 0 },
			Uncached:    func(int) int { return 1 },
		},
	}
}

// on places r and offers one engine alone.
func (b *bench) on(engine int, r *Request) {
	v := b.view
	v.Usable = []int{engine}
	b.Place(r, 0, v)
}

func (b *bench) place(r *Request) int { return b.Place(r, time.Second, b.view) }

// served places r on an engine and lets it end well.
func (b *bench) served(engine int, r *Request) {
	b.on(engine, r)
	b.FirstOutput(r, 0)
	b.End(r, 0, Done)
}

func TestDecisions(t *testing.T) {
	tests := []struct {
		name, rule string
		before     func(b *bench)
		request    *Request
		want       int
	}{
		{"least in flight", "least-conn", func(b *bench) {
			b.on(0, ask(0, 1, 400))
			b.on(2, ask(0, 2, 1))
		}, ask(0, 3, 1), 1},
		{"home", "sticky-tokens", func(b *bench) {
			b.served(2, ask(7, 1, 40))
			b.on(2, ask(0, 2, 100))
		}, ask(7, 1, 41), 2},
		{"home under pressure", "sticky-tokens", func(b *bench) {
			b.served(2, ask(7, 1, 40))
			for range 5 {
				b.on(2, ask(0, 2, 1))
				b.on(1, ask(0, 2, 1))
			}
		}, ask(7, 1, 41), 0},
		{"tokens in the sum", "sticky-tokens", func(b *bench) {
			b.on(0, ask(0, 1, 400))
			b.on(1, ask(0, 2, 1))
			b.on(1, ask(0, 3, 1))
			b.on(2, ask(0, 4, 200))
		}, ask(0, 5, 1), 1},
		{"share against little load", "share-0.3", func(b *bench) {
			b.served(1, ask(0, 1, 40))
			b.on(1, ask(0, 2, 1))
		}, ask(0, 1, 41), 1},
		{"share against load", "share-1.0", func(b *bench) {
			b.served(1, ask(0, 1, 30))
			b.on(1, ask(0, 2, 1))
			b.on(0, ask(0, 2, 1))
		}, ask(0, 1, 60), 2},
		{"warm", "affinity-4s", func(b *bench) {
			b.served(1, ask(0, 1, 40))
			b.on(1, ask(0, 2, 4*12_000/fleet.BlockTokens-1))
		}, ask(0, 1, 41), 1},
		{"warm behind a long queue", "affinity-4s", func(b *bench) {
			b.served(1, ask(0, 1, 40))
			b.on(1, ask(0, 2, 4*12_000/fleet.BlockTokens+1))
			b.on(0, ask(0, 3, 1))
		}, ask(0, 1, 41), 2},
		{"hardly warm", "affinity-18s", func(b *bench) {
			b.served(1, ask(0, 1, 40))
			b.on(1, ask(0, 2, 30))
			b.on(0, ask(0, 3, 30))
		}, ask(0, 1, 60), 1},
		{"warm and idle", LoadAware, func(b *bench) { b.served(1, ask(0, 1, 40)) }, ask(0, 1, 41), 1},
		{"failed before", LoadAware, func(b *bench) {
			b.served(1, ask(0, 1, 400))
			b.on(0, ask(0, 2, 40))
		}, &Request{Tokens: 401 * fleet.BlockTokens, Blocks: chain(1, 401), Tried: []int{1}}, 2},
		{"truth", "all-knowing", func(b *bench) {
			b.view.Outstanding = func(engine int) int { return []int{100, 5000, 0}[engine] }
			b.view.Uncached = func(engine int) int { return []int{100, 100, 300}[engine] }
		}, ask(0, 1, 1), 0},
	}
	for _, test := range tests {
		t.Run(test.rule+"/"+test.name, func(t *testing.T) {
			b := newBench(test.rule)
			test.before(b)
			if got := b.place(test.request); got != test.want {
				t.Errorf("Place() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestSessionHashStays(t *testing.T) {
	b := newBench("session-hash")
	used := make(map[int]bool)
	for session := uint64(1); session <= 30; session++ {
		first := b.place(ask(session, session, 1))
		used[first] = true
		if again := b.place(ask(session, session, 2)); again != first {
			t.Errorf("session %d is on %v and then on %v", session, first, again)
		}
	}
	if len(used) != 3 {
		t.Errorf("30 sessions are on %v engines, want 3", len(used))
	}
}

func TestRoundRobinAndRandomUseEveryEngine(t *testing.T) {
	for _, name := range []string{"random", "round-robin"} {
		b := newBench(name)
		counts := make([]int, 3)
		for range 300 {
			counts[b.place(ask(0, 1, 1))]++
		}
		for _, n := range counts {
			if n < 70 || name == "round-robin" && n != 100 {
				t.Errorf("%s: 300 requests went %v", name, counts)
			}
		}
	}
}

func TestParse(t *testing.T) {
	if names, err := Parse("all"); err != nil || len(names) != len(Names()) {
		t.Errorf("Parse(all) = %v, %v, want every name", names, err)
	}
	if names, err := Parse("random,best"); err == nil {
		t.Errorf("Parse(random,best) = %v, want an error", names)
	}
	for _, name := range Names() {
		if b := newBench(name); b.Rule == nil {
			t.Errorf("New(%s) = nil", name)
		}
	}
}

func TestParseShared(t *testing.T) {
	for list, want := range map[string]string{
		"everything":           "everything",
		"load,sessions,blocks": "everything",
		"sessions,load":        "load,sessions",
		"blocks":               "blocks",
		"nothing":              "nothing",
	} {
		if s, err := ParseShared(list); err != nil || s.String() != want {
			t.Errorf("ParseShared(%s) = %v, %v, want %s", list, s, err, want)
		}
	}
	if s, err := ParseShared("load,all"); err == nil {
		t.Errorf("ParseShared(load,all) = %v, want an error", s)
	}
}

// later are things that happen at times of their own.
type later struct {
	now   time.Duration
	steps []step
}

type step struct {
	at time.Duration
	do func()
}

func (l *later) at(at time.Duration, do func()) { l.steps = append(l.steps, step{at, do}) }

// until lets happen what happens until then, in order.
func (l *later) until(end time.Duration) {
	for {
		next := -1
		for i, s := range l.steps {
			if s.at <= end && (next < 0 || s.at < l.steps[next].at) {
				next = i
			}
		}
		if next < 0 {
			l.now = end
			return
		}
		s := l.steps[next]
		l.steps = slices.Delete(l.steps, next, next+1)
		l.now = s.at
		s.do()
	}
}

// What one router has placed another one knows after the delay of sharing, and not
// before, and only what they share.
func TestRoutersShareWithDelay(t *testing.T) {
	const placed = time.Second
	tests := []struct {
		shared string
		after  time.Duration
		// stays says that a session stays at a home that another router has chosen
		stays bool
	}{
		{"everything", 22 * time.Millisecond, true},
		{"sessions", 22 * time.Millisecond, true},
		{"everything", time.Microsecond, false},
		{"nothing", time.Second, false},
		{"load", time.Second, false},
	}
	for _, test := range tests {
		moved := 0
		for seed := range uint64(20) {
			shared, err := ParseShared(test.shared)
			if err != nil {
				t.Fatal(err)
			}
			l := new(later)
			r := New(LoadAware, Config{
				Engines: 8, Options: fleet.DefaultOptions(), Random: rand.New(rand.NewPCG(seed, 1)), Routers: 2, Shared: shared,
			}).(*routers)
			r.Schedule(l.at)
			l.until(placed)
			v := View{Usable: []int{0, 1, 2, 3, 4, 5, 6, 7}}
			first, second := ask(7, 1, 40), ask(7, 1, 40)
			first.router, second.router = r.list[0], r.list[1]
			home := first.router.Place(first, placed, v)
			r.touched(r.list[0], placed)
			l.until(placed + test.after)
			if second.router.Place(second, l.now, v) != home {
				moved++
			}
		}
		// a router that knows nothing takes the same engine once in eight times
		if test.stays && moved > 0 || !test.stays && moved < 10 {
			t.Errorf("%s after %v: %d of 20 sessions are elsewhere", test.shared, test.after, moved)
		}
	}
}
