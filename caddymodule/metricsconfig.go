// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/fleet"
)

// What is not set of Metrics.
const (
	defaultMetricsPath     = "/metrics"
	defaultMetricsInterval = time.Second
	defaultMetricsTimeout  = 3 * time.Second
)

// leastInterval keeps the questions from being work of their own.
const leastInterval = 100 * time.Millisecond

// Metrics says how the engines are asked about themselves. Every upstream is
// asked for its metrics, in vLLM's form, and every ten seconds for the list of
// its models at `/v1/models`. The questions go through the transport of the
// policy's reverse proxy, so they use its TLS, its HTTP versions and its unix
// sockets.
//
// What an engine says corrects what is counted here: requests from elsewhere, a
// full KV cache, a restart. An upstream that says nothing of use is treated as
// if it had not been asked.
//
// One without metrics is asked for `/health` every second while it cools down, also
// where the questions are turned off: no request is to find out whether it is back.
//
// An upstream whose address has placeholders is not asked. Where policies of
// the same fleet name the same upstream, the one that was loaded last asks it.
type Metrics struct {
	// Disabled turns the questions off, those for models too. Only an upstream
	// that cools down is asked for its health then. Default: false.
	Disabled bool `json:"disabled,omitempty"`

	// Path is where the metrics are, with a query if there is one.
	// Default: `/metrics`.
	Path string `json:"path,omitempty"`

	// Interval is the time from one answer to the next question, give or take a
	// tenth; at least 100ms. A report is believed for three intervals, or for
	// the interval and the timeout if that is longer. An upstream without
	// metrics of vLLM is asked every minute. Default: 1s.
	Interval caddy.Duration `json:"interval,omitempty"`

	// Timeout is how long an answer may take to its last byte. Default: 3s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Port is the port of the upstream's host that the metrics are on, if it is
	// another than the upstream's own; for a unix socket it is one of
	// localhost. Models are asked for at the upstream itself. Default: 0, which
	// is the upstream's own.
	Port int `json:"port,omitempty"`

	// Headers are sent with each question, for models too. vLLM asks for its
	// API key where it lists its models: `Authorization: Bearer
	// {env.VLLM_API_KEY}`. Global placeholders are replaced.
	Headers http.Header `json:"headers,omitempty"`
}

func (m *Metrics) setDefaults() {
	set(&m.Path, defaultMetricsPath)
	set(&m.Interval, caddy.Duration(defaultMetricsInterval))
	set(&m.Timeout, caddy.Duration(defaultMetricsTimeout))
}

// validate checks the ranges of the options.
func (m *Metrics) validate() error {
	if _, err := parsePath(m.Path); err != nil {
		return fmt.Errorf("metrics path '%s': %w", m.Path, err)
	}
	if time.Duration(m.Interval) < leastInterval {
		return fmt.Errorf("metrics interval must be at least %s", leastInterval)
	}
	if m.Timeout <= 0 {
		return fmt.Errorf("metrics timeout must be positive")
	}
	if m.Port < 0 || m.Port > maxPort {
		return fmt.Errorf("metrics port must be from 1 to %d", maxPort)
	}
	for field := range m.Headers {
		if field == "" {
			return fmt.Errorf("metrics headers must have names")
		}
	}
	return nil
}

const maxPort = 65535

// What is wrong with a value that is well formed.
var (
	errNotPath   = errors.New("must start with /")
	errInterval  = fmt.Errorf("must be at least %s", leastInterval)
	errNotPort   = fmt.Errorf("must be from 1 to %d", maxPort)
	errNotModels = errors.New("must be list, prefer or off")
)

func parsePath(s string) (string, error) {
	if !strings.HasPrefix(s, "/") {
		return s, errNotPath
	}
	_, err := url.ParseRequestURI(s)
	return s, err
}

// modelsModes are what the models option takes.
var modelsModes = map[string]fleet.Models{
	"list":   fleet.ModelsList,
	"prefer": fleet.ModelsPrefer,
	"off":    fleet.ModelsOff,
}

func parseModels(s string) (string, error) {
	if _, ok := modelsModes[s]; !ok {
		return s, errNotModels
	}
	return s, nil
}
