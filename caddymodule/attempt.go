// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/prompts"
)

// attemptVar is the request variable that holds the request's attempt. Request
// variables are one map for the whole request, so the handler, every Select
// and the error routes find the same one.
const attemptVar = "llm_loadaware.attempt"

// attempt is the record of one request. One goroutine at a time touches it.
type attempt struct {
	// known is false until the request was looked at; the rest of this block
	// is what was found then
	known    bool
	endpoint prompts.Endpoint
	prompt   prompts.Prompt
	prefills bool

	// response is the id in the path of a request for a response that was made
	// earlier
	response string

	// body is what was read of the request's body, nil where nobody looks at
	// it; whole says that it can be sent again, and spent that it cannot and a
	// dispatch has read from it
	body         *body
	whole, spent bool

	// wire is what the transport has told of the dispatch under way. Other
	// goroutines write to it.
	wire atomic.Pointer[wire]

	// maxTokens caps what the prompt may be charged
	maxTokens int

	// request is what the handler was given, and standIn the body that it has
	// left there
	request *http.Request
	standIn io.ReadCloser

	// watched says that a handler is on the stack, which ends the placements;
	// where none is, they end with the request's context. handler is the last
	// one that was, also when an error route proxies again.
	watched bool
	handler *Handler

	// current is the placement of the dispatch under way, made by policy;
	// tried are the upstreams that this policy has dispatched the request to,
	// and harmed how many of them it may have harmed
	current *placed
	policy  *LoadAwareSelection
	tried   []string
	harmed  int
	count   int

	// queued is how long policy, or the one that comes after it, has let the
	// request wait, and refusal says that it was turned away
	queued  time.Duration
	refusal *refusal

	// lastStatus is the status of an earlier dispatch
	lastStatus int

	// note is what the placeholders and the access log say
	note placementNote

	// firstOutput is when the first output was seen, zero before
	started, firstOutput time.Time

	// first is the memory for what most requests need one of
	first struct {
		placed placed
		wire   wire
		trace  httptrace.ClientTrace
		tried  [1]string
	}
}

// attemptOf returns the attempt of r, and makes it if this is the first that is
// seen of the request.
func attemptOf(r *http.Request) *attempt {
	if a, ok := caddyhttp.GetVar(r.Context(), attemptVar).(*attempt); ok {
		return a
	}
	a := &attempt{started: time.Now()}
	a.tried = a.first.tried[:0]
	caddyhttp.SetVar(r.Context(), attemptVar, a)
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(a.note.placeholder)
	}
	return a
}

// placed is a placement together with the reference to its fleet.
type placed struct {
	fleet.Placement
	lease *lease
	ended atomic.Bool
}

// newPlaced returns what a placement in the fleet of l is to be made in.
func (a *attempt) newPlaced(l *lease) *placed {
	res := &a.first.placed
	if res.lease != nil {
		res = new(placed)
	}
	res.lease = l
	return res
}

// end ends the placement once and gives the reference back.
func (res *placed) end(c fleet.Cause) {
	if res.ended.CompareAndSwap(false, true) {
		res.End(c, time.Now())
		res.lease.release()
	}
}

// supersede ends the placement that an earlier Select of this request made.
// From the same policy it is a failed dispatch that Caddy retries. From another
// one it failed if an error or response route proxies the request again, and
// has done its work otherwise.
func (a *attempt) supersede(p *LoadAwareSelection, ctx context.Context) {
	status := a.takeStatus(ctx)
	if a.current == nil {
		return
	}
	switch {
	case a.policy == p:
		if a.harms(status) {
			a.harmed++
		}
		a.fail(ctx, fleet.CauseRetried, status)
		a.end(fleet.CauseRetried)
	case status >= 400 || ctx.Value(caddyhttp.ErrorCtxKey) != nil:
		a.fail(ctx, fleet.CauseError, status)
		a.end(fleet.CauseError)
	default:
		a.end(fleet.CauseEnd)
	}
}

// mostHarmed is how many upstreams may fail on a request that they have received.
// One that makes an engine fail must not go through the whole fleet.
const mostHarmed = 2

// harms reports whether the dispatch under way, which has failed with a status,
// 0 for none, may have failed for what it was sent. An upstream that has refused
// the request was not harmed, nor one that has never had all of it.
func (a *attempt) harms(status int) bool {
	switch status {
	case 0:
		return a.wire.Load().wasSent()
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return a.prefills
	}
	return false
}

