// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package exposition reads the page of an engine's /metrics.
//
// [Parse] is a pure function over bytes that an engine sent, and nothing in
// those is trusted: what is missing, broken or absurd is unknown, and time and
// memory are bounded by the length of the input. It is apart from package
// engines because Prometheus' parser brings net/http with it.
package exposition
