// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/sessions"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// router is one of several in front of the same upstreams.
type router struct {
	*fleet.Fleet
	link    *Link
	stop    context.CancelFunc
	pool    *fleet.Pool
	usable  []int
	options fleet.Options
}

// join starts a router that shares over a medium, until the test ends or it is
// stopped.
func join(t *testing.T, m Medium, upstreams int, name uint64) *router {
	r := &router{Fleet: fleet.New(rand.New(rand.NewPCG(name, 1)).Uint64), options: fleet.DefaultOptions()}
	var names []string
	for i := range upstreams {
		names, r.usable = append(names, fmt.Sprintf("vllm-%d:8000", i)), append(r.usable, i)
	}
	r.pool = fleet.NewPool(names)
	r.Share(true)
	r.List(names)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	r.link = NewLink(r.Fleet, m, name, nil)
	go run(ctx, r.link)
	return r
}

// place places a prompt.
func (r *router) place(session sessions.Key, blocks []uint64) (*fleet.Placement, int) {
	p := new(fleet.Placement)
	req := &fleet.Request{Session: session, Tokens: len(blocks) * fleet.BlockTokens, Blocks: blocks, Prefills: true}
	return p, r.Place(p, req, r.pool, r.usable, &r.options, time.Now())
}

// held are the requests in flight on each upstream that a router knows of, its
// own and those of others.
func (r *router) held() (counts []int) {
	for _, u := range r.View(time.Now()).Upstreams {
		counts = append(counts, u.Requests+u.Peers.Requests)
	}
	return counts
}

// text is a prompt of its own.
func text(n uint64, blocks int) []uint64 {
	r := rand.New(rand.NewPCG(n, 2))
	list := make([]uint64, blocks)
	for i := range list {
		list[i] = r.Uint64() | 1
	}
	return list
}

// With several routers a burst of cold requests is spread as with one, whether it
// comes at once, when they cannot know of each other, or within some milliseconds.
func TestBurstOverSeveralRouters(t *testing.T) {
	for _, n := range []int{2, 4} {
		for _, apart := range []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
			for seed := range uint64(5) {
				synctest.Test(t, func(t *testing.T) {
					m := &Memory{Delay: time.Millisecond}
					var routers []*router
					for i := range n {
						routers = append(routers, join(t, m, 3, 10*seed+uint64(i)+1))
					}
					random := rand.New(rand.NewPCG(seed, 3))
					counts := make([]int, 3)
					for i := range 128 {
						_, at := routers[random.IntN(n)].place(0, text(uint64(i+1), 125))
						counts[at]++
						time.Sleep(apart)
					}
					if slices.Max(counts) > 50 {
						t.Errorf("%d routers, %v apart: 128 requests went %v, want at most 50 on each", n, apart, counts)
					}
					time.Sleep(50 * time.Millisecond)
					for _, r := range routers {
						if got := r.held(); !slices.Equal(got, counts) {
							t.Errorf("%d routers, %v apart: a router believes that all hold %v, want %v", n, apart, got, counts)
						}
					}
				})
			}
		}
	}
}

// conversations lets 1,000 sessions have eight turns each, every turn at another
// router than the one before, and returns how many of the later turns have moved.
func conversations(t *testing.T, n int) (moves int) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{Delay: time.Millisecond}
		var routers []*router
		for i := range n {
			routers = append(routers, join(t, m, 4, uint64(i+1)))
		}
		random := rand.New(rand.NewPCG(1, 4))
		type turn struct {
			*fleet.Placement
			ends time.Time
		}
		var open []turn
		homes := make([]int, 1000)
		for round := range 8 {
			for _, i := range random.Perm(len(homes)) {
				time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
				for len(open) > 0 && !open[0].ends.After(time.Now()) {
					open[0].End(fleet.CauseEnd, time.Now())
					open = open[1:]
				}
				p, at := routers[(i+round)%n].place(sessions.Key(i+1), text(uint64(i+1), 10+4*round))
				p.FirstOutput(time.Now())
				open = append(open, turn{p, time.Now().Add(time.Second)})
				if round > 0 && homes[i] != at {
					moves++
				}
				homes[i] = at
			}
		}
	})
	return moves
}

func TestSessionsThatAlternateStayAtHome(t *testing.T) {
	alone := conversations(t, 1)
	for _, n := range []int{2, 4} {
		if moves := conversations(t, n); moves > alone+70 {
			t.Errorf("with %d routers %d of 7,000 turns have moved, with one %d, want under 1%% more", n, moves, alone)
		} else {
			t.Logf("with %d routers %d of 7,000 turns have moved, with one %d", n, moves, alone)
		}
	}
}

