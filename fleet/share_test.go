// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// shared returns n routers, each with a fleet of the same upstreams that is
// shared.
func shared(n, upstreams int) []*bed {
	beds := make([]*bed, n)
	for i := range beds {
		beds[i] = newBedAt(upstreams, uint64(i+1))
		beds[i].Share(true)
	}
	return beds
}

// told copies the news of a router, as a message does.
func (b *bed) told() *News {
	n := new(News)
	b.News(n, b.now)
	return n
}

// tellAll lets every router hear what the others have to tell, until nobody has
// anything new, and moves the time on.
func tellAll(t *testing.T, beds []*bed) {
	t.Helper()
	for round := 0; ; round++ {
		if round == 10 {
			t.Fatal("the routers do not come to an end with their news")
		}
		changed := false
		for i, b := range beds {
			b.now = beds[0].now
			n := new(News)
			changed = b.News(n, b.now) || changed
			for j, other := range beds {
				if j != i {
					other.Hear(uint64(i+1), n, b.now)
				}
			}
		}
		for _, b := range beds {
			b.now = b.now.Add(20 * time.Millisecond)
		}
		if !changed {
			return
		}
	}
}

// peersOf are what the other routers hold, by upstream.
func (b *bed) peersOf() (loads []picker.Load) {
	for _, name := range b.pool.Names() {
		l := picker.Load{}
		if u := b.upstreams[name]; u != nil {
			l = u.counters.Peers()
		}
		loads = append(loads, l)
	}
	return loads
}

func TestNothingIsGatheredAlone(t *testing.T) {
	b := newBed(2)
	b.serve(story(7, 5*BlockTokens))
	n := &News{Homes: make([]Home, 3)}
	if b.News(n, b.now) || len(n.Homes) > 0 || len(b.gathered.homes)+len(b.gathered.prompts) > 0 {
		t.Errorf("News() = %+v of a fleet that is not shared", n)
	}
	b.Hear(9, &News{Serial: 1, Loads: []Load{{Upstream: b.pool.Names()[0], Load: picker.Load{Requests: 3}}}}, b.now)
	if b.peersOf()[0].Requests != 0 {
		t.Error("a fleet that is not shared hears of others")
	}
}

// What others hold counts in the next placement, and until they say otherwise.
func TestPeersLoadCounts(t *testing.T) {
	beds := shared(2, 2)
	a, b := beds[0], beds[1]
	p, _ := a.place(prompt(50_000, nil), 0)
	q, _ := a.place(Request{Tokens: 10}, 0)
	if !a.News(new(News), a.now) || a.News(new(News), a.now) {
		t.Error("News() does not report what is new, or reports it twice")
	}
	tellAll(t, beds)
	if got, want := b.peersOf()[0], (picker.Load{Requests: 2, Prompts: 1, Waiting: 1, Prefill: 50_000}); got != want {
		t.Errorf("the others hold %+v, want %+v", got, want)
	}
	for range 3 {
		if _, at := b.place(prompt(1000, nil)); at != 1 {
			t.Errorf("placed on %d, which another router fills, want 1", at)
		}
	}
	if v := b.view(t, 0); v.Peers.Requests != 2 || v.Requests != 0 || b.View(b.now).Peers != 1 {
		t.Errorf("View() = %+v, want 2 requests of a peer", v)
	}
	p.FirstOutput(a.now)
	tellAll(t, beds)
	if got, want := b.peersOf()[0], (picker.Load{Requests: 2, Prompts: 1}); got != want {
		t.Errorf("the others hold %+v after the first output, want %+v", got, want)
	}
	p.End(CauseEnd, a.now)
	q.End(CauseEnd, a.now)
	tellAll(t, beds)
	if got := b.peersOf()[0]; got != (picker.Load{}) {
		t.Errorf("the others hold %+v at the end, want nothing", got)
	}
}

