// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/picker"
)

const (
	// trailLength is how many decisions a fleet remembers, and trailAppraisals
	// how many appraisals they may have in all: with more than 64 upstreams it is
	// fewer decisions.
	trailLength     = 256
	trailAppraisals = trailLength * 64

	// longestModel is how much of a model's name a decision remembers: it is the
	// client who chooses it.
	longestModel = 128

	// decisionsAtOnce is how many decisions are copied in one hold of the fleet's
	// lock: all of a large fleet would take milliseconds.
	decisionsAtOnce = 16
)

// trail remembers the last decisions. All its memory is taken when a longer
// list of upstreams comes, and none when a request is placed.
type trail struct {
	steps []step

	// made counts the decisions, and with it the serials of steps
	made uint64

	// width is how many appraisals a step has room for
	width int
}

// step is one decision. Its model is in room that is used again.
type step struct {
	Decision
	serial uint64
	model  []byte
}

// fit makes room for appraisals of so many upstreams. What is remembered stays,
// as far as there is room.
func (t *trail) fit(upstreams int) {
	if upstreams <= t.width {
		return
	}
	kept := t.before(nil, t.made, trailLength, true)
	// twice the room, so that a pool that grows by one does not take it anew
	t.width = max(upstreams, min(2*t.width, trailAppraisals/trailLength))
	n := min(trailLength, max(trailAppraisals/t.width, 1))
	rooms, models := make([]Appraisal, n*t.width), make([]byte, n*longestModel)
	t.steps = make([]step, n)
	for i := range t.steps {
		s := &t.steps[i]
		s.Appraisals = rooms[i*t.width : i*t.width : (i+1)*t.width]
		s.model = models[i*longestModel : i*longestModel : (i+1)*longestModel]
	}
	for i, d := range kept[:min(len(kept), n)] {
		serial := t.made - uint64(i)
		s := &t.steps[serial%uint64(n)]
		s.serial = serial
		s.set(d, d.Model)
		s.Appraisals = append(s.Appraisals, d.Appraisals...)
	}
}

// set takes d without its appraisals.
func (s *step) set(d Decision, model string) {
	s.model = append(s.model[:0], model[:min(len(model), longestModel)]...)
	d.Model, d.Appraisals = "", s.Appraisals[:0]
	s.Decision = d
}

// begin returns the next step, which takes the place of the oldest one, with the
// serial that it is found by from now on.
func (t *trail) begin() (s *step, serial uint64) {
	t.made++
	s = &t.steps[t.made%uint64(len(t.steps))]
	s.serial = t.made
	return s, t.made
}

// find returns the step with a serial, nil where there is none any more.
func (t *trail) find(serial uint64) *step {
	if serial == 0 || len(t.steps) == 0 {
		return nil
	}
	if s := &t.steps[serial%uint64(len(t.steps))]; s.serial == serial {
		return s
	}
	return nil
}

// before appends to list copies of up to n decisions from a serial down, the last
// one first. They have their appraisals only where those are wanted.
func (t *trail) before(list []Decision, serial uint64, n int, appraisals bool) []Decision {
	for ; n > 0; n-- {
		s := t.find(serial)
		if s == nil {
			break
		}
		d := s.Decision
		d.Model, d.Appraisals = string(s.model), nil
		if appraisals {
			d.Appraisals = slices.Clone(s.Appraisals)
		}
		list = append(list, d)
		serial--
	}
	return list
}

// Placements returns the last n decisions on requests that were placed, the last
// one first. No more than 256 are remembered, of fleets with more than 64
// upstreams fewer. The lock is held for the copies of 16 at a time: what is placed
// in between is not in the list, and what that takes the place of is left out.
func (f *Fleet) Placements(n int) []Decision { return f.decisions(n, true) }

// Outlines returns the same as [Fleet.Placements] without the appraisals, which
// is little to copy however many upstreams there are.
func (f *Fleet) Outlines(n int) []Decision { return f.decisions(n, false) }

func (f *Fleet) decisions(n int, appraisals bool) []Decision {
	list := make([]Decision, 0, min(n, trailLength))
	for serial := uint64(0); len(list) < n; {
		list, serial = f.portion(list, serial, min(n-len(list), decisionsAtOnce), appraisals)
		if serial == 0 {
			break
		}
	}
	return list
}

// portion appends copies of the next n decisions from a serial down, of the last
// ones for 0. It returns the serial to go on with, 0 where nothing is left.
func (f *Fleet) portion(list []Decision, serial uint64, n int, appraisals bool) (longer []Decision, next uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if serial == 0 {
		serial = f.trail.made
	}
	longer = f.trail.before(list, serial, n, appraisals)
	if len(longer) < len(list)+n {
		return longer, 0
	}
	return longer, serial - uint64(n)
}

// remember keeps the decision for a candidate, which is about to be carried out.
// The caller holds the lock.
func (f *Fleet) remember(p *Placement, c *picker.Candidate, pool *Pool, usable []int, o *Options, now time.Time) {
	s, serial := f.trail.begin()
	s.set(p.decision(c, now), p.request.Model)
	s.Appraisals = f.appraisals(s.Appraisals, pool, usable, o, &p.request)
	p.serial = serial
}

// showed and ended complete what is remembered of the placement. The caller
// holds the lock.
func (p *Placement) showed(now time.Time) {
	if s := p.fleet.trail.find(p.serial); s != nil && s.FirstOutput == 0 {
		s.FirstOutput = now.Sub(p.reservation.Started())
	}
}

func (p *Placement) ended(c Cause) {
	if s := p.fleet.trail.find(p.serial); s != nil {
		s.Ended, s.Cause = true, c
	}
}
