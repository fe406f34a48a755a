// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// worked is the fleet of the worked example in docs/placement.md: three upstreams
// that are alike, and the default options.
type worked struct {
	fleet   *Fleet
	pool    *Pool
	options Options
	now     time.Time
}

func newWorked() *worked {
	last := uint64(1 << 32)
	return &worked{
		fleet:   New(func() uint64 { last--; return last }),
		pool:    NewPool([]string{"a", "b", "c"}),
		options: DefaultOptions(),
		now:     start,
	}
}

// turn is a request of a session, whose prompt begins with all that the earlier
// ones had.
func (w *worked) turn(session uint64, tokens int) *Request {
	return &Request{Session: sessions.Key(session), Tokens: tokens, Blocks: text(session, tokens, 0, 0), Prefills: true}
}

// place places a request and shows what was compared.
func (w *worked) place(b *strings.Builder, req *Request) *Placement {
	p := new(Placement)
	w.fleet.Place(p, req, w.pool, []int{0, 1, 2}, &w.options, w.now)
	fmt.Fprintf(b, "%-9s%9s%9s%10s%9s%9s\n", "upstream", "load", "prefill", "uncached", "delay", "cost")
	for _, a := range w.fleet.Placements(1)[0].Appraisals {
		fmt.Fprintf(b, "%-9s%9.0f%9.0f%10.0f%9.0f%9.0f\n",
			a.Upstream, a.Terms.Load, a.Terms.Prefill, a.Terms.Uncached, a.Terms.Delay, a.Cost)
	}
	fmt.Fprintf(b, "-> %s, %s, reserves %d tokens\n", p.Upstream(), p.Reason(), p.UncachedTokens())
	return p
}

// finish ends a request well.
func (w *worked) finish(p *Placement) {
	p.FirstOutput(w.now)
	p.End(CauseEnd, w.now)
}

// The numbers of the worked example are those that the code comes to.
func TestWorkedExample(t *testing.T) {
	page, err := os.ReadFile("../docs/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorked()
	var first, second *Placement
	steps := []func(b *strings.Builder){
		func(b *strings.Builder) { first = w.place(b, w.turn(1, 40_000)) },
		func(b *strings.Builder) { second = w.place(b, w.turn(2, 12_000)) },
		func(b *strings.Builder) { w.finish(w.place(b, w.turn(3, 6000))) },
		func(b *strings.Builder) { w.finish(w.place(b, w.turn(4, 5000))) },
		func(b *strings.Builder) { w.place(b, w.turn(3, 50_000)) },
		func(b *strings.Builder) {
			first.FirstOutput(w.now)
			second.FirstOutput(w.now)
			w.place(b, w.turn(4, 6000))
		},
		w.price,
	}
	for i, step := range steps {
		var b strings.Builder
		step(&b)
		if !strings.Contains(string(page), "```text\n"+b.String()+"```\n") {
			t.Errorf("docs/placement.md does not show step %d of the worked example:\n%s", i+1, b.String())
		}
	}
}

// price shows what an uncached token costs where a block has to be evicted.
func (w *worked) price(b *strings.Builder) {
	fmt.Fprintf(b, "%-18s%6s\n", "last used", "price")
	u := picker.NewLedger(func() uint64 { return 0 }).NewUpstream("a")
	for _, age := range []time.Duration{0, time.Minute, 5 * time.Minute, 30 * time.Minute, picker.NeverEvicts} {
		c := []picker.Candidate{{Upstream: u, Uncached: 1, Age: age}}
		w.options.Score(c, w.now)
		when := strings.TrimSuffix(age.String(), "0s") + " ago"
		switch age {
		case 0:
			when = "just now"
		case picker.NeverEvicts:
			when = "room is left"
		}
		fmt.Fprintf(b, "%-18s%6.2f\n", when, c[0].Cost)
	}
}