// A router that is not heard for three seconds holds nothing, and what it said
// before does not bring it back.
func TestLostPeerHoldsNothing(t *testing.T) {
	beds := shared(3, 2)
	a, b := beds[0], beds[1]
	a.place(prompt(50_000, nil), 0)
	beds[2].place(prompt(20_000, nil), 0)
	begin := a.now
	late := a.told()
	b.Hear(1, a.told(), begin)
	for _, step := range []struct {
		after   time.Duration
		prefill int
		alive   int
	}{
		{0, 70_000, 2},
		{time.Second, 70_000, 2},
		{PeerLifetime - 1, 70_000, 2},
		{PeerLifetime, 20_000, 1},
		{PeerLifetime + 2*time.Second, 20_000, 1},
	} {
		b.now = begin.Add(step.after)
		b.Hear(3, beds[2].told(), b.now)
		b.Hear(1, late, b.now)
		b.place(Request{}, 1)
		if got := b.peersOf()[0].Prefill; got != step.prefill {
			t.Errorf("after %v the others hold %d tokens, want %d", step.after, got, step.prefill)
		}
		if v := b.View(b.now); v.Peers != step.alive {
			t.Errorf("after %v there are %d peers, want %d", step.after, v.Peers, step.alive)
		}
	}
	b.now = b.now.Add(PeerLifetime)
	b.place(Request{}, 1)
	if got := b.peersOf()[0]; got != (picker.Load{}) {
		t.Errorf("the others hold %+v when nobody is left, want nothing", got)
	}
	b.Hear(1, a.told(), b.now)
	if got := b.peersOf()[0].Prefill; got != 50_000 {
		t.Errorf("a router that has come back holds %d tokens, want 50000", got)
	}
	b.Share(false)
	if got := b.peersOf()[0]; got != (picker.Load{}) {
		t.Errorf("the others hold %+v when nothing is shared any more", got)
	}
}

// The engine reports all requests, and those of other routers are not from
// elsewhere, however late they are heard of.
func TestReportsAndPeersAreNotCountedTwice(t *testing.T) {
	report := func(b *bed, requests float64) {
		b.Observe(b.pool.Names()[0], engines.Report{Running: engines.Known(requests), Waiting: engines.Known(0)}, b.now, time.Hour)
	}
	tests := []struct {
		name string
		// heard is when the others' requests are heard of, after the report
		heard time.Duration
		want  float64
	}{
		{"heard before", -20 * time.Millisecond, 2},
		{"heard just after", 20 * time.Millisecond, 2},
		// they were placed after the report, and what was reported is somebody's
		{"heard later", 500 * time.Millisecond, 5},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			beds := shared(2, 1)
			a, b := beds[0], beds[1]
			for range 3 {
				a.place(prompt(1000, nil))
			}
			b.place(prompt(1000, nil))
			if test.heard < 0 {
				b.Hear(1, a.told(), b.now)
			}
			report(b, 6)
			if test.heard > 0 {
				b.now = b.now.Add(test.heard)
				b.Hear(1, a.told(), b.now)
			}
			if v := b.view(t, 0); v.Others != test.want || v.Peers.Requests != 3 {
				t.Errorf("%v requests from elsewhere and %d of a peer, want %v and 3", v.Others, v.Peers.Requests, test.want)
			}
		})
	}
}

// A session stays where another router has placed it, and is charged for what its
// prompt grew, whether its blocks are known or not.
func TestSessionIsAtHomeEverywhere(t *testing.T) {
	for _, blocks := range []bool{true, false} {
		beds := shared(2, 4)
		a, b := beds[0], beds[1]
		for key := sessions.Key(1); key <= 20; key++ {
			home := a.serve(story(key, 10*BlockTokens))
			n := a.told()
			if !blocks {
				n.Blocks = nil
			}
			b.Hear(1, n, b.now)
			p, at := b.place(story(key, 12*BlockTokens))
			if at != home || p.Reason() != ReasonPinned || p.UncachedTokens() != 2*BlockTokens {
				t.Errorf("blocks %v: session %d is on %d, %s, with %d tokens uncached, want it pinned on %d with %d",
					blocks, key, at, p.Reason(), p.UncachedTokens(), home, 2*BlockTokens)
			}
			p.FirstOutput(b.now)
			p.End(CauseEnd, b.now)

			// and the other way round
			a.Hear(2, b.told(), a.now)
			if p, at := a.place(story(key, 13*BlockTokens)); at != home || p.UncachedTokens() != BlockTokens {
				t.Errorf("blocks %v: session %d came back to %d with %d tokens uncached, want %d with %d",
					blocks, key, at, p.UncachedTokens(), home, BlockTokens)
			}
		}
	}
}