// What a router holds that has died is gone from the others in three seconds, and
// its sessions keep their homes.
func TestLostRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		a, b := join(t, m, 3, 1), join(t, m, 3, 2)
		var homes []int
		for key := range sessions.Key(30) {
			_, at := a.place(key+1, text(uint64(key+1), 10))
			homes = append(homes, at)
		}
		time.Sleep(10 * time.Second)
		if got := b.held(); got[0]+got[1]+got[2] != 30 {
			t.Fatalf("after 10 s the others hold %v, want 30 requests", got)
		}
		a.stop()
		time.Sleep(fleet.PeerLifetime)
		if got := b.held(); got[0]+got[1]+got[2] != 0 {
			t.Errorf("3 s after its death a router holds %v, want nothing", got)
		}
		for i, home := range homes {
			if p, at := b.place(sessions.Key(i+1), text(uint64(i+1), 12)); at != home || p.UncachedTokens() != 2*fleet.BlockTokens {
				t.Errorf("session %d is on %d with %d tokens uncached, want it on %d with %d", i+1, at, p.UncachedTokens(), home, 2*fleet.BlockTokens)
			}
		}
	})
}

// A router that starts knows what the others have told before, but for the load of
// those that are gone.
func TestRouterThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		a := join(t, m, 3, 1)
		_, home := a.place(7, text(7, 10))
		time.Sleep(time.Second)
		a.stop()
		time.Sleep(time.Second)
		b := join(t, m, 3, 2)
		time.Sleep(time.Millisecond)
		if got := b.held(); got[home] != 0 {
			t.Errorf("the others hold %v when they are gone, want nothing", got)
		}
		if p, at := b.place(7, text(7, 12)); at != home || p.UncachedTokens() != 2*fleet.BlockTokens {
			t.Errorf("session 7 is on %d with %d tokens uncached, want it on %d with %d", at, p.UncachedTokens(), home, 2*fleet.BlockTokens)
		}
	})
}

// What a router that starts hears of the past was used then, and not when it has
// started.
func TestPastIsNoUseOfToday(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		for router, wait := range []time.Duration{40 * time.Minute, 30 * time.Minute} {
			a := join(t, m, 3, uint64(router+1))
			p, _ := a.place(sessions.Key(router+1), text(uint64(router), 10))
			p.End(fleet.CauseEnd, time.Now())
			time.Sleep(time.Second)
			a.stop()
			time.Sleep(wait)
		}
		b := join(t, m, 3, 3)
		synctest.Wait()
		if got := b.View(time.Now()).Sessions; got != 1 {
			t.Errorf("%d sessions are known, want the one that was used in the last hour", got)
		}
		time.Sleep(31 * time.Minute)
		b.place(9, text(9, 1))
		if got := b.View(time.Now()).Sessions; got != 1 {
			t.Errorf("%d sessions are known an hour after the last use, want one that is new", got)
		}
	})
}

// broken is a medium that fails while it is told to.
type broken struct {
	Memory
	mu    sync.Mutex
	fails [2]error
	sent  int
}

func (b *broken) fail(sends, receives error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = [2]error{sends, receives}
}

// count is how many messages were sent.
func (b *broken) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

func (b *broken) Send(ctx context.Context, message []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails[0] != nil {
		return b.fails[0]
	}
	b.sent++
	return b.Memory.Send(ctx, message)
}

func (b *broken) Receive(ctx context.Context, after string) (Batch, error) {
	b.mu.Lock()
	err := b.fails[1]
	b.mu.Unlock()
	if err != nil {
		return Batch{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	batch, err := b.Memory.Receive(ctx, after)
	if errors.Is(err, context.DeadlineExceeded) {
		return Batch{Next: after}, nil
	}
	return batch, err
}

// Each change of the medium's state is told once, and what was gathered meanwhile
// arrives.
func TestMediumFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(broken)
		var changes []error
		f := fleet.New(func() uint64 { return 1 })
		f.Share(true)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			run(ctx, NewLink(f, m, 1, func(err error) { changes = append(changes, err) }))
			close(done)
		}()
		other := join(t, &m.Memory, 1, 2)
		time.Sleep(5 * time.Second)
		down, slow := errors.New("down"), errors.New("slow")
		m.fail(down, nil)
		time.Sleep(5 * time.Second)
		m.fail(down, slow)
		r := &router{Fleet: f, pool: fleet.NewPool([]string{"vllm-0:8000"}), usable: []int{0}, options: fleet.DefaultOptions()}
		r.place(7, text(7, 10))
		time.Sleep(5 * time.Second)
		m.fail(nil, slow)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(changes) != 1 {
			t.Errorf("while only one way works the medium has changed %v, want one failure", changes)
		}
		m.fail(nil, nil)
		time.Sleep(2 * time.Second)
		m.fail(nil, slow)
		time.Sleep(2 * time.Second)
		m.fail(nil, nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if want := []error{down, nil, slow, nil}; !slices.Equal(changes, want) {
			t.Errorf("the medium has changed %v, want %v", changes, want)
		}
		if got := other.held(); got[0] != 1 {
			t.Errorf("the others hold %v, want one request", got)
		}
		m.fail(down, down)
		stop()
		<-done
		if len(changes) != 4 {
			t.Errorf("the medium has changed %v when the link ends", changes)
		}
	})
}

