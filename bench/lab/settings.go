// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/bench/lab/sim"
	"github.com/caddy-llm/loadaware/bench/lab/workload"
	"github.com/caddy-llm/loadaware/fleet"
)

// settings are the flags, with what the workload says where a flag was not
// given.
type settings struct {
	preset // rate and everything about the fleet

	trace       workload.Trace
	maxThink    time.Duration
	rules       []string
	rates       []float64
	capacity    bool
	seeds       int
	seed        uint64
	blockTokens int
	sigma       float64
	patience    time.Duration
	hold        int
	overtake    float64
	scene       sim.Scene
	options     fleet.Options
	indexShare  float64
	routers     int
	shared      rules.Shared

	jsonFile, plotFile string
}

// parse reads the command line.
func parse(args []string) (*settings, error) {
	s := &settings{options: fleet.DefaultOptions()}
	f := flag.NewFlagSet("lab", flag.ContinueOnError)
	name := f.String("workload", "agents", "one of "+strings.Join(presetNames(), ", "))
	trace := f.String("trace", "", "replay this `file`, Mooncake or agent sessions, instead of a workload")
	ruleList := f.String("rule", "all", "`names` of rules, separated by commas, or all: "+strings.Join(rules.Names(), ", "))
	rates := f.String("rates", "", "run at each of these `rates`, separated by commas")
	shared := f.String("share", "everything", "load-aware: what several routers share, `names` of load, sessions and blocks separated by commas, everything or nothing")
	f.IntVar(&s.routers, "routers", 1, "load-aware: number of routers, to one of which each request comes by chance")
	scene := f.String("scene", "", fmt.Sprintf("what happens to the fleet, one of %v", sim.Scenes()))
	given := s.fleetFlags(f)
	s.optionFlags(f)
	f.DurationVar(&s.maxThink, "max-think", 5*time.Minute, "longest think time that is replayed from a trace")
	f.BoolVar(&s.capacity, "capacity", false, "find the highest rate that keeps TTFT p95 under -limit")
	f.IntVar(&s.seeds, "seeds", 3, "number of runs that every number is the mean of")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the first run")
	f.IntVar(&s.blockTokens, "block-tokens", fleet.BlockTokens, "length of an engine's KV block: 64, 128, 256; the router's are 256")
	f.IntVar(&s.hold, "hold", 0, "prefill `tokens` that an engine is sent at once, the rest waits in the router; 0 sends everything")
	f.Float64Var(&s.overtake, "overtake", 0, "for how many times its own prefill time a request that waits in the router can be overtaken by shorter ones")
	f.Float64Var(&s.sigma, "sigma", 0.1, "spread of the errors of token estimates (log-normal, by session)")
	f.DurationVar(&s.patience, "patience", time.Minute, "how long a client waits for the first output in a scene; 0 for ever")
	f.StringVar(&s.jsonFile, "json", "", "write the results to this `file`")
	f.StringVar(&s.plotFile, "plot", "", "plot TTFT p95 over the rate to this `file`, .svg or .png")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument '%s'", f.Arg(0))
	}
	return s, s.complete(*name, *trace, *ruleList, *rates, *scene, *shared, given)
}

// fleetFlags adds the flags that replace what the workload says.
func (s *settings) fleetFlags(f *flag.FlagSet) *preset {
	var p preset
	f.Float64Var(&p.Rate, "rate", 0, "sessions or requests per second; default by workload")
	f.IntVar(&p.Engines, "engines", 0, "number of engines; default by workload")
	f.IntVar(&p.KVTokens, "kv", 0, "KV cache of an engine in tokens; default by workload")
	f.DurationVar(&p.Limit, "limit", 0, "limit of TTFT p95 for -capacity; default by workload")
	f.DurationVar(&p.Warmup, "warmup", 0, "time before anything is measured; default by workload")
	f.DurationVar(&p.Duration, "duration", 0, "time that is measured; default by workload")
	return &p
}

