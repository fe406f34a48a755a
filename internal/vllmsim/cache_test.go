// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "testing"

// prompted returns a request whose prompt is the given blocks of 16 tokens and a rest.
func prompted(id string, chain []uint64, rest, output int) *Request {
	return &Request{ID: id, PromptTokens: len(chain)*16 + rest, Blocks: chain, OutputTokens: output}
}

func TestPrefixCacheHits(t *testing.T) {
	chain := blocks(1, 40)
	answered := prompted("answered", chain[:20], 8, 25) // 353 tokens, of which 352 have KV
	answered.OutputBlocks = chain[20:22]
	for _, tc := range []struct {
		name   string
		cfg    Config
		before *Request
		r      *Request
		want   int
	}{
		{"empty cache", Config{}, prompted("x", blocks(2, 20), 0, 1), prompted("r", chain[:20], 0, 1), 0},
		{"head only", Config{}, prompted("x", chain[:10], 0, 1), prompted("r", chain[:20], 0, 1), 160},
		{"last block is computed", Config{}, prompted("x", chain[:20], 0, 1), prompted("r", chain[:20], 0, 1), 304},
		{"last token is computed", Config{}, prompted("x", chain[:20], 0, 1), prompted("r", chain[:20], 1, 1), 320},
		{"answer of the turn before", Config{}, answered, prompted("r", chain[:40], 0, 1), 352},
		{"blocks past the prompt", Config{}, prompted("x", chain[:20], 0, 1), &Request{PromptTokens: 100, Blocks: chain}, 96},
		{"fewer blocks than prompt", Config{}, prompted("x", chain[:20], 0, 1), &Request{PromptTokens: 400, Blocks: chain[:5]}, 80},
		{"cache off", Config{NoPrefixCache: true}, prompted("x", chain[:20], 0, 1), prompted("r", chain[:20], 0, 1), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t, tc.cfg)
			l.submit(tc.before)
			l.drain()
			l.submit(tc.r)
			if got := l.OutstandingPrefill(); got != tc.r.PromptTokens-tc.want {
				t.Errorf("OutstandingPrefill() = %d, want %d", got, tc.r.PromptTokens-tc.want)
			}
			res := l.step()
			if tc.r.CachedTokens != tc.want || res.PrefillTokens != tc.r.PromptTokens-tc.want {
				t.Errorf("%d tokens cached and %d computed, want %d and %d", tc.r.CachedTokens, res.PrefillTokens, tc.want, tc.r.PromptTokens-tc.want)
			}
			s := l.Stats()
			if s.PrefixHits != int64(tc.want) || s.CachedTokens != int64(tc.want) {
				t.Errorf("Stats() = %+v, want %d hits", s, tc.want)
			}
			if want := int64(tc.before.PromptTokens + tc.r.PromptTokens); s.PrefixQueries != want || s.PromptTokens != want {
				t.Errorf("Stats() = %+v, want %d queries and prompt tokens", s, want)
			}
		})
	}
}

func TestAnswerBlocksAreCachedAsTheyFill(t *testing.T) {
	chain := blocks(1, 4)
	l := newLab(t, Config{})
	r := prompted("r", chain[:2], 10, 40) // the first answer block holds 10 prompt and 6 answer tokens
	r.OutputBlocks = chain[2:]
	l.submit(r)
	for i, want := range []int{32, 32, 32, 32, 32, 32, 48} {
		l.step()
		if got := l.CachedPrefix(chain); got != want {
			t.Errorf("CachedPrefix() after %d tokens = %d, want %d", i+1, got, want)
		}
	}
}

func TestRunningRequestsShareBlocks(t *testing.T) {
	chain := blocks(1, 50)
	l := newLab(t, Config{KVTokens: 1600})
	l.submit(prompted("a", chain[:50], 1, 9), prompted("b", chain[:50], 1, 9))
	if res := l.step(); res.PrefillTokens != 802 {
		t.Errorf("PrefillTokens = %d, want 802: b shares what a computes in the same step", res.PrefillTokens)
	}
	if got := l.Stats().KVUsage; got != 0.52 {
		t.Errorf("KVUsage = %v, want 0.52: 50 shared blocks and one each", got)
	}
	l.Abort(l.running[0])
	if got := l.Stats().KVUsage; got != 0.51 {
		t.Errorf("KVUsage = %v after an abort, want 0.51: b holds the shared blocks", got)
	}
	l.drain()
	if got := l.Stats().KVUsage; got != 0 {
		t.Errorf("KVUsage = %v after the end, want 0", got)
	}
	if got := l.CachedPrefix(chain); got != 800 {
		t.Errorf("CachedPrefix() = %d after the end, want 800", got)
	}
}

func TestEvictionStory(t *testing.T) {
	l := newLab(t, Config{KVTokens: 100 * 16})
	old, hot, cold := blocks(1, 40), blocks(2, 40), blocks(3, 40)
	for _, step := range []struct {
		name           string
		r              *Request
		old, hot, cold int // cached blocks afterwards
	}{
		{"fills 40", prompted("r", old, 0, 1), 40, 0, 0},
		{"fills 80", prompted("r", hot, 0, 1), 40, 40, 0},
		{"takes 20 free ones and the tail of the oldest", prompted("r", cold, 0, 1), 20, 40, 40},
		{"renews the rest of the oldest, for one block", prompted("r", old[:20], 1, 1), 20, 39, 40},
		{"takes the tail of the one not used since", prompted("r", blocks(4, 10), 0, 1), 20, 30, 40},
		{"computes a tail anew", prompted("r", hot, 0, 1), 20, 40, 30},
	} {
		l.submit(step.r)
		l.drain()
		got := [3]int{l.CachedPrefix(old) / 16, l.CachedPrefix(hot) / 16, l.CachedPrefix(cold) / 16}
		if want := [3]int{step.old, step.hot, step.cold}; got != want {
			t.Errorf("%s: cached %v, want %v", step.name, got, want)
		}
	}
}

