// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math"
	"testing"

	"github.com/caddy-llm/loadaware/engines"
)

// told is a request of so much text, whose usage tells something.
func told(model string, textBytes int) Request {
	return Request{Model: model, TextBytes: textBytes, Tokens: textBytes / bytesPerToken, Learns: true, Prefills: true}
}

// answer places req and lets its response report so many prompt tokens.
func (b *bed) answer(req Request, promptTokens int) {
	p, _ := b.place(req)
	p.FirstOutput(b.now)
	p.Usage(engines.Usage{PromptTokens: promptTokens}, b.now)
	p.End(CauseEnd, b.now)
}

func (b *bed) promptTokens(req Request) int {
	p, _ := b.place(req)
	defer p.End(CauseCanceled, b.now)
	return p.PromptTokens()
}

func near(got, want int) bool { return math.Abs(float64(got-want)) <= 0.01*float64(want) }

func TestLearnsTokens(t *testing.T) {
	const size = 120_000
	req := told("m", size)
	with := func(change func(*Request)) Request { r := req; change(&r); return r }
	tests := []struct {
		name string
		from Request // what is answered, at three bytes to the token
		ask  Request
		want int
	}{
		{"three bytes", req, req, size / 3},
		{"half of another prompt is no text", req, with(func(r *Request) { r.Tokens = size / 2 }), size/4 + size/3},
		{"a prompt without text", req, with(func(r *Request) { r.TextBytes = 0 }), size / 4},
		{"no tokens at all", req, with(func(r *Request) { r.Tokens = 0 }), 0},
		{"more text than tokens were made from", req, with(func(r *Request) { r.Tokens = 3000 }), 4000},
		{"up to a limit", req, with(func(r *Request) { r.MaxTokens = 35_000 }), 35_000},
		{"over a limit already", req, with(func(r *Request) { r.MaxTokens = 10 }), size / 4},
		{"under a limit", req, with(func(r *Request) { r.MaxTokens = 100_000 }), size / 3},
		{"another model", req, told("other", size), size / 4},
		{"media, or not read to its end", with(func(r *Request) { r.Learns = false }), req, size / 4},
		{"too short to tell", told("m", 2000), req, size / 4},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			for range 500 {
				b.answer(test.from, test.from.TextBytes/3)
			}
			if got := b.promptTokens(test.ask); !near(got, test.want) {
				t.Errorf("PromptTokens() = %v, want %v", got, test.want)
			}
		})
	}
}

// Fewer tokens than estimated correct it as well, limit or not.
func TestLearnsFewerTokens(t *testing.T) {
	b := newBed(1)
	for range 500 {
		b.answer(told("m", 120_000), 20_000)
	}
	req := told("m", 120_000)
	for _, req.MaxTokens = range []int{0, 10, 30_000, 100_000} {
		if got := b.promptTokens(req); !near(got, 20_000) {
			t.Errorf("PromptTokens() with at most %v = %v, want 20,000", req.MaxTokens, got)
		}
	}
}

// Who has failed or ended has nothing to tell any more.
func TestUsageOutOfTurn(t *testing.T) {
	usage := engines.Usage{PromptTokens: 60_000, CachedTokens: engines.Known(30_000)}
	tests := []struct {
		name   string
		before func(b *bed, p *Placement)
	}{
		{"of nothing", func(_ *bed, p *Placement) { *p = Placement{} }},
		{"after a failure", func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now) }},
		{"after the end", func(b *bed, p *Placement) { p.End(CauseEnd, b.now) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(1)
			p, _ := b.place(told("m", 120_000))
			test.before(b, p)
			p.Usage(usage, b.now)
			if u := b.view(t, 0); u.Totals.CachedReported != 0 || u.Totals.PromptReported != 0 || len(b.estimates) != 0 {
				t.Errorf("%v cached tokens and %v models were learned, want none", u.Totals.CachedReported, len(b.estimates))
			}
		})
	}
}

func TestEstimatesAreBounded(t *testing.T) {
	b := newBed(1)
	for i := range 3 * maxModels {
		b.answer(told(fmt.Sprint(i), 120_000), 60_000)
	}
	if len(b.estimates) != maxModels {
		t.Errorf("%v estimates are kept, want %v", len(b.estimates), maxModels)
	}
	if got := b.promptTokens(told("0", 120_000)); got <= 30_000 {
		t.Errorf("PromptTokens() of the first model = %v, want more than 30,000", got)
	}
	if got := b.promptTokens(told(fmt.Sprint(maxModels), 120_000)); got != 30_000 {
		t.Errorf("PromptTokens() of a model too many = %v, want 30,000", got)
	}
}

