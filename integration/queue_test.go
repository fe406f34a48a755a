// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// queueSite is a site with a queue: its number, what stands before the proxy,
// the upstreams, options of the proxy and of the queue.
const queueSite = `
{site%d} {
	%s
	reverse_proxy %s {
		%s
		header_down X-Queue-Ms {http.llm_loadaware.queue_ms}
		lb_policy llm_loadaware {
			stickiness 1000000
			queue {
				%s
			}
		}
	}
}
`

// queueFor is one site with a queue for the upstreams of a hall.
func (h *hall) queueFor(options string) string {
	return fmt.Sprintf(queueSite, 0, "llm_loadaware", addresses(h.upstreams), "", options)
}

// Fifty clients come at once where eight have room: all are served in order, but
// for the one that leaves, and each prompt arrives byte for byte.
func TestQueueKeepsOrder(t *testing.T) {
	h := newHall(t, 2)
	s := start(t, h.queueFor("max_requests 4"))
	const all, room, leaves = 50, 8, 20
	var visits []*visit
	for i := range all {
		visits = append(visits, h.visit(s.sites[0], chatPath, chat(words(fmt.Sprint("number ", i), 500+i))))
		if i < room {
			h.guest(i)
		} else {
			s.waiting("interactive", i-room+1)
		}
	}
	visits[leaves].cancel()
	<-visits[leaves].done
	s.waiting("interactive", all-room-1)
	visits = slices.Delete(visits, leaves, leaves+1)
	s.passes()

	for i, v := range visits {
		g := h.guest(i)
		if g.body != v.body {
			t.Fatalf("request %d is\n%.80s\nwant\n%.80s", i, g.body, v.body)
		}
		for _, u := range s.fleet().Upstreams {
			if u.RequestsInFlight > 4 {
				t.Errorf("%d requests in flight, want at most 4", u.RequestsInFlight)
			}
		}
		g.leave()
		h.ended(v, http.StatusOK)
		// two that are let go at once may arrive in any order
		h.guest(min(i+room, len(visits)-1))
		if waited := v.header.Get("X-Queue-Ms"); (waited == "0") != (i < room) {
			t.Errorf("request %d waited %q ms", i, waited)
		}
	}
	s.settled()
	f := s.fleet()
	if f.QueueWaiting["interactive"] != 0 || f.QueueRejected["canceled"] != 1 || sum(f.QueueRejected) != 1 {
		t.Errorf("at the end %v wait and %v were rejected", f.QueueWaiting, f.QueueRejected)
	}
	_, text := s.get("/metrics")
	for _, line := range []string{
		`caddy_llm_loadaware_queue_waiting{class="interactive",fleet="default"} 0`,
		`caddy_llm_loadaware_queue_rejected_total{cause="canceled",fleet="default"} 1`,
		`caddy_llm_loadaware_queue_rejected_total{cause="full",fleet="default"} 0`,
		fmt.Sprintf(`caddy_llm_loadaware_queue_wait_seconds_count{fleet="default"} %d`, all-room-1),
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("/metrics has no %s", line)
		}
	}
}

// passes checks that calls without a prompt wait for nothing.
func (s *server) passes() {
	s.t.Helper()
	res, err := client.Get("http://" + s.sites[0] + "/v1/models")
	if err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		s.t.Errorf("GET without a prompt: status %d", res.StatusCode)
	}
}

// A session that waits for its home goes elsewhere when that is drained.
func TestQueueDrain(t *testing.T) {
	h := newHall(t, 2)
	s := start(t, h.queueFor("max_requests 1"))
	prompt := words("a conversation", 4000)
	first := h.visit(s.sites[0], chatPath, conversation(prompt), "X-Session-ID", "s")
	home := h.guest(0)
	next := h.visit(s.sites[0], chatPath, conversation(prompt, "answer", "more"), "X-Session-ID", "s")
	s.waiting("interactive", 1)
	s.drain(http.MethodPost, home.at)
	moved := h.guest(1)
	if moved.at == home.at {
		t.Error("the session went to its drained home")
	}
	moved.leave()
	h.ended(next, http.StatusOK)
	home.leave()
	h.ended(first, http.StatusOK)
	s.settled()
}

