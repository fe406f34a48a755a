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
func (a *attempt) traced(r *http.Request) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if w := a.wire.Load(); w != nil {
				w.kept.Store(info.Reused)
				w.cut.Store(false)
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			w := a.wire.Load()
			switch {
			case w == nil:
			case info.Err != nil:
				w.cut.Store(true)
			default:
				w.sent.Store(true)
			}
		},
	}))
}