// A router that has nothing to tell says once a second that it is alive.
func TestIdleRouterTellsOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(broken)
		a := join(t, m, 2, 1)
		b := join(t, m, 2, 2)
		time.Sleep(20 * time.Second)
		if sent := m.count(); sent < 36 || sent > 42 {
			t.Errorf("two routers have sent %d messages in 20 s, want 40", sent)
		}
		if v := b.View(time.Now()); v.Peers != 1 {
			t.Errorf("a router has %d peers, want 1", v.Peers)
		}
		before := m.count()
		for range 1000 {
			p, _ := a.place(0, text(1, 4))
			p.End(fleet.CauseEnd, time.Now())
			time.Sleep(time.Millisecond)
		}
		if got := m.count() - before; got > 60 {
			t.Errorf("1,000 requests in a second have made %d messages, want at most one in 20 ms", got)
		}
	})
}

// What cannot be read is counted and passed over.
func TestUnreadableMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		a, b := join(t, m, 2, 1), join(t, m, 2, 2)
		time.Sleep(time.Second)
		for _, message := range []string{"", "llmnews\x02", "hello"} {
			if err := m.Send(t.Context(), []byte(message)); err != nil {
				t.Fatal(err)
			}
		}
		a.place(7, text(7, 10))
		time.Sleep(time.Second)
		if got := b.link.Unreadable(); got != 3 {
			t.Errorf("Unreadable() = %d, want 3", got)
		}
		if got := b.held(); got[0]+got[1] != 1 {
			t.Errorf("the others hold %v, want one request", got)
		}
	})
}

// A medium of this process remembers the last messages, and says when a position
// is none.
func TestMemory(t *testing.T) {
	var m Memory
	for i := range remembered + 10 {
		if err := m.Send(t.Context(), []byte{byte(i), byte(i >> 8)}); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := m.Receive(t.Context(), "")
	if err != nil || !batch.Past || len(batch.Messages) != remembered/2+10 {
		t.Fatalf("Receive() = %d messages, %v, want %d of the past", len(batch.Messages), err, remembered/2+10)
	}
	if err := m.Send(t.Context(), []byte("next")); err != nil {
		t.Fatal(err)
	}
	next, err := m.Receive(t.Context(), batch.Next)
	if err != nil || next.Past || len(next.Messages) != 1 || string(next.Messages[0].Data) != "next" {
		t.Errorf("Receive() = %+v, %v, want the next message", next.Messages, err)
	}
	if _, err := m.Receive(t.Context(), "there"); err == nil {
		t.Error("Receive() after 'there' has no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Receive(ctx, next.Next); !errors.Is(err, context.Canceled) {
		t.Errorf("Receive() = %v after the end, want canceled", err)
	}
}

// run tells and hears until ctx is done.
func run(ctx context.Context, l *Link) {
	var wait sync.WaitGroup
	wait.Go(func() { l.Tell(ctx) })
	wait.Go(func() { l.Hear(ctx) })
	wait.Wait()
}

// What is placed is told soon, and what is given back goes with what is placed
// next, or a little later: a request makes one message and not three.
func TestPlacementsPress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(broken)
		a := join(t, m, 2, 1)
		b := join(t, m, 2, 2)
		holds := func(when string, want int) {
			t.Helper()
			if u := b.View(time.Now()).Upstreams; len(u) == 0 && want == 0 {
				return
			}
			sum := 0
			for _, u := range b.View(time.Now()).Upstreams {
				sum += u.Peers.Requests
			}
			if sum != want {
				t.Errorf("%s the other router knows of %d requests, want %d", when, sum, want)
			}
		}
		time.Sleep(3 * time.Second)
		before := m.count()
		p, _ := a.place(0, text(1, 4))
		time.Sleep(2 * Every)
		holds("soon after a placement", 1)
		p.FirstOutput(time.Now())
		p.End(fleet.CauseEnd, time.Now())
		time.Sleep(2 * Every)
		holds("soon after its end", 1)
		time.Sleep(Unhurried)
		holds("a little later", 0)
		if got := m.count() - before; got > 3 {
			t.Errorf("one request and two heartbeats have made %d messages, want at most 3", got)
		}
		q, _ := a.place(0, text(2, 4))
		time.Sleep(2 * Every)
		q.End(fleet.CauseEnd, time.Now())
		r, _ := a.place(0, text(3, 4))
		time.Sleep(2 * Every)
		holds("with the next placement", 1)
		r.End(fleet.CauseEnd, time.Now())
	})
}

// ending is a medium that is no longer wanted once it has brought something.
type ending struct {
	Memory
	end context.CancelFunc
}

func (m *ending) Receive(ctx context.Context, after string) (Batch, error) {
	batch, err := m.Memory.Receive(ctx, after)
	if len(batch.Messages) > 0 {
		m.end()
	}
	return batch, err
}

// A link that ends takes in no more of what it has received.
func TestEndBetweenMessages(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	m := &ending{end: end}
	for range 3 {
		if err := m.Send(ctx, []byte("no message")); err != nil {
			t.Fatal(err)
		}
	}
	l := NewLink(fleet.New(func() uint64 { return 1 }), m, 1, nil)
	l.Hear(ctx)
	if got := l.Unreadable(); got != 0 {
		t.Errorf("%d messages were read, want none after the end", got)
	}
}