// optionFlags adds the options of the shipped rule.
func (s *settings) optionFlags(f *flag.FlagSet) {
	o := &s.options
	f.Float64Var(&o.RequestCost, "request-cost", o.RequestCost, "load-aware: tokens that a request in flight costs")
	f.Float64Var(&o.Congestion, "congestion", o.Congestion, "load-aware: weight of waiting requests in the price")
	f.Float64Var(&o.Eviction, "eviction", o.Eviction, "load-aware: weight of eviction in the price")
	f.Float64Var(&o.Stickiness, "stickiness", o.Stickiness, "load-aware: tokens that a home may cost more than the best")
	f.BoolVar(&o.PrefixIndex, "prefix-index", o.PrefixIndex, "load-aware: use the prefix index")
	f.BoolVar(&o.EqualSpeed, "equal-speed", false, "load-aware: take all engines for equally fast, whatever was measured")
	f.IntVar(&o.KVTokens, "kv-tokens", 0, "tokens indexed for each engine, by every rule with an index; default -index-share")
	f.Float64Var(&s.indexShare, "index-share", 1, "tokens indexed for each engine, as a multiple of its KV cache")
}

// complete fills in what was not given and checks the rest.
func (s *settings) complete(name, trace, ruleList, rates, scene, shared string, given *preset) (err error) {
	if trace != "" {
		if s.trace, err = workload.ReadTraceFile(trace); err != nil {
			return err
		}
		name = "trace"
		if _, ok := s.trace.(workload.Mooncake); ok {
			name = "mooncake"
		}
	}
	p, ok := presets[name]
	if !ok || p.replay && s.trace == nil {
		return fmt.Errorf("unrecognized workload '%s': it is none of %s", name, strings.Join(presetNames(), ", "))
	}
	s.preset = p
	s.Workload = name
	s.Rate = cmp.Or(given.Rate, p.Rate)
	s.Engines = cmp.Or(given.Engines, p.Engines)
	s.KVTokens = cmp.Or(given.KVTokens, p.KVTokens)
	s.Limit = cmp.Or(given.Limit, p.Limit)
	s.Warmup = cmp.Or(given.Warmup, p.Warmup)
	s.Duration = cmp.Or(given.Duration, p.Duration)
	s.options.KVTokens = cmp.Or(s.options.KVTokens, int(s.indexShare*float64(s.KVTokens)))
	if s.rules, err = rules.Parse(ruleList); err != nil {
		return err
	}
	if s.scene, err = sim.ParseScene(scene); err != nil {
		return err
	}
	if s.shared, err = rules.ParseShared(shared); err != nil {
		return err
	}
	if s.rates, err = parseRates(rates); err != nil {
		return err
	}
	return s.check()
}

func (s *settings) check() error {
	switch {
	case s.Rate <= 0:
		return fmt.Errorf("rate must be over 0")
	case s.Engines < 1:
		return fmt.Errorf("engines must be at least 1")
	case s.routers < 1:
		return fmt.Errorf("routers must be at least 1")
	case s.routers > 1 && s.scene == sim.SceneRestart:
		return fmt.Errorf("routers must be 1 for one to restart")
	case s.seeds < 1:
		return fmt.Errorf("seeds must be at least 1")
	case s.blockTokens != 64 && s.blockTokens != 128 && s.blockTokens != 256:
		return fmt.Errorf("block-tokens must be 64, 128 or 256")
	case s.hold < 0 || s.overtake < 0:
		return fmt.Errorf("hold and overtake must not be negative")
	case s.hold > 0 && s.scene != sim.SceneNone:
		return fmt.Errorf("hold cannot be used with scene")
	case s.scene == sim.SceneJoin && s.Engines < 2:
		return fmt.Errorf("engines must be at least 2 for one to join")
	}
	return nil
}

func parseRates(list string) ([]float64, error) {
	var rates []float64
	for field := range strings.SplitSeq(list, ",") {
		if field == "" {
			continue
		}
		rate, err := strconv.ParseFloat(field, 64)
		if err != nil || !(rate > 0) {
			return nil, fmt.Errorf("invalid rate '%s'", field)
		}
		rates = append(rates, rate)
	}
	return rates, nil
}
