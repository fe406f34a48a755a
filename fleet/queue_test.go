// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/sessions"
)

// queued is a bed whose upstreams have limits.
func queued(n int, q Queue) *bed {
	b := newBed(n)
	if q.MaxWaiting == 0 {
		q.MaxWaiting = 1000
	}
	if q.MaxWait == 0 {
		q.MaxWait = time.Minute
	}
	b.options.Queue = q
	return b
}

// ticket is a ticket for req on all usable upstreams.
func (b *bed) ticket(req Request) *Ticket {
	return &Ticket{
		Placement: new(Placement), Request: &req, Pool: b.pool, Options: &b.options,
		Usable: func(at int) bool { return slices.Contains(b.usable, at) },
	}
}

// enqueue places req, which has to wait.
func (b *bed) enqueue(t *testing.T, change func(*Ticket), req Request) *Ticket {
	t.Helper()
	if _, at := b.place(req); at != NoRoom {
		t.Fatalf("Place() = %v, want NoRoom", at)
	}
	ticket := b.ticket(req)
	if change != nil {
		change(ticket)
	}
	if b.join(ticket, b.now) {
		t.Fatalf("a request does not wait: at %v, refused %v", ticket.at, ticket.Refusal)
	}
	return ticket
}

// states says of each ticket whether it waits (-), where it is, or x if it was
// refused.
func states(tickets ...*Ticket) (text string) {
	for _, t := range tickets {
		switch t.state {
		case waits:
			text += "-"
		case granted:
			text += fmt.Sprint(t.at)
		case refused:
			text += "x"
		}
	}
	return text
}

func (b *bed) expect(t *testing.T, want string, tickets ...*Ticket) {
	t.Helper()
	if got := states(tickets...); got != want {
		t.Errorf("tickets are %s, want %s", got, want)
	}
}

func TestRoom(t *testing.T) {
	for _, test := range []struct {
		name      string
		queue     Queue
		held      []int // uncached tokens of what is there
		tokens    int
		waits     bool
		noPrefill bool
	}{
		{name: "no limit", held: []int{1e6, 1e6}, tokens: 1e6},
		{name: "tokens to the limit", queue: Queue{MaxPrefillTokens: 100}, held: []int{40}, tokens: 60},
		{name: "tokens over it", queue: Queue{MaxPrefillTokens: 100}, held: []int{40}, tokens: 61, waits: true},
		{name: "a huge prompt alone", queue: Queue{MaxPrefillTokens: 100}, tokens: 1e6},
		{name: "a huge prompt with another", queue: Queue{MaxPrefillTokens: 100}, held: []int{1}, tokens: 1e6, waits: true},
		{name: "anything with a huge prompt", queue: Queue{MaxPrefillTokens: 100}, held: []int{1e6}, tokens: 1, waits: true},
		{name: "requests to the limit", queue: Queue{MaxRequests: 2}, held: []int{1e6}, tokens: 1},
		{name: "requests over it", queue: Queue{MaxRequests: 2}, held: []int{1, 1}, tokens: 1, waits: true},
		{name: "either", queue: Queue{MaxRequests: 3, MaxPrefillTokens: 100}, held: []int{50, 50}, tokens: 1, waits: true},
		{name: "nothing to prefill", queue: Queue{MaxRequests: 1, MaxPrefillTokens: 1}, held: []int{1}, noPrefill: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := queued(1, Queue{})
			for _, tokens := range test.held {
				b.place(prompt(tokens, nil))
			}
			// what does not prefill is no request to the limits
			b.place(Request{})
			b.options.Queue = test.queue
			_, at := b.place(Request{Tokens: test.tokens, Prefills: !test.noPrefill})
			if got := at == NoRoom; got != test.waits {
				t.Errorf("Place() = %v, want to wait: %v", at, test.waits)
			}
		})
	}
}

