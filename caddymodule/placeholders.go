// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddyserver/caddy/v2"
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

// report sets the placeholders of the current placement.
func (a *attempt) report(ctx context.Context, key sessions.Key) {
	a.session = shortSession(key)
	repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return
	}
	res := a.current
	reason := ""
	if a.prefills {
		reason = res.Reason().String()
	}
	repl.Set(placeholderReason, reason)
	repl.Set(placeholderUpstream, res.Upstream())
	repl.Set(placeholderModel, a.prompt.Model)
	repl.Set(placeholderPromptTokens, res.PromptTokens())
	repl.Set(placeholderUncachedTokens, res.UncachedTokens())
	repl.Set(placeholderSession, a.session)
	repl.Set(placeholderAttempts, a.count)
	if a.policy.Queue != nil {
		a.reportQueue(repl)
	}
	if a.policy.shadow != nil {
		shadow := res.Shadow()
		repl.Set(placeholderShadowUpstream, shadow.Upstream)
		repl.Set(placeholderShadowReason, reasonOf(shadow))
		repl.Set(placeholderShadowUncached, shadow.UncachedTokens)
	}
}

// reportQueue sets the placeholder for how long the request has waited.
func (a *attempt) reportQueue(repl *caddy.Replacer) {
	repl.Set(placeholderQueue, a.queued.Seconds()*1e3)
}

// shortSession is enough of a session's hash to tell sessions apart in a log.
func shortSession(key sessions.Key) string {
	if key == 0 {
		return ""
	}
	return fmt.Sprintf("%08x", uint64(key)>>32)
}

// annotate sets what is known at the end of a request: a placeholder for the
// time to first output, and one field for the access log, which also the log
// of an aborted stream has.
func (a *attempt) annotate(ctx context.Context) {
	if a.current == nil {
		return
	}
	fields := logFields{
		reason:         "",
		upstream:       a.current.Upstream(),
		model:          a.prompt.Model,
		promptTokens:   a.current.PromptTokens(),
		uncachedTokens: a.current.UncachedTokens(),
		session:        a.session,
		attempts:       a.count,
		queued:         a.queued.Seconds() * 1e3,
		shadow:         a.current.Shadow(),
		firstOutput:    -1,
	}
	if a.prefills {
		fields.reason = a.current.Reason().String()
	}
	if !a.firstOutput.IsZero() {
		fields.firstOutput = a.firstOutput.Sub(a.started).Seconds() * 1e3
		if repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
			repl.Set(placeholderFirstOutput, fields.firstOutput)
		}
	}
	if extra, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.Object("llm_loadaware", fields))
	}
}

// logFields is the access log's record of a placement, with the names of the
// placeholders.
type logFields struct {
	reason, upstream, model, session       string
	promptTokens, uncachedTokens, attempts int
	shadow                                 fleet.Choice
	queued, firstOutput                    float64
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (f logFields) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("upstream", f.upstream)
	if f.reason != "" {
		enc.AddString("reason", f.reason)
		enc.AddInt("prompt_tokens", f.promptTokens)
		enc.AddInt("uncached_tokens", f.uncachedTokens)
	}
	if f.model != "" {
		enc.AddString("model", f.model)
	}
	if f.session != "" {
		enc.AddString("session", f.session)
	}
	if f.shadow.Upstream != "" {
		enc.AddString("shadow_upstream", f.shadow.Upstream)
		enc.AddString("shadow_reason", reasonOf(f.shadow))
		enc.AddInt("shadow_uncached_tokens", f.shadow.UncachedTokens)
	}
	enc.AddInt("attempts", f.attempts)
	if f.queued > 0 {
		enc.AddFloat64("queue_ms", f.queued)
	}
	if f.firstOutput >= 0 {
		enc.AddFloat64("first_output_ms", f.firstOutput)
	}
	return nil
}