// TestRepeatedPromptKeepsItsTail repeats a prompt, whose last block is computed each time. The newest copy has to carry
// the name: the one before is next to be evicted.
func TestRepeatedPromptKeepsItsTail(t *testing.T) {
	l := newLab(t, Config{KVTokens: 20 * 16})
	chain := blocks(1, 10)
	for _, r := range []*Request{
		prompted("x", chain, 0, 1), prompted("fills 9", blocks(2, 9), 0, 1), prompted("x", chain, 0, 1),
		prompted("evicts 2", nil, 20, 1),
	} {
		l.submit(r)
		l.drain()
	}
	if got := l.CachedPrefix(chain); got != 160 {
		t.Errorf("CachedPrefix() = %d, want 160", got)
	}
}

func TestDropCacheKeepsWhatRuns(t *testing.T) {
	l := newLab(t, Config{})
	idle, held := blocks(1, 10), blocks(2, 10)
	l.submit(prompted("idle", idle, 0, 1))
	l.drain()
	l.submit(prompted("held", held, 0, 5))
	l.step()
	l.DropCache()
	if a, b := l.CachedPrefix(idle), l.CachedPrefix(held); a != 0 || b != 160 {
		t.Errorf("CachedPrefix() = %d idle, %d held, want 0, 160", a, b)
	}
	l.drain()
}

func TestAdmissionWaitsForKV(t *testing.T) {
	l := newLab(t, Config{KVTokens: 100 * 16})
	shared := blocks(1, 60)
	a := prompted("a", shared, 1, 3)                   // holds 61 blocks
	big := prompted("big", blocks(2, 50), 0, 1)        // does not fit beside a
	small := prompted("small", blocks(3, 1), 0, 1)     // would, but stands behind big
	sharing := prompted("sharing", shared[:50], 1, 50) // needs one block only
	l.submit(a, big, small)
	l.step()
	if s := l.Stats(); s.Running != 1 || s.Waiting != 2 {
		t.Fatalf("%d running, %d waiting, want 1, 2", s.Running, s.Waiting)
	}
	l.Abort(big)
	l.submit(sharing)
	if res := l.step(); ids(res.First) != "small sharing" {
		t.Errorf("second step shows [%s] first, want [small sharing]", ids(res.First))
	}
	l.drain()

	// cached blocks of the prompt itself are no room for the rest of it
	l = newLab(t, Config{KVTokens: 10 * 16})
	l.submit(prompted("x", shared[:6], 0, 1))
	l.drain()
	holder := prompted("holder", blocks(5, 2), 15, 40)
	l.submit(holder)
	l.step() // 3 blocks held, 6 cached, 1 empty
	l.submit(prompted("y", shared[:8], 0, 1))
	l.step()
	if got := l.Stats().Waiting; got != 1 {
		t.Errorf("%d waiting, want 1: 8 blocks do not fit beside 3 of 10", got)
	}
	l.drain()
}

func TestPreemption(t *testing.T) {
	l := newLab(t, Config{KVTokens: 10 * 16})
	a := prompted("a", blocks(1, 4), 15, 60)
	b := prompted("b", blocks(2, 4), 15, 60)
	l.submit(a, b)
	l.step() // both hold 5 of 10 blocks, with room for one token
	l.step()
	late := prompted("late", blocks(3, 1), 0, 1)
	l.submit(late)
	res := l.step()
	if res.Preempted != 1 || b.State != Waiting || a.State != Running {
		t.Fatalf("%d preempted, a %v, b %v, want the younger b to lose its blocks", res.Preempted, a.State, b.State)
	}
	if res.PrefillTokens != 0 {
		t.Errorf("%d prefill tokens in a step that preempts, want 0", res.PrefillTokens)
	}
	if got := ids(l.waiting); got != "b late" {
		t.Errorf("queue is [%s], want [b late]", got)
	}
	// b loses its partial block and one more to the growth of a
	if got := l.OutstandingPrefill(); got < 79-64 || got > 79+16 {
		t.Errorf("OutstandingPrefill() = %d, want what b and late need", got)
	}
	firsts := map[string]int{}
	for !l.Idle() {
		for _, r := range l.step().First {
			firsts[r.ID]++
		}
	}
	if a.Generated != 60 || b.Generated != 60 || b.Preemptions == 0 || late.State != Finished {
		t.Errorf("a %+v\nb %+v\nlate %+v", a, b, late)
	}
	if firsts["a"]+firsts["b"] != 0 || firsts["late"] != 1 {
		t.Errorf("first outputs %v, want late only: a preempted request has shown its own", firsts)
	}
	s := l.Stats()
	if s.Preemptions != int64(b.Preemptions) || s.PromptTokens != 79+79+16 || s.PrefillTokens <= s.PromptTokens {
		t.Errorf("Stats() = %+v, want %d preemptions, 174 prompt tokens and more prefill", s, b.Preemptions)
	}
}
