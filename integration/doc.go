// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package integration tests the modules through a real Caddy over HTTP.
//
// Caddy runs in the test's process and takes its configuration through its
// admin API, as in production. There is one Caddy in a process, so the tests
// of this package do not run in parallel. All servers listen on loopback, on
// ports that the kernel gives.
package integration