// A batch of any size keeps an interactive request from one place only.
func TestQueuePriority(t *testing.T) {
	h := newHall(t, 1)
	s := start(t, h.queueFor("max_requests 1\npriority_header X-Class"))
	running := h.visit(s.sites[0], chatPath, chat("running"), "X-Class", "batch")
	h.guest(0)
	const batch = 500
	var visits []*visit
	for i := range batch {
		visits = append(visits, h.visit(s.sites[0], chatPath, chat(fmt.Sprint("batch ", i)), "X-Class", "1", "X-Session-ID", fmt.Sprint(i)))
	}
	s.waiting("batch", batch)
	mine := h.visit(s.sites[0], chatPath, chat("mine"), "X-Class", "interactive")
	s.waiting("interactive", 1)
	h.guest(0).leave()
	h.ended(running, http.StatusOK)
	if g := h.guest(1); g.body != mine.body {
		t.Errorf("next is %s, want %s", g.body, mine.body)
	}
	h.guest(1).leave()
	h.ended(mine, http.StatusOK)
	h.guest(2)
	for _, v := range visits {
		v.cancel()
	}
	for _, v := range visits {
		<-v.done
	}
	s.settled()
	s.waiting("batch", 0)
}

// Requests that wait are none of a configuration's: they go on with what they
// came with, and those that come with new limits go behind them.
func TestQueueReload(t *testing.T) {
	h := newHall(t, 2)
	s := start(t, h.queueFor("max_requests 1"))
	var visits []*visit
	send := func(i int) {
		visits = append(visits, h.visit(s.sites[0], chatPath, chat(words(fmt.Sprint("number ", i), 500))))
	}
	for i := range 2 {
		send(i)
		h.guest(i)
	}
	for i := range 3 {
		send(i + 2)
		s.waiting("interactive", i+1)
	}
	for _, options := range []string{"max_requests 1\nmax_waiting 4\nmax_wait 1m", "max_prefill_tokens 600\nmax_requests 1"} {
		if err := s.reload(h.queueFor(options)); err != nil {
			t.Fatal(err)
		}
		s.accepts()
	}
	if n := h.count(); n != 2 {
		t.Errorf("%d requests have arrived after the reloads, want 2", n)
	}
	send(5)
	s.waiting("interactive", 4)
	for i, v := range visits {
		g := h.guest(i)
		if g.body != v.body {
			t.Fatalf("request %d is\n%.80s\nwant\n%.80s", i, g.body, v.body)
		}
		g.leave()
		h.ended(v, http.StatusOK)
		h.guest(min(i+2, len(visits)-1))
	}
	s.settled()
	s.waiting("interactive", 0)
}

// A retry waits for room like everybody else, and sends its body whole.
func TestQueueRetry(t *testing.T) {
	h := newHall(t, 2)
	s := start(t, fmt.Sprintf(queueSite, 0, "llm_loadaware", addresses(h.upstreams),
		"lb_retries 1\nlb_retry_match `{rp.is_transport_error} && method('POST')`", "max_requests 1"))
	busy := h.visit(s.sites[0], chatPath, chat(words("busy", 500)))
	full := h.guest(0)
	for _, u := range h.upstreams {
		if u != full.at {
			u.setAnswer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}
	}
	retried := h.visit(s.sites[0], chatPath, chat(words("retried", 500)))
	s.waiting("interactive", 1)
	full.leave()
	h.ended(busy, http.StatusOK)
	if g := h.guest(1); g.at != full.at || g.body != retried.body {
		t.Errorf("the retry is\n%.80s\nwant\n%.80s", g.body, retried.body)
	}
	h.guest(1).leave()
	h.ended(retried, http.StatusOK)
	s.settled()
}
