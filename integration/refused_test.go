// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Requests waited for an overloaded upstream until their clients left; others asked
// for a refusal in place of an endless queue.
//
// Whoever is turned away is told when to come back, in the words of its API, and
// keeps none of its retries waiting again.
func TestCaseD16D26QueueRefuses(t *testing.T) {
	const chatError = `{"error":{"type":"rate_limit_error","message":"%s","code":429}}`
	const messagesError = `{"type":"error","error":{"type":"rate_limit_error","message":"%s"}}`
	const full, late = "too many requests are waiting", "no upstream had room in time"
	for _, test := range []struct {
		name, before, proxy, queue, path string
		status                           int
		body, message, cause             string
	}{
		{"one too many", "llm_loadaware", "", "max_waiting 1", chatPath, 429, chatError, full, "full"},
		{"one too many for the Messages API", "llm_loadaware", "", "max_waiting 1", "/v1/messages", 429, messagesError, full, "full"},
		{"too late", "llm_loadaware", "", "max_wait 1ms", chatPath, 429, chatError, late, "timeout"},
		{"with retries", "llm_loadaware", "lb_retries 3", "max_wait 1ms", chatPath, 429, chatError, late, "timeout"},
		{"without a handler", "", "lb_retries 3", "max_waiting 1", chatPath, 503, "", "", "full"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHall(t, 1)
			s := start(t, h.queueFor("max_requests 1")+
				fmt.Sprintf(queueSite, 1, test.before, addresses(h.upstreams), test.proxy, "max_requests 1\n"+test.queue))
			running := h.visit(s.sites[0], chatPath, chat("running"))
			g := h.guest(0)
			waits := h.visit(s.sites[0], chatPath, chat("waits"))
			s.waiting("interactive", 1)

			refused := h.visit(s.sites[1], test.path, chat("refused"))
			h.ended(refused, test.status)
			if test.status == http.StatusTooManyRequests {
				seconds, err := strconv.Atoi(refused.header.Get("Retry-After"))
				if err != nil || seconds < 1 || seconds > 60 {
					t.Errorf("Retry-After = %q, want 1 to 60", refused.header.Get("Retry-After"))
				}
				message := fmt.Sprintf("%s, try again in %d seconds", test.message, seconds)
				if want := fmt.Sprintf(test.body, message); refused.text != want || !json.Valid([]byte(want)) {
					t.Errorf("body is\n%s\nwant\n%s", refused.text, want)
				}
				if got := refused.header.Get("Content-Type"); got != "application/json" {
					t.Errorf("Content-Type = %q", got)
				}
			}
			f := s.fleet()
			if f.QueueRejected[test.cause] != 1 || sum(f.QueueRejected) != 1 {
				t.Errorf("rejected = %v, want one %s", f.QueueRejected, test.cause)
			}
			g.leave()
			h.ended(running, http.StatusOK)
			h.guest(1).leave()
			h.ended(waits, http.StatusOK)
			s.settled()
			if n := h.count(); n != 2 {
				t.Errorf("%d requests have reached the upstream, want 2", n)
			}
		})
	}
}

// An error route may still take the request elsewhere where no handler has
// answered it, and what that is answered with is left as it is.
func TestRefusedGoesElsewhere(t *testing.T) {
	h := newHall(t, 1)
	other := newUpstream(t, answerAtOnce)
	s := start(t, h.queueFor("max_requests 1")+strings.ReplaceAll(
		fmt.Sprintf(queueSite, 1, "", addresses(h.upstreams), "", "max_requests 1\nmax_wait 1ms"), "{site1} {",
		fmt.Sprintf("{site1} {\nhandle_errors 503 {\nreverse_proxy %s {\nlb_policy llm_loadaware\n}\n}\n", other.address())))
	running := h.visit(s.sites[0], chatPath, chat("running"))
	g := h.guest(0)
	elsewhere := h.visit(s.sites[1], chatPath, chat("elsewhere"))
	<-elsewhere.done
	if elsewhere.err != nil || !strings.Contains(elsewhere.text, "Hello") || other.count() != 1 {
		t.Errorf("status %d: %s, %v; want the other upstream's answer", elsewhere.status, elsewhere.text, elsewhere.err)
	}
	g.leave()
	h.ended(running, http.StatusOK)
	s.settled()
}
