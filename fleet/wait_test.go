// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llm/loadaware/sessions"
)

// hold places req, and waits for room if there is none. It returns -1 if it is
// turned away.
func (b *bed) hold(done <-chan struct{}, req Request, change func(*Ticket)) (*Ticket, int) {
	ticket := b.ticket(req)
	if change != nil {
		change(ticket)
	}
	at := b.Place(ticket.Placement, ticket.Request, b.pool, b.usable, &b.options, time.Now())
	if at == NoRoom {
		at = b.Wait(done, ticket)
	}
	return ticket, at
}

func TestWait(t *testing.T) {
	for _, test := range []struct {
		name    string
		event   func(b *bed, first *Placement, leave func())
		ttl     time.Duration
		waited  time.Duration
		at      int
		refusal Refusal
	}{
		{
			name: "room", waited: 3 * time.Second,
			event: func(_ *bed, first *Placement, _ func()) {
				time.Sleep(3 * time.Second)
				first.End(CauseEnd, time.Now())
			},
		},
		{
			name: "drain", waited: 3 * time.Second, at: 1,
			event: func(b *bed, _ *Placement, _ func()) {
				time.Sleep(3 * time.Second)
				b.Drain(b.pool.Names()[0], true)
			},
		},
		{
			name: "the client leaves", waited: 2500 * time.Millisecond, at: -1, refusal: RefusedCanceled,
			event: func(_ *bed, _ *Placement, leave func()) {
				time.Sleep(2500 * time.Millisecond)
				leave()
			},
		},
		{
			name: "too long", waited: 10 * time.Second, at: -1, refusal: RefusedTimeout,
			event: func(*bed, *Placement, func()) {},
		},
		{
			// the first look after that is a second later at the most
			name: "a reservation that expires", ttl: 5500 * time.Millisecond, waited: 6 * time.Second,
			event: func(*bed, *Placement, func()) {},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := queued(2, Queue{MaxPrefillTokens: 100, MaxWait: 10 * time.Second})
				if test.ttl != 0 {
					b.options.PrefillTTL = test.ttl
				}
				// the other upstream is drained, and free once the first is too
				b.List(b.pool.Names())
				b.Drain(b.pool.Names()[1], true)
				began := time.Now()
				first, _ := b.hold(nil, prompt(100, nil), nil)
				done := make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() { test.event(b, first.Placement, func() { close(done) }) })
				ticket, at := b.hold(done, prompt(50, nil), nil)
				if waited := time.Since(began); at != test.at || waited != test.waited {
					t.Errorf("Wait() = %v after %v, want %v after %v", at, waited, test.at, test.waited)
				}
				if at < 0 && ticket.Refusal != test.refusal {
					t.Errorf("refusal = %v, want %v", ticket.Refusal, test.refusal)
				}
				wg.Wait()
				ticket.Placement.End(CauseEnd, time.Now())
				first.Placement.End(CauseEnd, time.Now())
				atRest(t, b.View(time.Now()))
			})
		})
	}
}

// A retry has the rest of its time only.
func TestWaitedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := queued(1, Queue{MaxRequests: 1, MaxWait: 10 * time.Second})
		b.hold(nil, prompt(100, nil), nil)
		for _, waited := range []time.Duration{0, 4 * time.Second, 10 * time.Second, time.Minute} {
			began := time.Now()
			ticket, at := b.hold(nil, prompt(100, nil), func(t *Ticket) { t.Waited = waited })
			if got, want := time.Since(began), max(10*time.Second-waited, 0); at != -1 || got != want || ticket.Refusal != RefusedTimeout {
				t.Errorf("after %v before, Wait() = %v after %v with %v, want -1 after %v with timeout", waited, at, got, ticket.Refusal, want)
			}
		}
	})
}

// Many come, go, fail, leave and wait at once. No limit is ever broken, nobody
// is forgotten, and no wake-up is lost: a second of the bubble's time would pass
// until the next look.
func TestQueueConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, each, upstreams, limit = 40, 60, 3, 4
		b := queued(upstreams, Queue{MaxPrefillTokens: 6000, MaxRequests: limit, MaxWaiting: 30, MaxWait: time.Hour})
		began := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		served, turnedAway := 0, 0
		for worker := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(worker), 7))
				for range each {
					done := make(chan struct{})
					if r.IntN(5) == 0 {
						go close(done)
					}
					tokens := r.IntN(4000)
					req := prompt(tokens, text(uint64(r.IntN(3)), tokens/2, uint64(worker), tokens/2))
					req.Session, req.Silent = sessions.Key(r.IntN(6)), r.IntN(3) == 0
					ticket, at := b.hold(done, req, func(t *Ticket) {
						t.Class, t.Client, t.Again = Class(r.IntN(Classes)), uint64(r.IntN(5)), r.IntN(9) == 0
					})
					mu.Lock()
					if at >= 0 {
						served++
					} else {
						turnedAway++
					}
					mu.Unlock()
					for _, u := range b.View(time.Now()).Upstreams {
						if u.Requests > limit {
							t.Errorf("%d requests on %s, want at most %d", u.Requests, u.Name, limit)
						}
					}
					// the others come meanwhile, however few cores there are
					runtime.Gosched()
					p := ticket.Placement
					switch r.IntN(4) {
					case 0:
						p.FirstOutput(time.Now())
					case 1:
						p.Fail(CauseError, BlameNone, time.Now())
					case 2:
						b.Drain(b.pool.Names()[r.IntN(upstreams)], r.IntN(2) == 0)
					}
					p.End(Cause(r.IntN(2)), time.Now())
				}
			})
		}
		wg.Wait()
		if passed := time.Since(began); passed != 0 {
			t.Errorf("%v passed, want no time: a wake-up was lost", passed)
		}
		v := b.View(time.Now())
		atRest(t, v)
		refusedInAll := sum(v.QueueRejected[:])
		if served+turnedAway != workers*each || int(refusedInAll) != turnedAway || served == 0 || turnedAway == 0 {
			t.Errorf("%d served and %d turned away, of which %d are counted; want some of both, %d in all",
				served, turnedAway, refusedInAll, workers*each)
		}
		if v.QueueWaiting != [classes]int{} || b.queue.len != 0 || b.queue.lines[0].len()+b.queue.lines[1].len() != 0 {
			t.Errorf("%v wait at rest", v.QueueWaiting)
		}
		for name, u := range b.upstreams {
			if u.prompts != 0 || u.awaited != 0 || u.awaitedTokens != 0 {
				t.Errorf("%s has %d prompts and %d requests that await it at rest", name, u.prompts, u.awaited)
			}
		}
	})
}

