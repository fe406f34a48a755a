// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"
	"time"
)

// seconds converts without the overflow that a far away time would have.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1e9) * float64(time.Second))
}

// Poisson returns clients that come independently of each other, rate of them
// per second. The n-th client is the same at every rate.
func Poisson(rate float64, seed uint64, client func(seed uint64) *Script) Arrivals {
	gaps := random(useArrivals, seed)
	at, n := 0.0, uint64(0)
	return func() (time.Duration, *Script, bool) {
		at += gaps.ExpFloat64() / rate
		n++
		return seconds(at), client(mix(useClient, seed, n)), true
	}
}

// Midway returns the arrivals of later preceded by sessions of the same kind
// that began before the run: as many as are under way in the long run, each at
// the step it would have got to. Without them a run has to last for several
// sessions' lives before the load is what the rate says. Their caches are cold,
// so they join evenly over the time of within instead of all at once.
//
// No session lasts longer than longest on a fleet with little load.
func Midway(later Arrivals, rate float64, seed uint64, within, longest time.Duration, client func(seed uint64) *Script) Arrivals {
	type arrival struct {
		at     time.Duration
		script *Script
	}
	var earlier []arrival
	gaps := random(useEarlierArrivals, seed)
	age := 0.0
	for n := uint64(1); ; n++ {
		age += gaps.ExpFloat64() / rate
		join := gaps.Float64()
		if age > longest.Seconds() {
			break
		}
		if s := client(mix(useEarlierClient, seed, n)).from(seconds(age)); s != nil {
			earlier = append(earlier, arrival{at: time.Duration(join * float64(within)), script: s})
		}
	}
	slices.SortStableFunc(earlier, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })

	at, script, ok := later()
	return func() (time.Duration, *Script, bool) {
		if len(earlier) > 0 && (!ok || earlier[0].at <= at) {
			first := earlier[0]
			earlier = earlier[1:]
			return first.at, first.script, true
		}
		nextAt, next, nextOK := at, script, ok
		at, script, ok = later()
		return nextAt, next, nextOK
	}
}

// from returns what is left of a script that began age ago, nil if it is over.
func (s *Script) from(age time.Duration) *Script {
	var began time.Duration
	for i, step := range s.Steps {
		began += step.Think
		if began >= age {
			rest := slices.Clone(s.Steps[i:])
			rest[0].Think = began - age
			rest[0].Beside = nil
			return &Script{Steps: rest, Request: func(step int) Request { return s.Request(i + step) }}
		}
		began += step.Took
	}
	return nil
}
