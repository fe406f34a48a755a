// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Command overhead measures what the load-aware policy and its handler cost
// against least_conn: two sites of one Caddy, which runs in a process of its
// own, in front of servers that answer at once.
//
//	go run ./bench/overhead
//
// Both sites take turns, many short ones, so that whatever else the machine does
// hits both. Ratios and differences are medians over the rounds. The most robust
// figures are the CPU time and the allocations of the Caddy process for each
// request; the client and the servers share the machine with it, and requests
// per second and latencies are also theirs.
//
// No two prompts are alike, so nothing that the policy remembers of them helps.
// The cost of nothing at all, which is the noise, is measured by
//
//	go run ./bench/overhead -policy least_conn
//
// What the live page costs under a steady load is measured by
//
//	go run ./bench/overhead -viewers 10 -turn 5s
//
// What it costs to share the fleet over Redis, of which there must be redis-server or
// valkey-server, by
//
//	go run ./bench/overhead -against llm_loadaware -policy "llm_loadaware share"
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/caddy-llm/loadaware/internal/redisserver"
)

// settings are the flags.
type settings struct {
	policies   [2]string
	clients    int
	turn       time.Duration
	rounds     int
	streams    int
	transfer   int64
	memory     int
	timeout    time.Duration
	viewers    int
	rate       int
	cpuProfile string
	json       string

	redis *redisserver.Server // nil where no side shares
}

// shareOption ends a policy of a fleet that is shared, over a Redis that is started
// for that.
const shareOption = " share"

func main() {
	var err error
	if isCaddy(os.Args) {
		err = serveCaddy(os.Args[2:])
	} else {
		err = measure(os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		os.Exit(1)
	}
}

func measure(args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r, err := run(ctx, s)
	if err != nil {
		return err
	}
	if err := r.print(os.Stdout); err != nil || s.json == "" {
		return err
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(s.json, append(text, '\n'), 0o644)
}

func parse(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("overhead", flag.ContinueOnError)
	flags.StringVar(&s.policies[0], "against", "least_conn", "selection policy to compare with")
	flags.StringVar(&s.policies[1], "policy", loadAware, "selection policy to measure; that of this module comes with its handler, and may have the option share")
	flags.IntVar(&s.clients, "clients", 32, "clients at once, where there are many")
	flags.DurationVar(&s.turn, "turn", 500*time.Millisecond, "how long one policy is measured at a time")
	flags.IntVar(&s.rounds, "rounds", 20, "turns of each policy for each kind of request")
	flags.IntVar(&s.streams, "streams", 2000, "streams open at once, for the memory of one")
	flags.Int64Var(&s.transfer, "transfer", 200_000_000, "bytes of the long response and the long upload")
	flags.IntVar(&s.memory, "memory-rounds", 3, "how often memory is measured, each time in a new Caddy")
	flags.DurationVar(&s.timeout, "timeout", 5*time.Minute, "give up after that time")
	flags.IntVar(&s.viewers, "viewers", 0, "measure instead what the live page costs with so many viewers")
	flags.IntVar(&s.rate, "rate", 200, "requests per second under the live page")
	flags.StringVar(&s.cpuProfile, "cpuprofile", "", "file to write the CPU profile of Caddy to, without the memory rounds")
	flags.StringVar(&s.json, "json", "", "file to write the results to")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.clients < 1 || s.turn <= 0 || s.rounds < 1 || s.streams < 1 || s.transfer < 1 || s.memory < 1 || s.timeout <= 0 || s.rate < 1 {
		return s, errors.New("every number must be positive")
	}
	if s.viewers < 0 || s.viewers > maxViewers {
		return s, fmt.Errorf("viewers must be from 0 to %d", maxViewers)
	}
	return s, nil
}

// run measures everything.
func run(ctx context.Context, s settings) (r *results, err error) {
	servers, err := startUpstreams()
	if err != nil {
		return nil, err
	}
	defer servers.stop()
	if strings.HasSuffix(s.policies[1], shareOption) {
		if s.redis, err = redisserver.Start(""); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.redis.Stop()) }()
	}
	r = &results{Policies: s.policies}
	if s.viewers > 0 {
		if err := s.measurePage(ctx, servers, r); err != nil {
			return nil, fmt.Errorf("live page: %w", err)
		}
		return r, nil
	}
	if err := s.measureRequests(ctx, servers, r); err != nil {
		return nil, fmt.Errorf("requests: %w", err)
	}
	if err := r.countCommands(s.redis); err != nil {
		return nil, err
	}
	if err := s.measureMemory(ctx, servers, r); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	return r, nil
}
