// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"
)

const (
	// deadBand is by how much an upstream may be faster or slower than the
	// median and still count as equal: decode and chance do as much.
	deadBand = 1.4

	// mostSpeed bounds how fast or slow an upstream may count. The work that
	// a rate is measured on is not that of the next request.
	mostSpeed = 4

	// speedsFor is how long the speeds of a pool are kept.
	speedsFor = time.Second
)

// measureSpeeds sets the speeds of p relative to the median of those that are
// known, now and then. The caller holds the lock.
func (f *Fleet) measureSpeeds(p *Pool, now time.Time) {
	if !p.speedsAt.IsZero() && now.Sub(p.speedsAt) < speedsFor {
		return
	}
	p.speedsAt = now
	if len(p.speeds) != len(p.upstreams) {
		p.speeds = make([]float64, len(p.upstreams))
	}
	rates := f.speeds[:0]
	for i, u := range p.upstreams {
		rate := u.meter.Rate()
		p.speeds[i] = rate
		if rate > 0 {
			rates = append(rates, rate)
		}
	}
	f.speeds = rates
	slices.Sort(rates)
	for i, rate := range p.speeds {
		p.speeds[i] = relative(rate, rates)
	}
}

// rates returns the known prefill rates of all upstreams, in order. The caller
// holds the lock.
func (f *Fleet) rates() []float64 {
	var rates []float64
	for _, u := range f.upstreams {
		if rate := u.meter.Rate(); rate > 0 {
			rates = append(rates, rate)
		}
	}
	slices.Sort(rates)
	return rates
}

// relative returns the speed of a rate among the sorted rates, 1 where there is
// too little to compare.
func relative(rate float64, rates []float64) float64 {
	if rate == 0 || len(rates) < 2 {
		return 1
	}
	median := (rates[(len(rates)-1)/2] + rates[len(rates)/2]) / 2
	speed := rate / median
	if speed < deadBand && speed > 1/deadBand {
		return 1
	}
	return min(max(speed, 1.0/mostSpeed), mostSpeed)
}
