// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// outcome is how a request ended.
type outcome int

const (
	answered    outcome = iota
	answered500         // the engine's own failure, passed on
	broke               // after its header
	leftSilence         // the client gave up
	refusal             // reset by a Caddy that a reload has stopped
	failed
	outcomes
)

var outcomeNames = [outcomes]string{"answered", "500", "broke", "gave up", "reset by a reload", "failed"}

// silence is how long a client bears a hung server. It is no bound on a sound
// one: who is not on a hung server waits on.
const silence = 200 * time.Millisecond

// try is one request.
type try struct {
	id    string
	phase int64 // in which it was sent

	status int // 0 without a header
	text   strings.Builder
	err    error

	moved  atomic.Int64 // bytes since the last look
	gaveUp atomic.Bool
}

// Write takes a part of the response.
func (a *try) Write(p []byte) (int, error) {
	a.moved.Add(int64(len(p)))
	return a.text.Write(p)
}

// complete says whether all of a good response has come.
func (a *try) complete(streamed bool) bool {
	if a.status != http.StatusOK || a.err != nil {
		return false
	}
	if streamed {
		return strings.HasSuffix(a.text.String(), "data: [DONE]\n\n")
	}
	return strings.HasSuffix(strings.TrimSpace(a.text.String()), "}")
}

// agent has one conversation after the other. A turn that fails is tried again,
// as clients do, and the prompt grows with each that is answered.
func (c *chaos) agent(worker int) {
	for session := 0; ; session++ {
		name := fmt.Sprintf("agent %d.%d", worker, session)
		texts := []string{words("tools of all", 300) + words(name, 500)}
		for turn := 0; turn < 6; {
			select {
			case <-c.stop:
				return
			case <-c.t.Context().Done():
				return
			default:
			}
			var header []string
			if worker%2 == 0 {
				header = []string{"X-Session-ID", name}
			}
			switch c.send(conversation(texts...), (worker+turn)%4 != 0, header) {
			case answered:
				turn++
				texts = append(texts, "an answer", words(fmt.Sprint("turn ", turn), 200))
			case failed:
				turn++ // what cannot be answered must not be asked forever
			}
		}
	}
}

// send makes a request and judges its end.
func (c *chaos) send(body string, streamed bool, header []string) outcome {
	if !streamed {
		body = unstreamed(body)
	}
	a := &try{id: fmt.Sprint(c.ids.Add(1)), phase: c.phase.Load()}
	// only a net: no request comes near it
	ctx, leave := context.WithTimeout(c.t.Context(), patience)
	defer leave()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(ctx, a, leave)
	}()
	c.exchange(ctx, a, body, append(header, idHeader, a.id))
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	leave()
	<-watched
	if c.t.Context().Err() != nil {
		return failed // the test has ended before
	}

	o := c.judge(a, streamed)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[o]++
	if o == failed {
		if c.failures++; c.failures <= 5 {
			c.t.Errorf("request %s of phase %d, now %d, streamed %t: late %t, status %d, %v: %.200q",
				a.id, a.phase, c.phase.Load(), streamed, late, a.status, a.err, a.text.String())
		}
	}
	return o
}

func (c *chaos) exchange(ctx context.Context, a *try, body string, header []string) {
	res, err := send(ctx, c.s.sites[0], chatPath, body, header...)
	if err != nil {
		a.err = err
		return
	}
	defer res.Body.Close()
	a.status = res.StatusCode
	_, a.err = io.Copy(a, res.Body)
}

// watch gives a request up that is on a hung server and has shown nothing for a
// while.
func (c *chaos) watch(ctx context.Context, a *try, leave func()) {
	tick := time.NewTicker(silence)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if a.moved.Swap(0) == 0 && c.met(a, hangs) {
				a.gaveUp.Store(true)
				leave()
				return
			}
		}
	}
}

// judge says how a request ended. What is wrong with it is excused by what
// happened to a server that had it.
func (c *chaos) judge(a *try, streamed bool) outcome {
	switch {
	case a.complete(streamed):
		return answered
	case a.gaveUp.Load():
		return leftSilence
	case a.status == http.StatusInternalServerError && c.met(a, says500):
		return answered500
	case a.status == http.StatusOK && c.met(a, breaks):
		return broke
	case c.refused(a):
		return refusal
	}
	return failed
}

// refused reports whether a reload has cost the request its connection. A
// server that Caddy has stopped may take one more connection from the listener
// that it shared with the next, and reset it; neither the plugin nor an upstream
// has seen such a request, and clients send it again.
func (c *chaos) refused(a *try) bool {
	lost := errors.Is(a.err, syscall.ECONNRESET) || errors.Is(a.err, io.EOF) || errors.Is(a.err, syscall.EPIPE) ||
		// the client's reader has seen the reset while its writer was at work
		errors.Is(a.err, net.ErrClosed)
	return lost && a.status == 0 && c.reloaded.Load() >= a.phase && !slices.ContainsFunc(c.hosts, a.reached)
}

// reached reports whether a server has received the request.
func (a *try) reached(h *chaosHost) bool {
	for _, r := range slices.Backward(h.Server().Requests()) {
		if r.Header.Get(idHeader) == a.id {
			return true
		}
	}
	return false
}

// met reports whether a server that received the request has had trouble with
// that excuse since it was sent.
func (c *chaos) met(a *try, e excuse) bool {
	return slices.ContainsFunc(c.hosts, func(h *chaosHost) bool {
		return h.last[e].Load() >= a.phase && a.reached(h)
	})
}

// counted is how many requests have ended, and how.
func (c *chaos) counted() [outcomes]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcomes
}

// check looks at how all requests ended.
func (c *chaos) check(rounds int) {
	c.t.Helper()
	counts := c.counted()
	for o, n := range counts {
		c.t.Logf("%s: %d", outcomeNames[o], n)
	}
	if counts[failed] > 0 {
		c.t.Errorf("%d requests failed without an excuse", counts[failed])
	}
	// a server that fails at once looks idle: it must not draw the requests. All
	// agents may meet it before it is known, and again when it is tried; it would
	// be more if it had its third of the phase.
	if n, limit := counts[answered500], rounds*len(c.hosts)*2*chaosWorkers; n > limit {
		c.t.Errorf("%d requests had status 500, want no more than %d", n, limit)
	}
}
