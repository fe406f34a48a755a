// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-llm/loadaware/fleet"
)

// refusal says that a policy has turned a request away which had to wait. Caddy
// asks again for every retry that it has left, and gets the same answer.
type refusal struct {
	policy     *LoadAwareSelection
	cause      fleet.Refusal
	retryAfter time.Duration
}

// refusedBy reports that p has turned the request away.
func (a *attempt) refusedBy(p *LoadAwareSelection) bool {
	return a.refusal != nil && a.refusal.policy == p
}

// wait waits until the request has its place, for as long as the queue of p lets
// it, and returns the position of its upstream. If it is turned away it returns
// -1, and leaves word in a.
func (p *LoadAwareSelection) wait(
	a *attempt, r *http.Request, state *fleet.Fleet, res *placed, request *fleet.Request, upstreams reverseproxy.UpstreamPool,
) int {
	if a.policy != p {
		a.queued = 0
	}
	ticket := &fleet.Ticket{
		Placement: &res.Placement,
		Request:   request,
		Pool:      p.resolve(state, upstreams),
		Options:   &p.options,
		Usable:    func(at int) bool { return upstreams[at].Available() },
		Class:     classOf(r.Header, p.Queue.PriorityHeader),
		Client:    clientOf(r, request),
		Again:     a.policy == p,
		Waited:    a.queued,
	}
	began := time.Now()
	at := state.Wait(r.Context().Done(), ticket)
	a.queued += time.Since(began)
	if at >= 0 {
		return at
	}
	a.refusal = &refusal{policy: p, cause: ticket.Refusal, retryAfter: ticket.RetryAfter}
	a.reportQueue()
	if c := p.logger.Check(zapcore.DebugLevel, "refused request"); c != nil {
		c.Write(
			zap.Stringer("cause", ticket.Refusal),
			zap.Stringer("class", ticket.Class),
			zap.Duration("waited", a.queued),
		)
	}
	return -1
}

// classOf returns the class that a request names in the header field, which is
// in canonical form. Without a field nothing is read.
func classOf(header http.Header, field string) fleet.Class {
	if field == "" {
		return fleet.Interactive
	}
	value := header.Get(field)
	if value == fleet.Batch.String() {
		return fleet.Batch
	}
	if n, err := strconv.ParseFloat(value, 64); err == nil && n > 0 {
		return fleet.Batch
	}
	return fleet.Interactive
}

// clientOf names whom a request comes from, as one of those that take turns: its
// session, else what it identifies itself with, else where it comes from. Only a
// hash is kept, and only while it waits.
func clientOf(r *http.Request, request *fleet.Request) uint64 {
	if request.Session != 0 {
		return uint64(request.Session)
	}
	for _, field := range [...]string{"Authorization", "X-Api-Key"} {
		if value := r.Header.Get(field); value != "" {
			return uint64(hashSession("client", field, value))
		}
	}
	address, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	if !ok {
		address = r.RemoteAddr
		if host, _, err := net.SplitHostPort(address); err == nil {
			address = host
		}
	}
	return uint64(hashSession("client", address))
}