// prefill lets the upstream of each placed ticket compute in order of arrival,
// at a rate in tokens per second, and the requests end after a while longer.
func (b *bed) prefill(engine chan struct{}, ticket *Ticket, rate float64, decode time.Duration) {
	engine <- struct{}{}
	time.Sleep(time.Duration(float64(ticket.Placement.UncachedTokens()) / rate * float64(time.Second)))
	ticket.Placement.FirstOutput(time.Now())
	<-engine
	time.Sleep(decode)
	ticket.Placement.End(CauseEnd, time.Now())
}

// A client that is turned away and comes back when it was told to finds room
// then: within a factor of two of when it would have had its place.
func TestRetryAfterIsRight(t *testing.T) {
	for _, test := range []struct {
		name      string
		upstreams int
		queue     Queue
		waiting   int
		tokens    int
		rate      float64
		decode    time.Duration
	}{
		{"prefill", 2, Queue{MaxPrefillTokens: 20_000}, 40, 8000, 10_000, 0},
		{"prefill of one", 1, Queue{MaxPrefillTokens: 30_000}, 12, 6000, 5000, time.Second},
		{"many upstreams", 8, Queue{MaxPrefillTokens: 40_000}, 200, 10_000, 8000, 0},
		{"huge prompts", 3, Queue{MaxPrefillTokens: 20_000}, 20, 60_000, 10_000, 0},
		{"requests", 2, Queue{MaxRequests: 4}, 40, 500, 10_000, 3 * time.Second},
		{"both", 2, Queue{MaxRequests: 4, MaxPrefillTokens: 20_000}, 60, 4000, 10_000, 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.queue.MaxWaiting, test.queue.MaxWait = 1000, time.Hour
				b := queued(test.upstreams, test.queue)
				engine := make([]chan struct{}, test.upstreams)
				for i := range engine {
					engine[i] = make(chan struct{}, 1)
				}
				var wg sync.WaitGroup
				serve := func() {
					ticket, at := b.hold(nil, prompt(test.tokens, nil), nil)
					b.prefill(engine[at], ticket, test.rate, test.decode)
				}
				// until the rate is known
				for range test.upstreams * 40 {
					wg.Go(serve)
				}
				wg.Wait()
				for b.View(time.Now()).QueueWaiting[Interactive] < test.waiting {
					wg.Go(serve)
					synctest.Wait()
				}

				// the same request twice: one may not wait and one may
				options := b.options
				options.Queue.MaxWaiting = 1
				refused := b.ticket(prompt(test.tokens, nil))
				refused.Options = &options
				if at := b.Wait(nil, refused); at != -1 || refused.Refusal != RefusedFull {
					t.Fatalf("Wait() = %v, %v, want -1, full", at, refused.Refusal)
				}
				began := time.Now()
				ticket, at := b.hold(nil, prompt(test.tokens, nil), nil)
				actual := time.Since(began)
				b.prefill(engine[at], ticket, test.rate, test.decode)
				wg.Wait()
				t.Logf("told %v, had room after %v", refused.RetryAfter, actual)
				if refused.RetryAfter < actual/2 || refused.RetryAfter > 2*actual {
					t.Errorf("told to come back after %v, and had room after %v", refused.RetryAfter, actual)
				}
			})
		})
	}
}

// With room, a queue costs no allocation, and without one nothing at all.
func TestQueueAllocatesNothing(t *testing.T) {
	for _, queue := range []Queue{{}, {MaxRequests: 8, MaxPrefillTokens: 100_000}} {
		b := queued(8, queue)
		var p Placement
		for _, req := range []Request{prompt(2000, nil), turn(1, 2000)} {
			b.serve(req)
			if n := testing.AllocsPerRun(100, func() {
				b.Place(&p, &req, b.pool, b.usable, &b.options, b.now)
				p.End(CauseEnd, b.now)
			}); n != 0 {
				t.Errorf("%v allocations with %+v, want 0", n, queue)
			}
		}
	}
}

func BenchmarkWaitingLine(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bed := queued(8, Queue{MaxRequests: 8, MaxWaiting: n + 1})
			running := make([]*Placement, 0, 64)
			for range 64 {
				p, _ := bed.place(prompt(2000, nil))
				running = append(running, p)
			}
			for range n {
				bed.join(bed.ticket(prompt(2000, nil)), bed.now)
			}
			b.ReportAllocs()
			for b.Loop() {
				// one goes, one is granted, one comes
				first := bed.queue.lines[Interactive].ring[0]
				running[0].End(CauseEnd, bed.now)
				running = append(running[1:], first.Placement)
				bed.join(bed.ticket(prompt(2000, nil)), bed.now)
			}
		})
	}
}
