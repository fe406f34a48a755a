// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	// agentCount is how many agents work while the demo serves on, agentTokens how
	// much they have written in a turn at most, and agentPause how long they think
	// between two turns at most.
	agentCount  = 24
	agentTokens = 600
	agentPause  = time.Second
)

// agents work until ctx ends, so that there is something to see.
func (s *stage) agents(ctx context.Context) {
	var wg sync.WaitGroup
	for n := range agentCount {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(n)))
			for task := 0; ctx.Err() == nil; task++ {
				s.work(ctx, random, fmt.Sprintf("agent %d, task %d", n, task))
			}
		})
	}
	wg.Wait()
}

// work is one conversation of an agent, with a long prompt to begin with and
// answers of its tools in every turn. What fails is left at that.
func (s *stage) work(ctx context.Context, random *rand.Rand, name string) {
	fill := func(tokens int) string { return strings.Repeat(name+" ", tokens*4/len(name)) }
	messages := []string{fill(10_000 + random.IntN(50_000))}
	for turn := range sessionTurns {
		if _, err := s.chat(ctx, name, messages, 1+random.IntN(agentTokens)); err != nil {
			pause(ctx, agentPause)
			return
		}
		messages = append(messages, fmt.Sprintf("answer %d", turn), fill(200+random.IntN(4000)))
		pause(ctx, time.Duration(random.Int64N(int64(agentPause))))
	}
}

// pause waits, but not beyond the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
