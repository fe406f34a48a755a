// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Command load drives real Caddys in front of simulated vLLM servers over HTTP
// with the laboratory's coding agents, once for each selection policy, and
// prints what the agents saw. The Caddys are in processes of their own, and each
// request goes through one of them by chance.
//
//	go run ./bench/load -rate 0.3,0.65
//	go run ./bench/load -rate 0.1 -caddys 1,2 -policies "llm_loadaware,llm_loadaware share"
//
// The option share, which stands for share redis, shares the fleet over a Redis that
// is started for the run; it needs redis-server or valkey-server.
//
// Times are those of the servers' clock, which runs -speed times faster than
// the real one. A higher speed takes less time and leaves Caddy and the servers
// less of the machine: when the late column is not 0, the numbers are those of
// the machine and no longer those of the policy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-llm/loadaware/internal/crew"
)

// settings are the flags.
type settings struct {
	rates    []float64
	policies []string
	caddys   []int
	engines  int
	kvTokens int
	speed    float64
	slow     float64
	warmUp   time.Duration
	measure  time.Duration
	seed     uint64
	json     string
}

func main() {
	crew.Main()
	s, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err = run(ctx, s)
		stop()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	var s settings
	var rates, policies, caddys string
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.StringVar(&rates, "rate", "0.3,0.65", "sessions that begin per second, a list")
	flags.StringVar(&policies, "policies", "random,least_conn,header X-Session-ID,llm_loadaware", "selection policies, a list; an option may follow the name of load-aware")
	flags.StringVar(&caddys, "caddys", "1", "how many Caddys, a list")
	flags.IntVar(&s.engines, "engines", 4, "simulated servers")
	flags.IntVar(&s.kvTokens, "kv-tokens", 600_000, "KV cache of each server in tokens")
	flags.Float64Var(&s.speed, "speed", 5, "how many times faster than real time the servers run")
	flags.Float64Var(&s.slow, "slow", 1, "how many times slower than the others the first server is")
	flags.DurationVar(&s.warmUp, "warm-up", 4*time.Minute, "time before requests are measured, on the servers' clock")
	flags.DurationVar(&s.measure, "measure", 6*time.Minute, "time in which requests are measured, on the servers' clock")
	flags.Uint64Var(&s.seed, "seed", 1, "selects the sessions")
	flags.StringVar(&s.json, "json", "", "file to write the results to")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	for rate := range strings.SplitSeq(rates, ",") {
		n, err := strconv.ParseFloat(rate, 64)
		if err != nil || !(n > 0) {
			return s, fmt.Errorf("rate %q is not a positive number", rate)
		}
		s.rates = append(s.rates, n)
	}
	for n := range strings.SplitSeq(caddys, ",") {
		n, err := strconv.Atoi(n)
		if err != nil || n < 1 {
			return s, errors.New("caddys must be positive")
		}
		s.caddys = append(s.caddys, n)
	}
	s.policies = strings.Split(policies, ",")
	if s.engines < 1 || s.kvTokens < 1 || !(s.speed > 0) || !(s.slow > 0) || s.warmUp < 0 || s.measure <= 0 {
		return s, errors.New("engines, kv-tokens, speed, slow and measure must be positive, warm-up not negative")
	}
	return s, nil
}

// run measures every policy at every rate with each number of Caddys.
func run(ctx context.Context, s settings) error {
	var results []result
	for _, rate := range s.rates {
		for _, policy := range s.policies {
			for _, caddys := range s.caddys {
				r, err := s.measurePolicy(ctx, policy, rate, caddys)
				if err != nil {
					return fmt.Errorf("%s at %v sessions/s with %d Caddys: %w", policy, rate, caddys, err)
				}
				results = append(results, r)
			}
		}
	}
	if err := printTable(os.Stdout, s, results); err != nil {
		return err
	}
	if s.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(s.json, append(text, '\n'), 0o644)
}
