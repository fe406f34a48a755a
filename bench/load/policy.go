// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// measurePolicy runs one policy at one rate with some Caddys.
func (s settings) measurePolicy(ctx context.Context, policy string, rate float64, caddys int) (r result, err error) {
	st, d, err := s.open(policy, caddys)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, st.stop()) }()
	stop := d.showProgress(policy, rate)
	d.drive(ctx, rate)
	stop()
	if err := ctx.Err(); err != nil {
		return r, err
	}
	r = d.measures.result()
	r.Policy, r.Rate, r.Caddys = policy, rate, caddys
	r.HitRate, r.Spread = engines(st.hosts)
	if st.redis != nil && d.measures.answered > 0 {
		commands, err := st.redis.Commands()
		if err != nil {
			return r, err
		}
		r.RedisCommands = float64(commands) / float64(d.measures.answered)
	}
	if d.measures.lastErr != nil {
		fmt.Fprintln(os.Stderr, "  last failure:", d.measures.lastErr)
	}
	return r, nil
}

// configure writes a policy. What follows the name of load-aware is an option, of
// which share stands for sharing over the Redis at an address.
func configure(policy, redis string) string {
	option, ok := strings.CutPrefix(policy, "llm_loadaware ")
	switch {
	case !ok:
		return policy
	case option == "share":
		option = "share redis " + redis
	}
	return "llm_loadaware {\n\t\t\t" + option + "\n\t\t}"
}

// engines sums up what the servers did, warm-up included.
func engines(hosts []*vllmsim.Host) (hitRate, spread float64) {
	var prompt, cached, computed, most int64
	for _, host := range hosts {
		stats := host.Server().Stats()
		prompt += stats.PromptTokens
		cached += stats.CachedTokens
		computed += stats.PrefillTokens
		most = max(most, stats.PrefillTokens)
	}
	if prompt == 0 || computed == 0 {
		return 0, 0
	}
	return float64(cached) / float64(prompt), float64(most) * float64(len(hosts)) / float64(computed)
}

// showProgress tells on the standard error how far a run is.
func (d *driver) showProgress(policy string, rate float64) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(os.Stderr, "%s at %v sessions/s: %v of %v, %d agents at work\n",
					policy, rate, d.now().Round(time.Second), d.warmUp+d.measure, d.running.Load())
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
