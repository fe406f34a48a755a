// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"runtime"
	"slices"
	"strings"
)

// succeeds waits until those who listened before a reload do so no more. Caddy says
// that a config is loaded a moment earlier, and what connects in that moment may be
// reset. If nobody has begun to listen since, nothing was loaded.
func (s *server) succeeds(before []string) {
	s.t.Helper()
	old := func(listener string) bool { return slices.Contains(before, listener) }
	now := listening()
	if !slices.ContainsFunc(now, func(listener string) bool { return !old(listener) }) {
		return
	}
	eventually(s.t, func() bool { return !slices.ContainsFunc(listening(), old) },
		func() string { return "the config before still listens" })
}

// listening names those who accept connections for Caddy's sites in this process.
func listening() (goroutines []string) {
	for _, stack := range stacks() {
		if strings.Contains(stack, "net/http.(*Server).Serve(") && strings.Contains(stack, "caddyhttp.(*App).Start") {
			name, _, _ := strings.Cut(stack, "[")
			goroutines = append(goroutines, name)
		}
	}
	return goroutines
}

// stacks are those of all goroutines.
func stacks() []string {
	for size := 1 << 20; ; size *= 2 {
		text := make([]byte, size)
		if n := runtime.Stack(text, true); n < size {
			return strings.Split(string(text[:n]), "\n\n")
		}
	}
}
