// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/sessions"
)

// random takes steps of all kinds on a fleet, the same ones for the same seed.
type random struct {
	*bed
	*rand.Rand
	open []*Placement
}

func newRandom(seed uint64) *random {
	r := &random{bed: newBedAt(1+int(seed%5), seed), Rand: rand.New(rand.NewPCG(seed, 1))}
	r.options.Sessions.Max = 6
	r.options.Models = Models(r.IntN(3))
	if seed%3 == 0 {
		r.options.Queue = Queue{MaxRequests: 1 + r.IntN(4), MaxPrefillTokens: r.IntN(2) * 20_000, MaxWaiting: 9, MaxWait: time.Minute}
	}
	return r
}

// request returns any request, and the upstreams that may take it.
func (r *random) request() (Request, []int) {
	n := len(r.pool.Names())
	tokens := BlockTokens * (1 + r.IntN(60))
	req := prompt(tokens, text(uint64(r.IntN(4)), min(tokens, BlockTokens*r.IntN(60)), uint64(r.IntN(9)), tokens))
	if r.IntN(2) == 0 {
		req.Session, req.Head = sessions.Key(1+r.IntN(9)), uint64(r.IntN(3))
	}
	req.Shared = r.IntN(5) == 0
	req.Model = []string{"", "m", "k"}[r.IntN(3)]
	if r.IntN(6) == 0 {
		req.Blocks = nil
	}
	if r.IntN(8) == 0 {
		req.Response, req.Continues = ResponseKey(1+r.IntN(4)), true
	}
	if r.IntN(8) == 0 {
		req.Tried = []string{r.pool.Names()[r.IntN(n)]}
	}
	req.Watched, req.Silent = r.IntN(4) > 0, r.IntN(4) == 0
	usable := r.usable
	if r.IntN(6) == 0 {
		usable = []int{r.IntN(n)}
	}
	return req, usable
}

// step does anything but placing.
func (r *random) step() {
	at := r.IntN(len(r.pool.Names()))
	name := r.pool.Names()[at]
	switch r.IntN(10) {
	case 0:
		r.wait(time.Duration(r.IntN(90)) * time.Second)
	case 1:
		r.report(at, engines.Report{
			Running: engines.Known(float64(r.IntN(9))), KVUsage: engines.Known(r.Float64() + 0.1),
			Asleep: r.IntN(5) == 0, KVTokens: engines.Known(float64(BlockTokens * (20 + r.IntN(200)))),
		})
	case 2:
		r.ObserveModels(name, models([]string{"m", "k"}[r.IntN(2)]), r.now, time.Minute)
	case 3:
		r.drain(at, r.IntN(2) == 0)
	default:
		r.wait(time.Duration(r.IntN(1000)) * time.Millisecond)
		r.finish()
	}
}

// finish goes on with one of the open requests.
func (r *random) finish() {
	if len(r.open) == 0 {
		return
	}
	i := r.IntN(len(r.open))
	p := r.open[i]
	switch cause := Cause(r.IntN(5)); cause {
	case CauseFirstOutput:
		p.FirstOutput(r.now)
		p.Keeps(ResponseKey(1 + r.IntN(4)))
	default:
		p.End(cause, r.now)
		r.open = slices.Delete(r.open, i, i+1)
	}
}

// A decision that is only explained is the one that is made next, and changes
// nothing: a fleet to which it is explained what it will do does the same as one
// that is left alone.
func TestExplain(t *testing.T) {
	waits := 0
	for seed := range uint64(30) {
		asked, alone := newRandom(seed), newRandom(seed)
		for i := range 150 {
			req, usable := asked.request()
			alone.request()
			var explained []Decision
			for range i % 4 {
				explained = append(explained, asked.Explain(&req, asked.pool, usable, &asked.options, asked.now))
			}
			p, at := asked.place(req, usable...)
			q, want := alone.place(req, usable...)
			if at != want {
				t.Fatalf("seed %d, request %d: placed on %d after it was explained, want %d", seed, i, at, want)
			}
			for _, d := range explained {
				checkExplained(t, fmt.Sprintf("seed %d, request %d", seed, i), d, asked.bed, p, at)
			}
			if at >= 0 {
				asked.open, alone.open = append(asked.open, p), append(alone.open, q)
			} else {
				waits++
			}
			for range 2 {
				asked.step()
				alone.step()
			}
		}
	}
	if waits == 0 {
		t.Error("no request has had to wait, want some")
	}
}

// checkExplained compares what was explained with what was done.
func checkExplained(t *testing.T, what string, d Decision, b *bed, p *Placement, at int) {
	t.Helper()
	if d.Waits != (at == NoRoom) {
		t.Fatalf("%s: explained that it waits: %v, want it to be placed on %d", what, d.Waits, at)
	}
	if d.Waits {
		return
	}
	done := b.Placements(1)[0]
	if got, want := fmt.Sprintf("%+v", d), fmt.Sprintf("%+v", done); got != want {
		t.Fatalf("%s: explained\n%s\nbut made\n%s", what, got, want)
	}
	if d.Upstream != p.Upstream() || d.Reason != p.Reason() || d.UncachedTokens != p.UncachedTokens() {
		t.Fatalf("%s: explained %+v, want %s for %v", what, d, p.Upstream(), p.Reason())
	}
}

// Where the proxy offers nothing there is nothing to choose.
func TestExplainNothing(t *testing.T) {
	b := newBed(2)
	req := turn(1, 100)
	d := b.Explain(&req, b.pool, nil, &b.options, b.now)
	if d.Upstream != "" || d.Waits || len(d.Appraisals) != 2 || d.Appraisals[0].Standing != "unavailable" {
		t.Errorf("Explain() without upstreams = %+v, want none chosen", d)
	}
	if n := b.sessions.Len(); n != 0 {
		t.Errorf("%d sessions after Explain(), want none", n)
	}
}