// Everything that makes room places the next one in the same step.
func TestWhatMakesRoom(t *testing.T) {
	for _, test := range []struct {
		name  string
		queue Queue
		event func(b *bed, first *Placement)
		want  string
	}{
		{"first output", Queue{MaxPrefillTokens: 100}, func(b *bed, p *Placement) { p.FirstOutput(b.now) }, "0"},
		{"end", Queue{MaxRequests: 1}, func(b *bed, p *Placement) { p.End(CauseEnd, b.now) }, "0"},
		{"first output leaves the request", Queue{MaxRequests: 1}, func(b *bed, p *Placement) { p.FirstOutput(b.now) }, "-"},
		{"failure", Queue{MaxPrefillTokens: 100}, func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now) }, "0"},
		{"a client that left", Queue{MaxRequests: 1}, func(b *bed, p *Placement) { p.End(CauseCanceled, b.now) }, "0"},
		{"drain of all that is full", Queue{MaxRequests: 1}, func(b *bed, _ *Placement) {
			b.usable = []int{0, 1}
			b.Drain(b.pool.Names()[0], true)
		}, "1"},
		{"an upstream that is well again", Queue{MaxRequests: 1}, func(b *bed, _ *Placement) { b.usable = []int{0, 1} }, "1"},
		{"time", Queue{MaxPrefillTokens: 100}, func(b *bed, _ *Placement) { b.now = b.now.Add(b.options.PrefillTTL + 1) }, "0"},
		{"nothing", Queue{MaxRequests: 1}, func(*bed, *Placement) {}, "-"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := queued(2, test.queue)
			b.usable = []int{0}
			first, _ := b.place(prompt(100, nil))
			ticket := b.enqueue(t, nil, prompt(50, nil))
			test.event(b, first)
			// what the goroutine does when it is woken, or its timer fires
			b.look(ticket, lookEvery, b.now)
			b.expect(t, test.want, ticket)
			first.End(CauseEnd, b.now)
			ticket.Placement.End(CauseEnd, b.now)
		})
	}
}

// Reports and answers of an engine change which upstreams stand best.
func TestReportsMakeRoom(t *testing.T) {
	full := engines.Report{Running: engines.Known(1), KVUsage: engines.Known(0.99)}
	roomy := engines.Report{Running: engines.Known(1), KVUsage: engines.Known(0.1)}
	b := queued(2, Queue{MaxRequests: 1})
	b.List(b.pool.Names())
	b.Observe(b.pool.Names()[1], full, b.now, time.Hour)
	first, at := b.place(prompt(100, nil))
	if at != 0 {
		t.Fatalf("Place() = %v, want 0, as 1 is full", at)
	}
	ticket := b.enqueue(t, nil, prompt(50, nil))
	b.Observe(b.pool.Names()[1], roomy, b.now, time.Hour)
	b.expect(t, "1", ticket)
	first.End(CauseEnd, b.now)
	ticket.Placement.End(CauseEnd, b.now)
	atRest(t, b.View(b.now))
}

// One that does not fit is overtaken by nobody who wants the same upstream, but
// keeps others from nothing that it does not want.
func TestNoBarging(t *testing.T) {
	b := queued(1, Queue{MaxPrefillTokens: 100})
	first, _ := b.place(prompt(60, nil))
	huge := b.enqueue(t, nil, prompt(1000, nil))
	small := b.enqueue(t, nil, prompt(10, nil))
	other := *b
	other.pool = NewPool([]string{"elsewhere"})
	if elsewhere := other.ticket(prompt(10, nil)); !b.join(elsewhere, b.now) {
		t.Error("a request waits for an upstream that nobody else wants")
	}
	b.expect(t, "--", huge, small)
	first.FirstOutput(b.now)
	b.expect(t, "0-", huge, small)
	huge.Placement.FirstOutput(b.now)
	b.expect(t, "00", huge, small)
}

func TestTurns(t *testing.T) {
	type request struct {
		name   string
		class  Class
		client uint64
		again  bool
	}
	many := func(n int, r request) (list []request) {
		for range n {
			list = append(list, r)
		}
		return list
	}
	batch := request{name: "b", class: Batch, client: 1}
	ours := request{name: "i", client: 2}
	for _, test := range []struct {
		name     string
		requests []request
		want     string
	}{
		{"arrival within a client", []request{{name: "1"}, {name: "2"}, {name: "3"}}, "123"},
		{"arrival among clients", []request{{name: "1", client: 1}, {name: "2", client: 2}, {name: "3", client: 3}}, "123"},
		{"clients take turns", append(many(3, request{name: "a", client: 1}), many(2, request{name: "c", client: 2})...), "acaca"},
		{"interactive first", append(many(2, batch), many(2, ours)...), "iibb"},
		{"a share for batch", append(many(3, batch), many(16, ours)...), "iiiiiiibiiiiiiibiib"},
		{"retries first", []request{{name: "1"}, {name: "r", again: true}, {name: "s", again: true}, batch}, "rs1b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := queued(1, Queue{MaxRequests: 1})
			running, _ := b.place(prompt(10, nil))
			var tickets []*Ticket
			for _, r := range test.requests {
				tickets = append(tickets, b.enqueue(t, func(t *Ticket) {
					t.Class, t.Client, t.Again = r.class, r.client, r.again
				}, prompt(10, nil)))
			}
			got := ""
			for range tickets {
				running.End(CauseEnd, b.now)
				at := slices.IndexFunc(tickets, func(t *Ticket) bool { return t != nil && t.state == granted })
				if at < 0 {
					t.Fatalf("after %q nobody has the room", got)
				}
				got += test.requests[at].name
				running, tickets[at] = tickets[at].Placement, nil
			}
			if got != test.want {
				t.Errorf("order is %s, want %s", got, test.want)
			}
			running.End(CauseEnd, b.now)
			atRest(t, b.View(b.now))
		})
	}
}

