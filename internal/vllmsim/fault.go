// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

// RequestFault is what goes wrong with a request that carries a prompt.
type RequestFault string

// The request faults. Unstreamed responses have no headers before their end, so for them FaultHangAfterHeaders is
// FaultHangBeforeHeaders, and FaultErrorEvent is status 500.
const (
	// FaultNone serves the request.
	FaultNone RequestFault = ""
	// FaultStatus answers with Fault.Status and an error body as vLLM writes it, without the engine.
	FaultStatus RequestFault = "status"
	// FaultErrorEvent answers with status 200 and a stream that holds nothing but an error.
	FaultErrorEvent RequestFault = "error_event"
	// FaultHangAfterHeaders sends the headers of a stream and nothing else until the client leaves.
	FaultHangAfterHeaders RequestFault = "hang_after_headers"
	// FaultHangBeforeHeaders sends nothing until the client leaves.
	FaultHangBeforeHeaders RequestFault = "hang_before_headers"
	// FaultResetBeforeHeaders resets the connection once the request is read.
	FaultResetBeforeHeaders RequestFault = "reset_before_headers"
	// FaultResetMidStream resets the connection in place of the event after Fault.AfterEvents, or in the middle of an
	// unstreamed body.
	FaultResetMidStream RequestFault = "reset_mid_stream"
)

// MetricsFault is what goes wrong with /metrics.
type MetricsFault string

// The metrics faults.
const (
	// MetricsFine serves the metrics.
	MetricsFine MetricsFault = ""
	// MetricsMissing is status 404.
	MetricsMissing MetricsFault = "missing"
	// MetricsError is status 500.
	MetricsError MetricsFault = "error"
	// MetricsFrozen repeats the page as it was when the fault was set.
	MetricsFrozen MetricsFault = "frozen"
	// MetricsZeros serves the page of an engine that has never run. The start time and the cache's size stay.
	MetricsZeros MetricsFault = "zeros"
	// MetricsGarbage is status 200 and bytes that are no metrics.
	MetricsGarbage MetricsFault = "garbage"
	// MetricsHuge serves the metrics and goes on with series of no meaning, 50 MB in all.
	MetricsHuge MetricsFault = "huge"
)

// ModelsFault is what goes wrong with /v1/models.
type ModelsFault string

// The models faults.
const (
	// ModelsFine serves the list.
	ModelsFine ModelsFault = ""
	// ModelsMissing is status 404.
	ModelsMissing ModelsFault = "missing"
	// ModelsError is status 500.
	ModelsError ModelsFault = "error"
	// ModelsGarbage is status 200 and bytes that are no JSON.
	ModelsGarbage ModelsFault = "garbage"
)

// Fault is everything that is wrong with a server. The zero value is a sound server.
type Fault struct {
	// Request spoils requests that carry a prompt; those already running are not touched.
	Request RequestFault `json:"request,omitempty"`
	// Status is the status of FaultStatus. Default 503.
	Status int `json:"status,omitempty"`
	// RetryAfter is the Retry-After header of FaultStatus, in seconds. vLLM sends none; what stands between it and Caddy
	// may. Default 0: no header.
	RetryAfter int `json:"retry_after,omitempty"`
	// AfterEvents is how many events of a stream FaultResetMidStream lets through. Default 0.
	AfterEvents int `json:"after_events,omitempty"`
	// DelayMillis is how long a spoiled request waits before anything happens. Default 0.
	DelayMillis int `json:"delay_ms,omitempty"`
	// Times is how many requests are spoiled before Request is cleared. Default 0: all.
	Times int `json:"times,omitempty"`

	// Slow makes every step of the engine take that many times as long. Default 1.
	Slow float64 `json:"slow,omitempty"`
	// Stall keeps the engine from beginning another step: streams stop, new ones get headers and no event, /health
	// stays 200 and the gauges stand still.
	Stall bool `json:"stall,omitempty"`
	// Sleep does what vLLM's /sleep does: Stall, an empty cache, and vllm:engine_sleep_state says so.
	Sleep bool `json:"sleep,omitempty"`
	// Health is the status of /health and /ping. Default 200.
	Health int `json:"health,omitempty"`

	// Metrics spoils /metrics.
	Metrics MetricsFault `json:"metrics,omitempty"`
	// MetricsDelayMillis is how long /metrics takes. Default 0. The wait ends with the client or the server.
	MetricsDelayMillis int `json:"metrics_delay_ms,omitempty"`
	// Report makes /metrics lie, except for the pages of MetricsFrozen, MetricsZeros and MetricsGarbage. What it points
	// to must not change while it is in force.
	Report Report `json:"report,omitzero"`

	// Models spoils /v1/models, and nothing else knows of it.
	Models ModelsFault `json:"models,omitempty"`
}

// valid reports whether the three kinds are known.
func (f Fault) valid() bool {
	switch f.Request {
	case FaultNone, FaultStatus, FaultErrorEvent, FaultHangAfterHeaders, FaultHangBeforeHeaders,
		FaultResetBeforeHeaders, FaultResetMidStream:
	default:
		return false
	}
	switch f.Metrics {
	case MetricsFine, MetricsMissing, MetricsError, MetricsFrozen, MetricsZeros, MetricsGarbage, MetricsHuge:
	default:
		return false
	}
	switch f.Models {
	case ModelsFine, ModelsMissing, ModelsError, ModelsGarbage:
		return true
	default:
		return false
	}
}

// SetFault replaces the fault in force; Fault{} repairs the server. It affects requests that arrive afterwards, and
// the engine from its next step on. Unknown kinds do nothing.
func (s *Server) SetFault(f Fault) {
	frozen := s.reportedPage(s.Fault().Report)
	s.mu.Lock()
	defer s.mu.Unlock()
	asleep := s.fault.Sleep
	// a fault that is set again keeps the page it froze first
	if f.Metrics == MetricsFrozen && s.fault.Metrics != MetricsFrozen {
		s.frozen = frozen
	}
	s.fault = f
	s.ranks.pause(f.Stall || f.Sleep)
	s.ranks.with(func(e *Engine) {
		e.SetSlowdown(f.Slow)
		if f.Sleep && !asleep {
			e.DropCache()
		}
	})
}

// Fault returns the fault in force.
func (s *Server) Fault() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// takeFault returns the fault for one request, which may use up its Times.
func (s *Server) takeFault() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fault
	if f.Request != FaultNone && f.Times > 0 {
		s.fault.Times--
		if s.fault.Times == 0 {
			s.fault.Request = FaultNone
		}
	}
	return f
}