// exhausted reports that the request must not be sent once more, or cannot.
func (a *attempt) exhausted() bool {
	return a.harmed >= mostHarmed || a.body != nil && !a.whole && a.body.begun.Load()
}

// statusPlaceholder has the status that an upstream has answered
// with. The proxy leaves it in place when its next dispatch gets no answer.
const statusPlaceholder = "http.reverse_proxy.status_code"

// answered returns the status that an upstream has answered the dispatch under
// way with, 0 where it has not answered.
func answered(ctx context.Context) int {
	repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return 0
	}
	value, _ := repl.Get(statusPlaceholder)
	status, _ := value.(int)
	return status
}

// answeredField returns a header field of the upstream's last answer, empty where
// there is none.
func answeredField(ctx context.Context, field string) string {
	repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return ""
	}
	value, _ := repl.GetString("http.reverse_proxy.header." + field)
	return value
}

// takeStatus returns the status of the last dispatch and takes it away, so that
// it is not taken for that of the next one. The handler puts it back at the end
// of a request whose last dispatch got no answer.
func (a *attempt) takeStatus(ctx context.Context) int {
	status := answered(ctx)
	if status != 0 {
		ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Delete(statusPlaceholder)
		a.lastStatus = status
	}
	return status
}

// restoreStatus undoes takeStatus where no status has come since.
func (a *attempt) restoreStatus(ctx context.Context) {
	if a.lastStatus != 0 && answered(ctx) == 0 {
		ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Set(statusPlaceholder, a.lastStatus)
	}
}

// dispatch makes res the current placement. Without a handler on the stack
// nobody sees the response, and res ends with the request's context.
func (a *attempt) dispatch(p *LoadAwareSelection, res *placed, ctx context.Context) {
	if a.policy != p {
		if a.policy != nil {
			a.tried, a.harmed = nil, 0
		}
		a.policy = p
	}
	a.current, a.refusal = res, nil
	a.count++
	if name := res.Upstream(); !slices.Contains(a.tried, name) {
		a.tried = append(a.tried, name)
	}
	if !a.watched {
		context.AfterFunc(ctx, func() { res.end(fleet.CauseEnd) })
	}
}

// output notes that the engine has shown its first output.
func (a *attempt) output() {
	if a.current == nil {
		return
	}
	now := time.Now()
	a.firstOutput = now
	a.current.FirstOutput(now)
}

// progress notes that something of the response has come. res may be nil.
func (res *placed) progress() {
	if res != nil {
		res.Progress(time.Now())
	}
}

// blocked notes that the response waits for its client, or does so no more. res
// may be nil. It may be called from any goroutine.
func (res *placed) blocked(on bool) {
	if res != nil {
		res.Blocked(on)
	}
}

// fail notes that the dispatch under way has failed with a status, 0 for none.
func (a *attempt) fail(ctx context.Context, c fleet.Cause, status int) {
	if a.current == nil {
		return
	}
	blame, now := a.blame(status), time.Now()
	a.current.Fail(c, blame, now)
	if blame == fleet.BlameFull {
		a.current.Refused(retryAfter(answeredField(ctx, "Retry-After"), now), now)
	}
}

// blame tells how far the upstream answers for a failure: where another one
// might have answered better, but not for what is wrong with the request, for a
// client that sends too much or breaks off, nor for a body that cannot be sent
// again or a connection that was no longer one. Status 0 is no answer at all.
func (a *attempt) blame(status int) fleet.Blame {
	if a.spent || a.body.broken() {
		return fleet.BlameNone
	}
	switch status {
	case 0:
		if a.wire.Load().wasClosed() {
			return fleet.BlameNone
		}
		return fleet.BlameFailure
	case http.StatusNotImplemented:
		return fleet.BlameNone
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		// what is not found may be the response that the request goes on from
		if !a.prefills || status == http.StatusNotFound && a.prompt.PreviousResponse != "" {
			return fleet.BlameNone
		}
		return fleet.BlameDenied
	case http.StatusServiceUnavailable:
		return fleet.BlameFull
	}
	if status >= 500 {
		return fleet.BlameFailure
	}
	return fleet.BlameNone
}

// end ends what the request still holds.
func (a *attempt) end(c fleet.Cause) {
	if a.current != nil {
		a.current.end(c)
		a.current = nil
	}
}