// New clients that keep coming do not keep one with many requests from its turn.
func TestNewClientsStarveNobody(t *testing.T) {
	b := queued(1, Queue{MaxRequests: 1})
	running, _ := b.place(prompt(10, nil))
	var old []*Ticket
	for range 3 {
		old = append(old, b.enqueue(t, func(t *Ticket) { t.Client = 1 }, prompt(10, nil)))
	}
	all := slices.Clone(old)
	for client := range uint64(6) {
		all = append(all, b.enqueue(t, func(t *Ticket) { t.Client = 2 + client }, prompt(10, nil)))
		running.End(CauseEnd, b.now)
		for _, ticket := range all {
			if ticket.state == granted && ticket.Placement.reservation.Open() {
				running = ticket.Placement
			}
		}
	}
	b.expect(t, "000", old...)
}

// A batch of any size keeps an interactive request from the next room only.
func TestBatchDoesNotHoldUp(t *testing.T) {
	b := queued(1, Queue{MaxPrefillTokens: 10_000})
	running := make(map[*Placement]bool)
	first, _ := b.place(prompt(10_000, nil))
	running[first] = true
	batch := make([]*Ticket, 500)
	for i := range batch {
		batch[i] = b.enqueue(t, func(t *Ticket) { t.Class, t.Client = Batch, uint64(i) }, prompt(10_000, nil))
	}
	first.FirstOutput(b.now)
	if batch[0].state != granted {
		t.Fatal("the first of the batch is not next")
	}
	mine := b.enqueue(t, nil, prompt(5000, nil))
	batch[0].Placement.FirstOutput(b.now)
	b.expect(t, "0-", mine, batch[1])
}

// Who is one too many goes, and that is the last in order.
func TestTooMany(t *testing.T) {
	b := queued(1, Queue{MaxRequests: 1, MaxWaiting: 2})
	b.place(prompt(10, nil))
	first := b.enqueue(t, func(t *Ticket) { t.Class, t.Client = Batch, 1 }, prompt(10, nil))
	second := b.enqueue(t, func(t *Ticket) { t.Class, t.Client = Batch, 1 }, prompt(10, nil))
	third := b.ticket(prompt(10, nil))
	third.Class, third.Client = Batch, 1
	b.join(third, b.now)
	b.expect(t, "--x", first, second, third)

	another := b.ticket(prompt(10, nil))
	another.Class, another.Client = Batch, 2
	b.join(another, b.now)
	b.expect(t, "-x-", first, second, another)

	ours := b.ticket(prompt(10, nil))
	b.join(ours, b.now)
	b.expect(t, "-x-", first, another, ours)

	// another policy's limit is its own
	b.options.Queue.MaxWaiting = 3
	other := *b
	other.options.Queue.MaxWaiting = 1
	stranger := other.ticket(prompt(10, nil))
	b.join(stranger, b.now)
	b.expect(t, "-x-", first, stranger, ours)
	if v := b.View(b.now); v.QueueRejected != [refusals]uint64{RefusedFull: 4} || v.QueueWaiting != [classes]int{1, 1} {
		t.Errorf("view shows rejected %v, waiting %v", v.QueueRejected, v.QueueWaiting)
	}
	for _, ticket := range []*Ticket{first, ours} {
		b.leave(ticket, RefusedCanceled, b.now)
	}
	if b.queue.len != 0 || b.queue.lines[Batch].last() != nil || b.queue.lines[Interactive].last() != nil {
		t.Error("the line is not empty at its end")
	}
}

// Who leaves lets those behind it go on.
func TestLeaving(t *testing.T) {
	b := queued(1, Queue{MaxPrefillTokens: 100})
	first, _ := b.place(prompt(60, nil))
	huge := b.enqueue(t, nil, prompt(1000, nil))
	small := b.enqueue(t, nil, prompt(10, nil))
	b.leave(huge, RefusedCanceled, b.now)
	b.expect(t, "x0", huge, small)
	b.leave(small, RefusedTimeout, b.now)
	b.expect(t, "0", small)
	for _, p := range []*Placement{first, small.Placement} {
		p.End(CauseEnd, b.now)
	}
	atRest(t, b.View(b.now))
}

