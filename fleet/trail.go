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
	kept := t.last(trailLength, true)
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

// last returns copies of the last n decisions, the last one first. They have
// their appraisals only where those are wanted.
func (t *trail) last(n int, appraisals bool) []Decision {
	list := make([]Decision, 0, min(n, len(t.steps)))
	for serial := t.made; len(list) < cap(list); serial-- {
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
	}
	return list
}

// Placements returns the last n decisions on requests that were placed, the last
// one first. No more than 256 are remembered, of fleets with more than 64
// upstreams fewer. The lock is held for the copy alone.
func (f *Fleet) Placements(n int) []Decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trail.last(n, true)
}

// Outlines returns the same as [Fleet.Placements] without the appraisals, which
// is little to copy however many upstreams there are.
func (f *Fleet) Outlines(n int) []Decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trail.last(n, false)
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
