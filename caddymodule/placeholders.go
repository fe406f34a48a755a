// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/sessions"
)

// The placeholders that a placement sets, and the last one at the end of the
// request. See the table at LoadAwareSelection.
const (
	placeholderReason         = "http.llm_loadaware.reason"
	placeholderUpstream       = "http.llm_loadaware.upstream"
	placeholderModel          = "http.llm_loadaware.model"
	placeholderPromptTokens   = "http.llm_loadaware.prompt_tokens"
	placeholderUncachedTokens = "http.llm_loadaware.uncached_tokens"
	placeholderSession        = "http.llm_loadaware.session"
	placeholderQueue          = "http.llm_loadaware.queue_ms"
	placeholderShadowUpstream = "http.llm_loadaware.shadow_upstream"
	placeholderShadowReason   = "http.llm_loadaware.shadow_reason"
	placeholderShadowUncached = "http.llm_loadaware.shadow_uncached_tokens"
	placeholderAttempts       = "http.llm_loadaware.attempts"
	placeholderFirstOutput    = "http.llm_loadaware.first_output_ms"
)

// placementNote is what a request's placement is told with, in the placeholders and in the
// access log. It is kept with the attempt, and nothing is formatted or stored per
// placeholder for a request that nobody asks of.
type placementNote struct {
	reason, upstream, model                string
	session                                sessions.Key
	promptTokens, uncachedTokens, attempts int
	shadow                                 fleet.Choice
	queued, firstOutput                    float64 // in milliseconds

	// has says which of them there are
	has tellings
}

// tellings are groups of what can be told.
type tellings uint8

const (
	tellsPlacement tellings = 1 << iota
	tellsQueue
	tellsShadow
	tellsFirstOutput
)

// placeholder implements caddy.ReplacerFunc.
func (t *placementNote) placeholder(key string) (any, bool) {
	value, group := t.value(key)
	if t.has&group == 0 {
		return nil, false
	}
	return value, true
}

// value is that of a placeholder, of group 0 where there is no such.
func (t *placementNote) value(key string) (any, tellings) {
	switch key {
	case placeholderReason:
		return t.reason, tellsPlacement
	case placeholderUpstream:
		return t.upstream, tellsPlacement
	case placeholderModel:
		return t.model, tellsPlacement
	case placeholderPromptTokens:
		return t.promptTokens, tellsPlacement
	case placeholderUncachedTokens:
		return t.uncachedTokens, tellsPlacement
	case placeholderSession:
		return shortSession(t.session), tellsPlacement
	case placeholderAttempts:
		return t.attempts, tellsPlacement
	case placeholderQueue:
		return t.queued, tellsQueue
	case placeholderShadowUpstream:
		return t.shadow.Upstream, tellsShadow
	case placeholderShadowReason:
		return reasonOf(t.shadow), tellsShadow
	case placeholderShadowUncached:
		return t.shadow.UncachedTokens, tellsShadow
	case placeholderFirstOutput:
		return t.firstOutput, tellsFirstOutput
	}
	return nil, 0
}

// report tells of the current placement.
func (a *attempt) report(key sessions.Key) {
	t, res := &a.note, a.current
	t.reason = ""
	if a.prefills {
		t.reason = res.Reason().String()
	}
	t.upstream = res.Upstream()
	t.model = a.prompt.Model
	t.promptTokens = res.PromptTokens()
	t.uncachedTokens = res.UncachedTokens()
	t.session = key
	t.attempts = a.count
	t.has |= tellsPlacement
	t.shadow = fleet.Choice{}
	if a.policy.shadow != nil {
		t.shadow = res.Shadow()
		t.has |= tellsShadow
	}
	t.queued = a.queued.Seconds() * 1e3
	if a.policy.Queue != nil {
		t.has |= tellsQueue
	}
}

// reportQueue tells for how long a request has waited that was turned away.
func (a *attempt) reportQueue() {
	a.note.queued = a.queued.Seconds() * 1e3
	a.note.has |= tellsQueue
}

// shortSession is enough of a session's hash to tell sessions apart in a log.
func shortSession(key sessions.Key) string {
	if key == 0 {
		return ""
	}
	return fmt.Sprintf("%08x", uint64(key)>>32)
}

// annotate tells what is known at the end of a request: the time to first output,
// and one field for the access log, which also the log of an aborted stream has.
func (a *attempt) annotate(ctx context.Context) {
	if a.current == nil {
		return
	}
	if !a.firstOutput.IsZero() {
		a.note.firstOutput = a.firstOutput.Sub(a.started).Seconds() * 1e3
		a.note.has |= tellsFirstOutput
	}
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok && server.Logs == nil {
		return // there is no access log
	}
	if extra, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.Object("llm_loadaware", &a.note))
	}
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (t *placementNote) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("upstream", t.upstream)
	if t.reason != "" {
		enc.AddString("reason", t.reason)
		enc.AddInt("prompt_tokens", t.promptTokens)
		enc.AddInt("uncached_tokens", t.uncachedTokens)
	}
	if t.model != "" {
		enc.AddString("model", t.model)
	}
	if t.session != 0 {
		enc.AddString("session", shortSession(t.session))
	}
	if t.shadow.Upstream != "" {
		enc.AddString("shadow_upstream", t.shadow.Upstream)
		enc.AddString("shadow_reason", reasonOf(t.shadow))
		enc.AddInt("shadow_uncached_tokens", t.shadow.UncachedTokens)
	}
	enc.AddInt("attempts", t.attempts)
	if t.queued > 0 {
		enc.AddFloat64("queue_ms", t.queued)
	}
	if t.has&tellsFirstOutput != 0 {
		enc.AddFloat64("first_output_ms", t.firstOutput)
	}
	return nil
}
