// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// wire is what a transport tells of one dispatch. It may be written to and read
// at once, and tells nothing while it is nil.
type wire struct {
	// sent says that an upstream was sent all of the request
	sent atomic.Bool

	// kept says that the last connection was one kept alive, and cut that the
	// request could not be written to it
	kept, cut atomic.Bool

	// stale says that an earlier dispatch has met a dead connection
	stale bool
}

// nextWire returns the wire of the next dispatch of the request.
func (a *attempt) nextWire() *wire {
	w := a.wire.Load()
	if w == nil {
		return &a.first.wire
	}
	return &wire{stale: w.stale || w.kept.Load() && w.cut.Load()}
}

// metDead reports that the request has met a dead connection before the one that a
// transport is about to look for: the transport looks for another one in the same
// dispatch only where one that was kept alive has failed.
func (w *wire) metDead() bool {
	return w != nil && (w.stale || w.kept.Load() && (w.sent.Load() || w.cut.Load()))
}

// wasSent reports that an upstream may have received all of the request. An
// engine works on nothing less.
func (w *wire) wasSent() bool { return w != nil && w.sent.Load() }

// wasClosed reports that the request met a kept-alive connection which the
// upstream had closed. The transport repeats a request itself that fails with
// its first write, but not one that is long enough to need two.
func (w *wire) wasClosed() bool {
	return w != nil && w.kept.Load() && w.cut.Load() && !w.sent.Load()
}

// traced returns a shallow copy of r in whose context transports note what
// becomes of the attempt's dispatches.
//
// An upstream that has closed one connection has often closed others, and another
// upstream too. A request that has met a dead one goes on with a new one, so that
// it neither runs out of retries nor looks as if it were what breaks upstreams.
func (a *attempt) traced(r *http.Request) *http.Request {
	a.first.trace = httptrace.ClientTrace{GetConn: a.getConn, GotConn: a.gotConn, WroteRequest: a.wroteRequest}
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &a.first.trace))
}

// getConn is called when a transport is about to look for a connection.
func (a *attempt) getConn(string) {
	if p := a.policy; a.wire.Load().metDead() && p.proxy != nil && p.shadow == nil {
		closeIdle(p.proxy.Transport)
	}
}

// gotConn is called when it has one.
func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	if w := a.wire.Load(); w != nil {
		w.kept.Store(info.Reused)
		w.cut.Store(false)
	}
}

// wroteRequest is called when the request was written to it, or was not.
func (a *attempt) wroteRequest(info httptrace.WroteRequestInfo) {
	w := a.wire.Load()
	switch {
	case w == nil:
	case info.Err != nil:
		w.cut.Store(true)
	default:
		w.sent.Store(true)
	}
}
