// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-llm/loadaware/fleet"
)

// The least and the most that a client is told to wait.
const (
	leastRetryAfter = 1
	mostRetryAfter  = 60
)

// jitter is by which part a client may be told to wait longer, so that those
// who were turned away together do not come back together.
const jitter = 0.25

// retryAfterSeconds returns the value of Retry-After for an estimate. random is
// from 0 to 1.
func retryAfterSeconds(estimate time.Duration, random float64) int {
	seconds := math.Ceil(estimate.Seconds() * (1 + jitter*random))
	return int(min(max(seconds, leastRetryAfter), mostRetryAfter))
}

// retryAfter returns how long the value of a Retry-After field asks to wait from
// now on, 0 where it does not say.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// statusClientGone is what Caddy's proxy writes for a client that has left.
const statusClientGone = 499

// refuse answers a request that was turned away, in place of the error that
// Caddy makes of it, in the form of the API that the client speaks. Nothing of a
// response must have been written.
func (a *attempt) refuse(w http.ResponseWriter, ctx context.Context) {
	if ctx.Err() != nil {
		w.WriteHeader(statusClientGone)
		return
	}
	seconds := retryAfterSeconds(a.refusal.retryAfter, rand.Float64())
	// strings and numbers can always be encoded
	body, _ := json.Marshal(refusalBody(a.endpoint.Name, refusalMessage(a.refusal.cause, seconds)))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	w.WriteHeader(http.StatusTooManyRequests)
	// a client that cannot be written to needs no answer
	_, _ = w.Write(body)
}

func refusalMessage(cause fleet.Refusal, seconds int) string {
	reason := "too many requests are waiting"
	if cause == fleet.RefusedTimeout {
		reason = "no upstream had room in time"
	}
	return fmt.Sprintf("%s, try again in %d seconds", reason, seconds)
}

// refusalBody is the error in the words of Anthropic for its Messages API, and
// of OpenAI for everything else.
func refusalBody(endpoint, message string) any {
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Code    int    `json:"code,omitempty"`
	}
	if endpoint == "messages" {
		return struct {
			Type  string `json:"type"`
			Error detail `json:"error"`
		}{"error", detail{Type: "rate_limit_error", Message: message}}
	}
	return struct {
		Error detail `json:"error"`
	}{detail{Type: "rate_limit_error", Message: message, Code: http.StatusTooManyRequests}}
}
