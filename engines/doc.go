// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package engines reads what an engine reports of itself, and keeps what a
// fleet needs to know of it: load from elsewhere, capacity, models and prefill
// rate.
//
// [ParseModels] and [ReadUsage] are pure functions over bytes that an engine
// sent, and nothing in those is trusted: what is missing, broken or absurd is
// unknown, and time and memory are bounded by the length of the input. Package
// exposition does the same for the page of /metrics.
//
// The package does no input or output of its own. It takes bytes and times as
// arguments, and knows neither Caddy nor HTTP.
//
// Nothing here is safe for concurrent use: what is kept of an engine is read
// and written under the lock of package fleet. The functions that only parse
// share nothing and may run anywhere.
package engines