// A prompt without a session goes where another router has had it computed.
func TestBlocksOfOthersAreCached(t *testing.T) {
	beds := shared(2, 3)
	a, b := beds[0], beds[1]
	a.serve(prompt(10*BlockTokens, text(1, 10*BlockTokens, 0, 0)), 2)
	tellAll(t, beds)
	p, at := b.place(prompt(12*BlockTokens, text(1, 12*BlockTokens, 0, 0)))
	if at != 2 || p.Reason() != ReasonPrefix || p.UncachedTokens() != 2*BlockTokens {
		t.Errorf("placed on %d, %s, with %d tokens uncached, want 2", at, p.Reason(), p.UncachedTokens())
	}
	p.FirstOutput(b.now)
	n := b.told()
	if len(n.Blocks) != 1 || len(n.Blocks[0].Hashes) != 2 {
		t.Errorf("Blocks = %v, want the two that are new", n.Blocks)
	}

	// one that fails is taken back
	failed, _ := a.place(prompt(8*BlockTokens, text(9, 8*BlockTokens, 0, 0)), 0)
	tellAll(t, beds)
	if got := b.view(t, 0).PrefixBlocks; got != 8 {
		t.Errorf("%d blocks are known on 0, want 8", got)
	}
	failed.End(CauseError, a.now)
	tellAll(t, beds)
	if got := b.view(t, 0).PrefixBlocks; got != 0 {
		t.Errorf("%d blocks are known on 0 after their placement has failed, want none", got)
	}
}

// A home that was told, and taken back because the attempt has failed, is nobody's
// home.
func TestFailedHomeIsTakenBackEverywhere(t *testing.T) {
	beds := shared(2, 3)
	a, b := beds[0], beds[1]
	p, first := a.place(story(7, 10*BlockTokens))
	tellAll(t, beds)
	if got := b.sessions.Find(7); got == nil || got.Home() != a.pool.Names()[first] {
		t.Fatalf("session 7 is %+v, want it at %d", got, first)
	}
	p.End(CauseError, a.now)
	tellAll(t, beds)
	if got := b.sessions.Find(7); got != nil {
		t.Errorf("session 7 is at %s after its only attempt has failed", got.Home())
	}

	// one that has succeeded goes back to where it did
	home := a.serve(story(8, 10*BlockTokens))
	elsewhere := (home + 1) % 3
	moved, _ := a.place(story(8, 11*BlockTokens), elsewhere)
	tellAll(t, beds)
	if got := b.sessions.Find(8).Home(); got != a.pool.Names()[elsewhere] {
		t.Errorf("session 8 is at %s, want the upstream that it has moved to", got)
	}
	moved.End(CauseError, a.now)
	tellAll(t, beds)
	if got := b.sessions.Find(8).Home(); got != a.pool.Names()[home] {
		t.Errorf("session 8 is at %s, want it at home again", got)
	}
}

// Of two homes that are chosen at once the first one counts, and a move counts
// more than what was before.
func TestRoutersAgreeOnAHome(t *testing.T) {
	beds := shared(2, 2)
	a, b := beds[0], beds[1]
	b.now = b.now.Add(5 * time.Millisecond)
	p, _ := a.place(story(7, 10*BlockTokens), 0)
	q, _ := b.place(story(7, 10*BlockTokens), 1)
	p.FirstOutput(a.now)
	q.FirstOutput(b.now)
	tellAll(t, beds)
	for i, r := range beds {
		if got := r.sessions.Find(7).Home(); got != r.pool.Names()[0] {
			t.Errorf("router %d has session 7 at %s, want it where it was first", i, got)
		}
	}
	r, _ := b.place(story(7, 12*BlockTokens), 1)
	r.FirstOutput(b.now)
	tellAll(t, beds)
	for i, r := range beds {
		if got := r.sessions.Find(7).Home(); got != r.pool.Names()[1] {
			t.Errorf("router %d has session 7 at %s, want it where it has moved", i, got)
		}
	}
}

// A router that has missed a home is told of it when it chooses another one.
func TestMissedHomeIsToldAgain(t *testing.T) {
	beds := shared(2, 2)
	a, b := beds[0], beds[1]
	a.serve(story(7, 10*BlockTokens), 0)
	a.told() // which nobody hears
	b.now = b.now.Add(time.Second)
	a.now = b.now
	b.serve(story(7, 10*BlockTokens), 1)
	tellAll(t, beds)
	if first, second := a.sessions.Find(7).Home(), b.sessions.Find(7).Home(); first != second {
		t.Errorf("session 7 is at %s and at %s", first, second)
	}
}

