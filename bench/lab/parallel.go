// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
)

// parallel does n things on all processors and returns when they are done.
func parallel(n int, do func(i int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), n) {
		wait.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}

// progress tells on the terminal how far the work is. It is safe for
// concurrent use.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	begun time.Time
	runs  int
}

func newProgress(out io.Writer) *progress { return &progress{out: out, begun: time.Now()} }

// ran counts a run and tells what it found.
func (p *progress) ran(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs++
	fmt.Fprintf(p.out, "%6.1fs  run %4d  ", time.Since(p.begun).Seconds(), p.runs)
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) done() {
	fmt.Fprintf(p.out, "%d runs in %.1f s\n\n", p.runs, time.Since(p.begun).Seconds())
}
