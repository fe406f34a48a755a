// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"io"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/prompts"
	"github.com/caddy-llm/loadaware/sessions"
)

// Select returns the upstream that r costs the least on, and reserves it there.
// It returns nil only where no upstream is available, and for a request that is
// not to be sent once more, which then ends with the error that it had. An
// upstream that this request was dispatched to before is chosen only when there
// is no other.
//
// With a queue, Select waits until the request has its place. It returns nil
// where the request is turned away, and from then on.
//
// In the shadow of another policy Select returns what that one does, whatever it
// is, and only keeps account.
//
// Select gives r a fresh body where the handler has read it, so that every
// attempt sends it whole.
func (p *LoadAwareSelection) Select(upstreams reverseproxy.UpstreamPool, r *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	if p.shadow != nil {
		return p.follow(p.shadow.Select(upstreams, r, w), upstreams, r)
	}
	a := p.arrive(r)
	if a.policy == p && a.exhausted() || a.refusedBy(p) {
		return nil
	}

	usable := p.takeUsable()
	defer p.usable.Put(usable)
	*usable = available((*usable)[:0], upstreams)
	if len(*usable) == 0 {
		return nil
	}

	request := p.request(a, r.Header)
	res := a.newPlaced(&p.lease)
	state := p.lease.acquire()
	at := state.Place(&res.Placement, &request, p.resolve(state, upstreams), *usable, &p.options, time.Now())
	if at == fleet.NoRoom {
		waiting := request // which outlives the stack, as others see it
		at = p.wait(a, r, state, res, &waiting, upstreams)
	}
	if at < 0 {
		p.lease.release()
		return nil
	}
	p.dispatch(a, res, r, request.Session)
	return upstreams[at]
}

// arrive returns the attempt of r, which holds nothing from here on: what an
// earlier dispatch has held is given back.
func (p *LoadAwareSelection) arrive(r *http.Request) *attempt {
	a := attemptOf(r)
	if !a.known {
		a.look(r, prompts.Limits{})
	}
	a.supersede(p, r.Context())
	if !a.watched {
		p.warnUnwatched(a)
	} else if p.handler.Load() != a.handler {
		p.handler.Store(a.handler)
	}
	return a
}

// request is what the fleet is asked to place.
func (p *LoadAwareSelection) request(a *attempt, header http.Header) fleet.Request {
	key, shared := sessionKey(p.Fleet, p.headers, header, &a.prompt)
	request := fleet.Request{
		Session:   key,
		Shared:    shared,
		Continues: a.prompt.PreviousResponse != "",
		Response:  a.refersTo(),
		Head:      a.prompt.Head,
		Model:     a.prompt.Model,
		Tokens:    a.prompt.Tokens,
		Blocks:    a.prompt.Blocks,
		Prefills:  a.prefills,
		Silent:    !a.prompt.Streams,
		MaxTokens: a.maxTokens,
		Watched:   a.watched,
	}
	if a.prompt.Parsed {
		request.TextBytes = int(a.prompt.TextBytes)
		request.Learns = a.whole && a.prompt.TokenIDs == 0 && a.prompt.MediaTokens == 0 && a.prompt.PreviousResponse == ""
	}
	if a.policy == p {
		request.Tried = a.tried
	}
	return request
}

// dispatch readies r for the upstream that it is placed on.
func (p *LoadAwareSelection) dispatch(a *attempt, res *placed, r *http.Request, session sessions.Key) {
	a.dispatch(p, res, r.Context())
	a.renewBody(r)
	a.report(session)
}

// takeUsable returns a scratch list of positions.
func (p *LoadAwareSelection) takeUsable() *[]int {
	if list, ok := p.usable.Get().(*[]int); ok {
		return list
	}
	return new([]int)
}

// available appends the positions of the upstreams that may take a request.
func available(list []int, upstreams reverseproxy.UpstreamPool) []int {
	for i, u := range upstreams {
		if u.Available() {
			list = append(list, i)
		}
	}
	return list
}

// resolvedPool is a list of upstreams with what the fleet knows of them.
type resolvedPool struct {
	upstreams reverseproxy.UpstreamPool
	fleet     *fleet.Fleet
	pool      *fleet.Pool
}

// resolve returns the pool of upstreams. The last one is kept: a static list is
// the same slice for every request, and a dynamic one has the same addresses
// for most.
func (p *LoadAwareSelection) resolve(state *fleet.Fleet, upstreams reverseproxy.UpstreamPool) *fleet.Pool {
	last := p.pool.Load()
	if last != nil && last.fleet == state && last.matches(upstreams) {
		return last.pool
	}
	names := make([]string, len(upstreams))
	for i, u := range upstreams {
		names[i] = u.Dial
	}
	resolved := &resolvedPool{upstreams: upstreams, fleet: state, pool: fleet.NewPool(names)}
	p.pool.Store(resolved)
	return resolved.pool
}

func (l *resolvedPool) matches(upstreams reverseproxy.UpstreamPool) bool {
	if len(l.upstreams) != len(upstreams) {
		return false
	}
	if &l.upstreams[0] == &upstreams[0] {
		return true
	}
	for i, name := range l.pool.Names() {
		if upstreams[i].Dial != name {
			return false
		}
	}
	return true
}

// renewBody gives r a body of its own that yields all of the client's, and lets
// the transport do the same. With the one that r has, a transport that is still
// reading when an engine answers early would write to the trailers of the retry.
//
// Where a handler between this module's and the proxy has put its own body
// around the client's or in its place, that one is left alone until something
// was read of the client's.
//
// A kept-alive connection that the engine has closed while the request was on
// its way is no reason to fail, and Go repeats a POST only if it carries an
// idempotency key and its body can be had again. The empty value is one that
// survives header operations. A fresh body is of a kind that the transport knows
// to be in memory: then it sends a small one together with the headers, and a
// dead connection fails in the one way that the transport repeats.
//
// In the shadow of another policy all stays as that one alone would have it.
func (a *attempt) renewBody(r *http.Request) {
	if a.body == nil || r.Body == nil {
		return
	}
	a.wire.Store(a.nextWire())
	if !a.whole || a.policy.shadow != nil {
		a.spent = a.count > 1 && a.body.begun.Load()
		return
	}
	if a.request.Body == a.standIn {
		fresh, err := a.body.fresh()
		if err != nil {
			return
		}
		r.Body, r.GetBody = fresh, a.body.fresh
	} else if fresh, err := a.body.get(); err == nil {
		r.Body, r.GetBody = fresh, a.body.get
	} else {
		current := &unread{ReadCloser: r.Body}
		r.Body = current
		r.GetBody = func() (io.ReadCloser, error) { return current.again(a.body) }
	}
	if r.Header["Idempotency-Key"] == nil {
		r.Header["Idempotency-Key"] = []string{""}
	}
}

// warnUnwatched says once that requests with a prompt come without the handler.
func (p *LoadAwareSelection) warnUnwatched(a *attempt) {
	if a.prefills && a.handler == nil && p.warned.CompareAndSwap(false, true) {
		p.logger.Warn("llm_loadaware handler is missing in front of the proxy: " +
			"prompts are charged by their content length and released when the request ends")
	}
}