// What a session or the index knows is in estimated tokens; what a request adds
// is in the model's.
func TestScaledUncached(t *testing.T) {
	const size = 102_400
	b := newBed(1)
	for range 1000 {
		b.answer(told("m", 120_000), 60_000)
	}
	grow := func(req Request, by int) Request {
		req.TextBytes += by
		req.Tokens += by / bytesPerToken
		return req
	}
	bare := told("m", size)
	bare.Session = 7
	read := told("m", size)
	read.Blocks = text(1, size/bytesPerToken, 0, 0)
	for name, req := range map[string]Request{"a session": bare, "a prompt in the index": read} {
		b.serve(req)
		p, _ := b.place(grow(req, 8000))
		if !near(p.UncachedTokens(), 4000) || !near(p.PromptTokens(), (size+8000)/2) {
			t.Errorf("%s: uncached, prompt tokens = %v, %v, want 4,000 and %v", name, p.UncachedTokens(), p.PromptTokens(), (size+8000)/2)
		}
		if got := b.view(t, 0).Prefill; got != p.UncachedTokens() {
			t.Errorf("%s: %v tokens are reserved, want %v", name, got, p.UncachedTokens())
		}
		p.End(CauseEnd, b.now)
	}
}

// An index holds as many blocks as the cache holds of the model's tokens, and
// one that is nearly right stays as it is.
func TestCapacityByBytesPerToken(t *testing.T) {
	b := newBed(1)
	b.options.KVTokens = 2_560_000
	req := told("m", 120_000)
	req.Blocks = text(1, 30_000, 0, 0)
	last, resized := 10_000, 0
	for range 1000 {
		b.answer(req, 60_000)
		if got := b.view(t, 0).PrefixCapacity; got != last {
			last = got
			resized++
		}
	}
	if math.Abs(float64(last)-5000) > 5000/resizeFrom {
		t.Errorf("PrefixCapacity at two bytes to the token = %v, want about 5,000", last)
	}
	if resized > 12 {
		t.Errorf("the index was resized %v times on the way, want a dozen at most", resized)
	}
}

// What responses say of the cache is counted, and is all there is to measure
// belief by where the engine does not report.
func TestUsageOfTheCache(t *testing.T) {
	const tokens = 500 * BlockTokens
	b := newBed(1)
	blocks := text(1, tokens, 0, 0)
	b.serve(prompt(tokens, blocks))
	for _, cached := range []float64{tokens / 4, tokens + 5000} {
		p, _ := b.place(prompt(tokens, blocks))
		p.Usage(engines.Usage{PromptTokens: tokens + 5000, CachedTokens: engines.Known(cached)}, b.now)
		p.End(CauseEnd, b.now)
	}
	u := b.view(t, 0)
	if u.Totals.CachedPredicted != 2*tokens || u.Totals.CachedReported != tokens/4+tokens+5000 {
		t.Errorf("cached tokens predicted, reported = %v, %v", u.Totals.CachedPredicted, u.Totals.CachedReported)
	}
	if u.Totals.PromptPredicted != 2*tokens || u.Totals.PromptReported != 2*(tokens+5000) {
		t.Errorf("prompt tokens predicted, reported = %v, %v, want %v, %v",
			u.Totals.PromptPredicted, u.Totals.PromptReported, 2*tokens, 2*(tokens+5000))
	}
	// what an earlier response adds to a prompt was not estimated
	going := prompt(tokens, nil)
	going.Continues = true
	p, _ := b.place(going)
	p.Usage(engines.Usage{PromptTokens: 9 * tokens}, b.now)
	p.End(CauseEnd, b.now)
	if got := b.view(t, 0).Totals.PromptReported; got != u.Totals.PromptReported {
		t.Errorf("prompt tokens reported = %v after a prompt that goes on with a response, want still %v", got, u.Totals.PromptReported)
	}
	// more than predicted is no proof of another prediction
	if u.Belief != 0.625 {
		t.Errorf("Belief = %v, want 0.625", u.Belief)
	}
}
