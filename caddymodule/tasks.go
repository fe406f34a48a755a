// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"runtime/debug"
	"sync"

	"go.uber.org/zap"
)

// tasks are goroutines that run beside the requests, from the start of a
// configuration to its end.
type tasks struct {
	// life is that of the configuration. It ends before the first Cleanup of
	// any module, so no task uses a module that is gone.
	life context.Context

	mu      sync.Mutex
	cancel  context.CancelFunc // nil until begin
	ended   bool
	running sync.WaitGroup
}

// begin calls start, which lets tasks go that return when ctx ends. It does
// nothing after the first call and after end.
func (t *tasks) begin(start func(ctx context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(t.life)
	t.cancel = cancel
	start(ctx)
}

// end ends the tasks and waits for that. It reports false where none have ever
// begun.
func (t *tasks) end() (began bool) {
	t.mu.Lock()
	cancel := t.cancel
	t.ended = true
	t.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel()
	t.running.Wait()
	return true
}

// logPanic is deferred by what runs beside the requests, which must not take the
// server down, and logs what it has recovered from.
func logPanic(logger *zap.Logger, what string) {
	if err := recover(); err != nil {
		logger.Error(what+" panicked", zap.Any("error", err), zap.ByteString("stack", debug.Stack()))
	}
}
