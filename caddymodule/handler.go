// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/prompts"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Defaults of the handler.
const (
	defaultMaxBody     = 32 << 20
	defaultMaxBuffered = 1 << 30
)

// maxSize is the largest value of an option of the handler: far beyond every
// use, and small enough that no sum of them overflows.
const maxSize = 1 << 40

// Handler reads LLM requests before they are placed and watches their
// responses, for the `llm_loadaware` selection policy of the reverse proxies
// behind it.
//
// It reads the body of POSTs to the endpoints of vLLM that carry a prompt, so
// that the policy knows how long the prompt is and what of it an upstream may
// have cached, and so that a retry can send the whole body again. Everything
// else passes unread. It sees the first output of the response, and gives the
// prefill tokens that the policy has reserved back at that moment. In the usage
// that a response ends with it finds how long the prompt was and how much of it
// was cached, which corrects the estimates of those to come. It finds the id of
// a response of the Responses API as it passes, so that what refers to it
// reaches the upstream that keeps it.
//
// One handler for a whole site is enough. A second one inside it does nothing.
//
// The request and the response reach the other side byte for byte, and nothing
// that a client sends is answered with an error by this handler. Only a request
// that the `queue` of a policy turns away is: with status 429, when to come back
// in `Retry-After`, and an error in the form of the API.
type Handler struct {
	// MaxBody is how much of a request body is read into memory, in bytes. Of
	// a longer body the first part is looked at while the rest streams
	// through, and it cannot be sent again. Default: 33554432 (32 MiB).
	MaxBody int64 `json:"max_body,omitempty"`

	// MaxBuffered is how much of all request bodies together is held in
	// memory, in bytes. A body that finds no more room is treated as one that
	// is longer than `max_body`. The requests of all configurations and all
	// handlers count. Default: 1073741824 (1 GiB).
	MaxBuffered int64 `json:"max_buffered,omitempty"`

	// MaxPromptTokens caps the estimate of one prompt, in tokens: no request
	// is charged more than the longest context that an upstream takes.
	// Default: 262144.
	MaxPromptTokens int `json:"max_prompt_tokens,omitempty"`

	// MediaTokens is what one image, sound, video or file in a prompt is
	// charged, in tokens. Default: 1024.
	MediaTokens int `json:"media_tokens,omitempty"`

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_loadaware",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision fills in the defaults.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	h.setDefaults()
	return nil
}

func (h *Handler) setDefaults() {
	set(&h.MaxBody, defaultMaxBody)
	set(&h.MaxBuffered, defaultMaxBuffered)
	set(&h.MaxPromptTokens, prompts.DefaultMaxPromptTokens)
	set(&h.MediaTokens, prompts.DefaultMediaTokens)
}

