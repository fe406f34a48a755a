// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(StatusHandler))
}

// Defaults and bounds of the status page.
const (
	defaultStatusInterval = caddy.Duration(time.Second)
	minStatusInterval     = caddy.Duration(100 * time.Millisecond)
	maxStatusInterval     = caddy.Duration(time.Minute)
	defaultMaxViewers     = 32
)

// StatusHandler answers with a page that shows a fleet at work: the load and the
// state of each upstream, the sessions, the last placements with their reasons
// and the time to first output. The page is for operators. It asks for nobody's
// password: put it where only they come.
//
// It needs no path of its own. Whatever reaches the handler is answered with the
// page, and its files and events come from the same path with another query. So
// it works behind every prefix, stripped or not, and on a site of its own. Only
// GET and HEAD are allowed.
//
// The events are server-sent, one for each interval. They are made once for all
// who watch, and not at all while nobody does. They end with the configuration,
// and the page then connects to the next one. Neither a prompt nor the value
// that names a session is in them.
type StatusHandler struct {
	// Fleet names the fleet, see the `llm_loadaware` selection policy. It need
	// not be in use when the config is loaded. Default: `default`.
	Fleet string `json:"fleet,omitempty"`

	// Interval is the time between two events, from 100ms to 1m. Default: 1s.
	Interval caddy.Duration `json:"interval,omitempty"`

	// MaxViewers is how many may watch at once. One more is told so, and comes
	// again by itself. Default: 32.
	MaxViewers int `json:"max_viewers,omitempty"`

	hub *statusHub

	// life ends with the configuration, before its servers wait for what they
	// still serve
	life context.Context
	end  context.CancelFunc

	viewers atomic.Int64
	cleanup sync.Once
}

// CaddyModule returns the Caddy module information.
func (*StatusHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_loadaware_status",
		New: func() caddy.Module { return new(StatusHandler) },
	}
}

// Provision fills in the defaults, and acquires the hub last.
func (h *StatusHandler) Provision(ctx caddy.Context) error {
	app, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("getting events app: %w", err)
	}
	h.begin()
	// a server that stops waits for its requests before anything is cleaned up.
	// Where it is too late for this, as in a handler made at run time, Cleanup
	// does the same a little later
	_ = app.(*caddyevents.App).On("stopping", &lifeHandler{h.end})
	return nil
}

func (h *StatusHandler) begin() {
	set(&h.Fleet, defaultFleet)
	set(&h.Interval, defaultStatusInterval)
	set(&h.MaxViewers, defaultMaxViewers)
	h.life, h.end = context.WithCancel(context.Background())
	h.hub = acquireStatusHub(h.Fleet, time.Duration(h.Interval))
}

// Validate checks the ranges of the options.
func (h *StatusHandler) Validate() error {
	if h.Interval < minStatusInterval || h.Interval > maxStatusInterval {
		return fmt.Errorf("interval must be from 100ms to 1m")
	}
	if h.MaxViewers < 1 {
		return fmt.Errorf("max_viewers must be at least 1")
	}
	return nil
}

// Cleanup ends the events and gives the hub back.
func (h *StatusHandler) Cleanup() error {
	if h.hub == nil {
		return nil
	}
	h.cleanup.Do(func() {
		h.end()
		h.hub.release()
	})
	return nil
}

func parseStatusHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(StatusHandler)
	err := handler.UnmarshalCaddyfile(h.Dispenser)
	return handler, err
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llm_loadaware_status [<matcher>] [<fleet>] {
//	    interval    <duration>
//	    max_viewers <n>
//	}
//
// Everything has a default: the fleet default, 1s and 32.
func (h *StatusHandler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := parseFleet(d, &h.Fleet); err != nil {
		return err
	}
	return parseBlock(d, 0, h.unmarshalOption)
}

func (h *StatusHandler) unmarshalOption(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "interval":
		return parseValue(d, &h.Interval, parseStatusInterval)
	case "max_viewers":
		return parseValue(d, &h.MaxViewers, parsePositive)
	}
	return d.Errf("unrecognized option '%s'", d.Val())
}

func parseStatusInterval(s string) (caddy.Duration, error) {
	d, err := parseDuration(s)
	if err == nil && (d < minStatusInterval || d > maxStatusInterval) {
		err = errStatusInterval
	}
	return d, err
}

// ServeHTTP implements caddyhttp.MiddlewareHandler. The query says what is
// wanted: the events, a file of the page, or the page itself.
func (h *StatusHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return caddyhttp.Error(http.StatusMethodNotAllowed, errMethod)
	}
	guardStatusPage(w.Header())
	query := r.URL.Query()
	if query.Has("events") {
		return h.serveEvents(w, r)
	}
	serveStatusFile(w, r, query)
	return nil
}

// Interface guards
var (
	_ caddy.Module                = (*StatusHandler)(nil)
	_ caddy.Provisioner           = (*StatusHandler)(nil)
	_ caddy.Validator             = (*StatusHandler)(nil)
	_ caddy.CleanerUpper          = (*StatusHandler)(nil)
	_ caddyhttp.MiddlewareHandler = (*StatusHandler)(nil)
	_ caddyfile.Unmarshaler       = (*StatusHandler)(nil)
)
