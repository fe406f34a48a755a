// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import "time"

// allKnowing places a request where the engine's true prefill queue and what
// it would truly compute of the prompt are least together. No router can know
// either; it is a yardstick. It is greedy all the same: what a placement does
// to later requests is not in the sum.
type allKnowing struct{ config Config }

func newAllKnowing(c Config) Rule { return allKnowing{c} }

func (p allKnowing) Place(_ *Request, _ time.Duration, v View) int {
	return least(p.config, v.Usable, func(engine int) float64 {
		return float64(v.Outstanding(engine) + v.Uncached(engine))
	})
}

func (allKnowing) FirstOutput(*Request, time.Duration) {}

func (allKnowing) End(*Request, time.Duration, Outcome) {}
