// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caddy-llm/loadaware/internal/bed"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// open starts servers with empty caches, Caddy with a policy in front of them,
// and the clock of a driver.
func (s settings) open(policy string) (*bed.Bed, *driver, error) {
	servers := make([]vllmsim.ServerConfig, s.engines)
	for i := range servers {
		servers[i] = vllmsim.ServerConfig{
			Engine:          vllmsim.Config{KVTokens: s.kvTokens, BlockTokens: 64, Seed: uint64(i + 1)},
			Speed:           s.speed,
			MaxOutputTokens: 1 << 20,
		}
	}
	b, err := bed.Start(servers, "", func(site string, upstreams []string) string {
		return fmt.Sprintf("http://%s {\n\tllm_loadaware\n\treverse_proxy %s {\n\t\tlb_policy %s\n\t}\n}\n",
			site, strings.Join(upstreams, " "), configure(policy))
	})
	if err != nil {
		return nil, nil, err
	}
	b.Hosts[0].Server().SetFault(vllmsim.Fault{Slow: s.slow})
	return b, &driver{
		settings: s,
		site:     b.Site,
		client:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}},
		start:    time.Now(),
	}, nil
}

// measurePolicy runs one policy at one rate.
func (s settings) measurePolicy(ctx context.Context, policy string, rate float64) (r result, err error) {
	b, d, err := s.open(policy)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	stop := d.showProgress(policy, rate)
	d.drive(ctx, rate)
	stop()
	if err := ctx.Err(); err != nil {
		return r, err
	}
	r = d.measures.result()
	r.Policy, r.Rate = policy, rate
	r.HitRate, r.Spread = engines(b.Hosts)
	if d.measures.lastErr != nil {
		fmt.Fprintln(os.Stderr, "  last failure:", d.measures.lastErr)
	}
	return r, nil
}

// configure writes a policy. What follows the name of load-aware is an option.
func configure(policy string) string {
	if option, ok := strings.CutPrefix(policy, "llm_loadaware "); ok {
		return "llm_loadaware {\n\t\t\t" + option + "\n\t\t}"
	}
	return policy
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