// Validate checks the ranges of the options.
func (h *Handler) Validate() error {
	for _, option := range []struct {
		name  string
		value int64
	}{
		{"max_body", h.MaxBody},
		{"max_buffered", h.MaxBuffered},
		{"max_prompt_tokens", int64(h.MaxPromptTokens)},
		{"media_tokens", int64(h.MediaTokens)},
	} {
		if option.value < 1 || option.value > maxSize {
			return fmt.Errorf("%s must be from 1 to %d", option.name, int64(maxSize))
		}
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	a := attemptOf(r)
	if a.watched {
		return next.ServeHTTP(w, r)
	}
	a.watched, a.handler = true, h
	rw := newResponseWriter(w, a, r.Context())

	// set when next returns: when it panics instead, which Caddy does to abort
	// a stream whose upstream has died, the request ends here all the same
	err := errAborted
	defer func() { a.finish(r, rw, err) }()
	h.read(r, a)
	err = next.ServeHTTP(rw, r)
	if err != nil && a.refusal != nil && rw.status == 0 {
		a.refuse(rw, r.Context())
		err = nil
	}
	return err
}

// errAborted is the error of a request whose handlers panicked.
var errAborted = errors.New("aborted")

// read finds out what the request asks of an engine, and reads its body where
// that carries a prompt.
func (h *Handler) read(r *http.Request, a *attempt) {
	if a.known {
		return
	}
	limits := prompts.Limits{MaxPromptTokens: h.MaxPromptTokens, MediaTokens: h.MediaTokens}
	a.look(r, limits)
	if !a.prefills || r.Body == nil || r.Body == http.NoBody {
		return
	}
	if !a.endpoint.Reads {
		a.body = watchBody(r)
		return
	}
	a.body, a.whole = readBody(r, h.MaxBody, h.MaxBuffered)
	// in place, as everyone before has this very request
	*r = *a.traced(r)
	a.request, a.standIn = r, r.Body
	a.prompt = a.endpoint.Read(a.body.bytes(), a.whole, r.Header.Get("Content-Type"), limits)
	if !a.whole {
		unread := r.ContentLength - int64(len(a.body.bytes()))
		a.prompt.Tokens = min(a.prompt.Tokens+prompts.BySize(unread, limits), h.MaxPromptTokens)
	}
	if c := h.logger.Check(zapcore.DebugLevel, "read request"); c != nil {
		c.Write(
			zap.String("endpoint", a.endpoint.Name),
			zap.Int64("content_length", r.ContentLength),
			zap.Bool("whole", a.whole),
			zap.Bool("parsed", a.prompt.Parsed),
			zap.Int("prompt_tokens", a.prompt.Tokens),
		)
	}
}

// finish ends what the request holds and notes what became of it.
func (a *attempt) finish(r *http.Request, w *responseWriter, err error) {
	a.annotate(r.Context())
	a.restoreStatus(r.Context())
	w.end()
	cause := causeOf(r.Context(), w, err)
	if cause == fleet.CauseError {
		a.fail(r.Context(), fleet.CauseError, statusOf(w, err))
	}
	a.takeUsage(w, cause)
	a.end(cause)
	a.watched = false
	if err != nil && w.status == 0 {
		// the error routes may proxy the request again, and need its body
		if a.whole && a.body.begun.Load() {
			r.Body = a.body.rewound(r.Body)
			a.request, a.standIn = r, r.Body
		}
		context.AfterFunc(r.Context(), a.body.drop)
		return
	}
	a.body.drop()
}

// statusOf is the status that a failed request ends with, 0 where there is none
// or the response broke off after a good one.
func statusOf(w *responseWriter, err error) int {
	var failure caddyhttp.HandlerError
	switch {
	case w.status >= 400:
		return w.status
	case w.status == 0 && errors.As(err, &failure):
		return failure.StatusCode
	}
	return 0
}

// causeOf tells what ended a request. A client may leave as soon as it has the
// last byte, so a context that is done means nothing where all went well. One
// that breaks off its body has left too.
func causeOf(ctx context.Context, w *responseWriter, err error) fleet.Cause {
	switch {
	case w.broken:
		return fleet.CauseError
	case err == nil && w.status != 0 && w.status < 400 && !w.writeFailed:
		return fleet.CauseEnd
	case ctx.Err() != nil || w.writeFailed || w.attempt.body.broken():
		return fleet.CauseCanceled
	case err == nil && w.status < 400:
		return fleet.CauseEnd
	}
	return fleet.CauseError
}

// look finds out from path, method and headers what kind of request this is.
func (a *attempt) look(r *http.Request, limits prompts.Limits) {
	a.known = true
	a.maxTokens = limits.MaxPromptTokens
	endpoint, listed := prompts.Lookup(r.URL.Path)
	a.endpoint = endpoint
	if listed && !endpoint.Prefills {
		a.response = prompts.ResponseID(r.URL.Path)
	}
	if r.Method != http.MethodPost || listed && !endpoint.Prefills {
		return
	}
	// an endpoint that nobody lists is charged by its size: whatever it does,
	// a long body is more work than a short one
	a.prefills = listed || r.ContentLength != 0
	a.prompt = prompts.Prompt{Prefills: a.prefills, Tokens: prompts.BySize(r.ContentLength, limits)}
	if caddyhttp.IsIncremental(r.Header) || r.Header.Get("Upgrade") != "" {
		// the client wants its request forwarded as it comes, or may go on in
		// another protocol
		a.endpoint.Reads = false
	}
}

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