// Only the upstream that made a response can go on with it.
func TestResponsesAreFoundByOthers(t *testing.T) {
	beds := shared(2, 3)
	a, b := beds[0], beds[1]
	p, _ := a.place(prompt(1000, nil), 2)
	p.Keeps(77)
	tellAll(t, beds)
	req := prompt(1000, nil)
	req.Response = 77
	if _, at := b.place(req); at != 2 {
		t.Errorf("placed on %d, want 2", at)
	}
}

// Slow traffic that comes to several routers in turn finds no load anywhere, and
// still goes to every upstream in turn.
func TestTiesAreDecidedTogether(t *testing.T) {
	const upstreams = 4
	beds := shared(3, upstreams)
	var order []int
	for i := range 40 {
		order = append(order, beds[i%3].serve(prompt(2000, text(0, 0, uint64(i+1), 2000))))
		tellAll(t, beds)
	}
	for i := upstreams; i < len(order)-upstreams; i++ {
		round := slices.Sorted(slices.Values(order[i : i+upstreams]))
		if !slices.Equal(round, []int{0, 1, 2, 3}) {
			t.Fatalf("requests went %v, want every upstream in turn", order)
		}
	}
}

// The limits of the queue are those of the upstream, whoever fills it, and who
// waits is placed when another router makes room.
func TestQueueHasTheLoadOfOthers(t *testing.T) {
	beds := shared(2, 1)
	a, b := beds[0], beds[1]
	for _, r := range beds {
		r.options.Queue = Queue{MaxRequests: 2, MaxWaiting: 10, MaxWait: time.Minute}
	}
	p, _ := a.place(prompt(1000, nil))
	a.place(Request{Tokens: 10})
	tellAll(t, beds)
	if _, at := b.place(prompt(1000, nil)); at != 0 {
		t.Fatalf("Place() = %d with one prompt of a peer, want 0", at)
	}
	if _, at := b.place(prompt(1000, nil)); at != NoRoom {
		t.Errorf("Place() = %d with a prompt of its own and one of a peer, want no room", at)
	}
	p.End(CauseEnd, a.now)
	tellAll(t, beds)
	if _, at := b.place(prompt(1000, nil)); at != 0 {
		t.Errorf("Place() = %d after a peer has made room, want 0", at)
	}
}

// While nobody asks for news what is gathered stays within bounds, and the newest
// of it stays.
func TestGatheredIsBounded(t *testing.T) {
	b := shared(1, 2)[0]
	chain := text(1, 2*BlockTokens, 0, 0)
	for i := range 3 * mostHomes / 2 {
		b.gathered.home(b.sessions.Meet(sessions.Key(i+1), b.now, b.options.Sessions))
		b.gathered.prompt("vllm-0:8000", chain, 0)
		b.gathered.response(ResponseKey(i + 1))
	}
	long := text(3, (longestTold+5)*BlockTokens, 0, 0)
	b.serve(prompt(len(long)*BlockTokens, long))
	g := &b.gathered
	if len(g.homes) > mostHomes || len(g.prompts) > mostPrompts || len(g.hashes) > mostHashes || len(g.responses) > mostResponses || g.dropped == 0 {
		t.Errorf("%d homes, %d prompts with %d blocks and %d responses are gathered, %d were dropped",
			len(g.homes), len(g.prompts), len(g.hashes), len(g.responses), g.dropped)
	}
	var last Home
	var blocks []Blocks
	n := new(News)
	rounds := 0
	for b.News(n, b.now) {
		if len(n.Homes) > HomesAtOnce || len(n.Blocks) > PromptsAtOnce || len(n.hashes) > HashesAtOnce {
			t.Fatalf("%d homes and %d prompts are told at once", len(n.Homes), len(n.Blocks))
		}
		if len(n.Homes) > 0 {
			last = n.Homes[len(n.Homes)-1]
		}
		if len(n.Blocks) > 0 {
			blocks = append(blocks[:0], n.Blocks[len(n.Blocks)-1])
		}
		rounds++
	}
	if last.Session != 3*mostHomes/2 || len(blocks) != 1 || len(blocks[0].Hashes) != longestTold || rounds < 4 {
		t.Errorf("the last home told in %d rounds is of session %d, and the last prompt of %d blocks", rounds, last.Session, len(blocks[0].Hashes))
	}
	if len(g.homes)+len(g.prompts)+len(g.hashes)+len(g.responses) > 0 || b.View(b.now).NewsDropped == 0 {
		t.Error("something is left, or nothing was dropped")
	}
}

