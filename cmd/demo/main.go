// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Command demo shows the policy at work without a GPU: it starts three
// simulated vLLM servers and Caddy with Caddyfile.example, sends a burst of
// cold prompts and a conversation, and prints where they went and how long the
// first token took, beside the same with least_conn. Then it keeps serving, with a
// few agents and the live page to watch them on.
//
// Everything listens on loopback.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	once := flag.Bool("once", false, "exit after the comparison instead of serving on")
	speed := flag.Float64("speed", 10, "how many times faster than real time the simulated servers run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *speed, *once); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run compares the policies and, unless once is set, serves until ctx ends.
func run(ctx context.Context, out io.Writer, speed float64, once bool) error {
	if !(speed > 0) {
		return fmt.Errorf("speed must be positive")
	}
	baseline, err := startStage("least_conn", speed)
	if err != nil {
		return err
	}
	before, err := measure(ctx, out, baseline)
	if err := errors.Join(err, baseline.Stop()); err != nil {
		return err
	}
	ours, err := startStage("llm_loadaware", speed)
	if err != nil {
		return err
	}
	after, err := measure(ctx, out, ours)
	if err == nil {
		report(out, []result{before, after})
		if !once {
			invite(ctx, out, ours)
		}
	}
	return errors.Join(err, ours.Stop())
}

// invite tells what to try, and lets agents work until the end of ctx.
func invite(ctx context.Context, out io.Writer, s *stage) {
	fmt.Fprintf(out, `
Still serving %d agents, with lb_policy llm_loadaware. Watch them:

  http://%s/status

Or try:

  curl -N http://%s/v1/chat/completions -H 'Content-Type: application/json' -H 'X-Session-ID: me' \
    -d '{"model":"sim-model","stream":true,"messages":[{"role":"user","content":"Hello"}]}'
  curl -s http://%s/llm_loadaware/fleets

Stop with Ctrl-C.
`, agentCount, s.Site, s.Site, s.Admin)
	s.agents(ctx)
}
