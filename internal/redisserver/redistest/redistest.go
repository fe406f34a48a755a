// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package redistest runs Redis for tests. They are skipped where there is none.
package redistest

import (
	"errors"
	"testing"

	"github.com/caddy-llm/loadaware/internal/redisserver"
)

// Start runs a server until the end of the test, as [redisserver.Start] does.
func Start(t testing.TB, addr string, options ...string) *redisserver.Server {
	t.Helper()
	server, err := redisserver.Start(addr, options...)
	return until(t, server, err)
}

// StartSentinel runs a Sentinel until the end of the test, as
// [redisserver.StartSentinel] does.
func StartSentinel(t testing.TB, config string) *redisserver.Server {
	t.Helper()
	server, err := redisserver.StartSentinel(config)
	return until(t, server, err)
}

func until(t testing.TB, server *redisserver.Server, err error) *redisserver.Server {
	t.Helper()
	Check(t, err)
	// it fails where a test has stopped the server
	t.Cleanup(func() { _ = server.Stop() })
	return server
}

// Check skips a test whose error is that no server is installed, and fails it with
// any other.
func Check(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, redisserver.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
