// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"time"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/sessions"
)

// loadAware is the shipped rule: package fleet itself, in virtual time.
type loadAware struct {
	config Config
	fleet  *fleet.Fleet
	pool   *fleet.Pool
	usable []int
}

// newLoadAware makes one router with the shipped rule, or several.
func newLoadAware(c Config) Rule {
	if c.Routers > 1 {
		return newRouters(c)
	}
	return newOneLoadAware(c)
}

func newOneLoadAware(c Config) *loadAware {
	names := make([]string, c.Engines)
	for i := range names {
		names[i] = fmt.Sprintf("vllm-%d:8000", i)
	}
	return &loadAware{config: c, fleet: fleet.New(c.Random.Uint64), pool: fleet.NewPool(names)}
}

func (p *loadAware) Place(r *Request, now time.Duration, v View) int {
	return p.fleet.Place(&r.placement, &fleet.Request{
		Session:  sessions.Key(r.Session),
		Tokens:   r.Tokens,
		Blocks:   r.Blocks,
		Prefills: true,
		Silent:   r.Silent,
		Watched:  true,
	}, p.pool, p.untried(r, v), &p.config.Options, clock(now))
}

// untried are the usable engines on which r has not failed yet; all of them
// once it has failed on each.
func (p *loadAware) untried(r *Request, v View) []int {
	p.usable = p.usable[:0]
	for _, engine := range v.Usable {
		if !r.tried(engine) {
			p.usable = append(p.usable, engine)
		}
	}
	if len(p.usable) == 0 {
		return v.Usable
	}
	return p.usable
}

// Keep implements Keeper.
func (p *loadAware) Keep(now time.Duration) []byte {
	// a snapshot can always be written
	kept, _ := p.fleet.Snapshot(p.config.Options.Sessions, clock(now)).MarshalBinary()
	return kept
}

// Take implements Keeper.
func (p *loadAware) Take(kept []byte, now time.Duration) {
	var s fleet.Snapshot
	if err := s.UnmarshalBinary(kept); err != nil {
		panic(err)
	}
	p.fleet.Restore(&s, p.config.Options.Sessions, clock(now))
}

func (p *loadAware) FirstOutput(r *Request, now time.Duration) { r.placement.FirstOutput(clock(now)) }

// Progress implements Watcher.
func (p *loadAware) Progress(r *Request, now time.Duration) { r.placement.Progress(clock(now)) }

func (p *loadAware) End(r *Request, now time.Duration, o Outcome) {
	r.placement.End([...]fleet.Cause{
		Done:   fleet.CauseEnd,
		Failed: fleet.CauseError,
		Left:   fleet.CauseCanceled,
	}[o], clock(now))
}

// Interface guards
var _ Keeper = (*loadAware)(nil)