// A shared fleet takes no memory for a placement.
func TestSharedPlacementAllocatesNothing(t *testing.T) {
	b := shared(1, 8)[0]
	req := story(7, 50*BlockTokens)
	b.serve(req)
	n := new(News)
	var p Placement
	for range 100 {
		b.Place(&p, &req, b.pool, b.usable, &b.options, b.now)
		p.FirstOutput(b.now)
		p.End(CauseEnd, b.now)
	}
	b.News(n, b.now)
	allocs := testing.AllocsPerRun(100, func() {
		b.Place(&p, &req, b.pool, b.usable, &b.options, b.now)
		p.FirstOutput(b.now)
		p.End(CauseEnd, b.now)
	})
	if allocs != 0 {
		t.Errorf("a placement allocates %v times, want never", allocs)
	}
	b.News(n, b.now)
	if allocs := testing.AllocsPerRun(100, func() { b.News(n, b.now) }); allocs != 0 {
		t.Errorf("News() allocates %v times, want never", allocs)
	}
}

// delivery is one message on its way to one router.
type delivery struct {
	from uint64
	to   int
	news *News
}

// Whatever is lost, late or twice on the way, no count is ever under 0, and once
// everything arrives the routers agree: on what each holds, and on the home of each
// session after its next turn.
func TestRoutersAgreeInTheEnd(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		beds := shared(3, 3)
		var way []delivery
		type live struct {
			*Placement
			at int
		}
		var open []live
		now := start
		for range 400 {
			now = now.Add(time.Duration(r.IntN(40)) * time.Millisecond)
			for _, b := range beds {
				b.now = now
			}
			at := r.IntN(len(beds))
			switch r.IntN(6) {
			case 0, 1:
				p, _ := beds[at].place(story(sessions.Key(1+r.IntN(10)), (5+r.IntN(20))*BlockTokens), r.IntN(3))
				open = append(open, live{p, at})
			case 2:
				if len(open) > 0 {
					i := r.IntN(len(open))
					p := open[i]
					if r.IntN(2) == 0 {
						p.FirstOutput(now)
					}
					p.End(Cause(r.IntN(int(CauseInferred))), now)
					open = slices.Delete(open, i, i+1)
				}
			case 3, 4:
				n := beds[at].told()
				for to := range beds {
					if to == at {
						continue
					}
					for range r.IntN(3) {
						way = append(way, delivery{uint64(at + 1), to, n})
					}
				}
			case 5:
				for range r.IntN(8) {
					if len(way) == 0 {
						break
					}
					i := r.IntN(len(way))
					d := way[i]
					beds[d.to].Hear(d.from, d.news, now)
					way = slices.Delete(way, i, i+1)
				}
			}
			for _, b := range beds {
				for at, l := range b.peersOf() {
					if atLeastNothing(l) != l {
						t.Fatalf("seed %d: the others hold %+v on %d", seed, l, at)
					}
				}
			}
		}
		for _, d := range way {
			beds[d.to].Hear(d.from, d.news, now)
		}
		tellAll(t, beds)
		sum := make([]picker.Load, 3)
		for _, b := range beds {
			for at, name := range b.pool.Names() {
				sum[at] = sum[at].Plus(b.upstreams[name].load())
			}
		}
		for i, b := range beds {
			for at, name := range b.pool.Names() {
				if got := b.upstreams[name].load().Plus(b.upstreams[name].counters.Peers()); got != sum[at] {
					t.Errorf("seed %d: router %d believes that all hold %+v on %d, want %+v", seed, i, got, at, sum[at])
				}
			}
		}
		for _, p := range open {
			p.End(CauseEnd, beds[0].now)
		}
		tellAll(t, beds)
		for key := sessions.Key(1); key <= 10; key++ {
			b := beds[r.IntN(len(beds))]
			b.serve(story(key, 40*BlockTokens))
			tellAll(t, beds)
			homes := map[string]int{}
			for _, b := range beds {
				if s := b.sessions.Find(key); s != nil {
					homes[s.Home()]++
				}
			}
			if len(homes) != 1 {
				t.Errorf("seed %d: session %d is at home at %v", seed, key, homes)
			}
		}
		for _, b := range beds {
			for at, l := range b.peersOf() {
				if l != (picker.Load{}) {
					t.Errorf("seed %d: the others hold %+v on %d at rest", seed, l, at)
				}
			}
		}
	}
}