// A session waits for its home while that is worth it, and moves when it is not.
func TestWaitingAtHome(t *testing.T) {
	for _, test := range []struct {
		name       string
		stickiness float64
		held       int
		want       string
		reason     Reason
	}{
		{"worth waiting for", 1_000_000, 10_000, "-", ReasonPinned},
		{"not worth waiting for", 0, 100_000, "1", ReasonMovedPressure},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := queued(2, Queue{MaxRequests: 1})
			b.options.Stickiness = test.stickiness
			b.serve(turn(1, 8000), 0)
			load, _ := b.place(prompt(test.held, nil), 0)
			ticket := b.ticket(turn(1, 8100))
			b.join(ticket, b.now)
			b.expect(t, test.want, ticket)
			if test.want == "-" {
				// others have room elsewhere, and go by
				if other := b.ticket(prompt(10, nil)); !b.join(other, b.now) || other.at != 1 {
					t.Errorf("a request without a session is %s, want it at 1", states(other))
				}
				load.End(CauseEnd, b.now)
				b.expect(t, "0", ticket)
			}
			if got := ticket.Placement.Reason(); got != test.reason {
				t.Errorf("reason = %v, want %v", got, test.reason)
			}
		})
	}
}

// The wait at home costs what waits for it already, so a crowd does not wait
// there for long while others have room.
func TestCrowdAtHome(t *testing.T) {
	b := queued(2, Queue{MaxRequests: 8})
	for key := range sessions.Key(40) {
		b.serve(turn(key+1, 1000), 0)
	}
	for range 8 {
		b.place(prompt(10, nil), 0)
	}
	stay, move := 0, 0
	for key := range sessions.Key(12) {
		ticket := b.ticket(turn(key+1, 1100))
		if b.join(ticket, b.now); ticket.state == waits {
			stay++
		} else if ticket.at == 1 {
			move++
		}
	}
	if stay == 0 || move == 0 || b.queue.lines[Interactive].last().awaits == nil {
		t.Errorf("%d of 12 sessions wait at home and %d moved, want some of both", stay, move)
	}
}

// A look that finds no room changes nothing.
func TestNoRoomLeavesNoTrace(t *testing.T) {
	b := queued(1, Queue{MaxRequests: 1})
	b.options.Sessions.Max = 3
	b.serve(Request{Session: 1, Tokens: 2000, Head: 5, Blocks: text(1, 2000, 0, 0), Prefills: true})
	load, _ := b.place(prompt(10, nil))
	before := b.View(b.now)
	stranger := b.enqueue(t, nil, Request{Session: 1, Tokens: 512, Head: 6, Blocks: text(2, 512, 0, 0), Prefills: true})
	fresh := b.enqueue(t, nil, turn(2, 1000))
	for range 40 {
		b.look(stranger, 0, b.now)
	}
	if s := b.sessions.Find(1); s.Strangers != 0 || s.Live() != 0 {
		t.Errorf("session has %d strangers and %d live requests, want none", s.Strangers, s.Live())
	}
	after := b.View(b.now)
	after.QueueWaiting = before.QueueWaiting
	if got, want := fmt.Sprint(after), fmt.Sprint(before); got != want {
		t.Errorf("view was\n%s and is\n%s", want, got)
	}
	load.End(CauseEnd, b.now)
	stranger.Placement.End(CauseEnd, b.now)
	b.expect(t, "00", stranger, fresh)
	fresh.Placement.End(CauseEnd, b.now)
	atRest(t, b.View(b.now))
}

// A request that refers to a response waits for the upstream that keeps it: no
// other one can answer, though others have room.
func TestQueueWaitsForTheKeeperOfAResponse(t *testing.T) {
	b := queued(3, Queue{MaxRequests: 1})
	first, _ := b.place(prompt(100, nil), 1)
	first.Keeps(7)
	refers := prompt(100, nil)
	refers.Response = 7
	ticket := b.enqueue(t, nil, refers)
	free := b.ticket(prompt(100, nil))
	if !b.join(free, b.now) || free.at != 0 && free.at != 2 {
		t.Errorf("a request that refers to nothing is %v, want it on another upstream", states(free))
	}
	first.End(CauseEnd, b.now)
	if got := states(ticket); got != "1" {
		t.Errorf("states = %v once the upstream has room, want it there", got)
	}
}
