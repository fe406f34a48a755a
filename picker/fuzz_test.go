// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"testing"
	"time"
)

// modelled is a reservation as FuzzLedger understands it, without lists.
type modelled struct {
	upstream            int
	tokens              int
	started             time.Time
	serial              int
	open, waits, silent bool

	// ahead is what had to be prefilled when it was opened, with it
	ahead int
}

// FuzzLedger reads three bytes as one step: what to do, to which reservation,
// with which amount. Whatever the order, the counters are those of what lives.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 9, 1, 0, 0, 3, 0, 0})
	f.Add([]byte{0, 0, 9, 0, 1, 8, 0, 2, 12, 1, 2, 0, 2, 0, 0, 3, 1, 0, 3, 1, 0})
	f.Add([]byte{0, 0, 9, 5, 0, 0, 0, 1, 9, 3, 0, 0, 4, 0, 200, 3, 1, 0})
	f.Add([]byte{0, 0, 8, 0, 2, 11, 7, 2, 0, 6, 2, 200, 6, 2, 255, 3, 0, 0, 7, 2, 0, 7, 2, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		const upstreamsInUse, slots = 3, 8
		l := NewLedger(counter())
		var upstreams []*Upstream
		var current [upstreamsInUse]int
		var peaks []int
		add := func(at int) {
			current[at] = len(upstreams)
			upstreams = append(upstreams, l.NewUpstream(string(rune('a'+at))))
			peaks = append(peaks, 0)
		}
		for at := range current {
			add(at)
		}
		var reservations [slots]Reservation
		var model [slots]modelled
		now := start

		// released checks one callback against the model and updates it
		released := func(what string, allowed func(modelled) bool) func(*Reservation) {
			return func(r *Reservation) {
				for i := range reservations {
					if r == &reservations[i] {
						if !model[i].waits || !allowed(model[i]) {
							t.Fatalf("%s released %+v, want it untouched", what, model[i])
						}
						model[i].waits = false
						return
					}
				}
				t.Fatalf("%s released an unknown reservation", what)
			}
		}
		for serial := 0; len(steps) >= 3; serial++ {
			slot, amount := int(steps[1])%slots, int(steps[2])
			r, m := &reservations[slot], &model[slot]
			switch steps[0] % 8 {
			case 0:
				if m.open {
					break
				}
				now = now.Add(time.Duration(amount) * time.Millisecond)
				at := current[amount%upstreamsInUse]
				c := Claim{Tokens: amount * 100, Prefills: amount%7 != 0, Silent: amount%2 == 0}
				l.Open(r, upstreams[at], c, now)
				*m = modelled{upstream: at, started: now, serial: serial, open: true, waits: c.Prefills, silent: c.Silent}
				if c.Prefills {
					m.tokens = c.Tokens
				}
				for _, o := range model {
					if o.waits && o.upstream == at {
						m.ahead += o.tokens
					}
				}
			case 1:
				want := m.waits
				own := *m
				older := func(o modelled) bool {
					return o.silent && o.upstream == own.upstream && o.serial < own.serial
				}
				if got := l.FirstOutput(r, released("FirstOutput", older)); got != want {
					t.Fatalf("FirstOutput() = %v, want %v", got, want)
				}
				m.waits = false
				for _, o := range model {
					if want && o.waits && older(o) {
						t.Fatalf("FirstOutput() left %+v, want it released", o)
					}
				}
			case 2:
				if got, want := l.Release(r), m.waits; got != want {
					t.Fatalf("Release() = %v, want %v", got, want)
				}
				m.waits = false
			case 3:
				if got, want := l.Close(r), m.waits; got != want {
					t.Fatalf("Close() = %v, want %v", got, want)
				}
				m.open, m.waits = false, false
			case 4:
				at := current[slot%upstreamsInUse]
				deadline := now.Add(-time.Duration(amount) * time.Millisecond)
				past := func(o modelled) bool { return o.upstream == at && o.started.Before(deadline) }
				l.Expire(upstreams[at], deadline, released("Expire", past))
				for _, o := range model {
					if o.waits && past(o) {
						t.Fatalf("Expire(%v) left %+v, want it released", deadline, o)
					}
				}
			case 5:
				add(slot % upstreamsInUse)
			case 6:
				at := current[slot%upstreamsInUse]
				now = now.Add(time.Duration(amount) * 10 * time.Millisecond)
				past := func(o modelled) bool {
					return o.upstream == at && o.silent &&
						now.Sub(o.started) >= time.Second+time.Duration(o.ahead)*time.Millisecond
				}
				l.Infer(upstreams[at], 1000, now, released("Infer", past))
				head := -1
				for i, o := range model {
					if o.waits && o.upstream == at && (head < 0 || o.serial < model[head].serial) {
						head = i
					}
				}
				if head >= 0 && past(model[head]) {
					t.Fatalf("Infer() left %+v at the head, want it released", model[head])
				}
			case 7:
				at := current[slot%upstreamsInUse]
				if got := upstreams[at].TakePeak(); got != peaks[at] {
					t.Fatalf("TakePeak() = %v, want %v", got, peaks[at])
				}
				peaks[at] = upstreams[at].Requests()
			}
			steps = steps[3:]

			for at, u := range upstreams {
				var want [3]int
				for _, m := range model {
					if m.upstream != at {
						continue
					}
					if m.open {
						want[0]++
					}
					if m.waits {
						want[1]++
						want[2] += m.tokens
					}
				}
				if got := [3]int{u.Requests(), u.Waiting(), u.Prefill()}; got != want {
					t.Fatalf("requests, waiting, prefill of upstream %d = %v, want %v", at, got, want)
				}
				peaks[at] = max(peaks[at], u.Requests())
				length := 0
				for r := u.waiting.first; r != nil; r = r.next {
					length++
				}
				if length != u.Waiting() {
					t.Fatalf("%v reservations are linked, want %v", length, u.Waiting())
				}
			}
		}
	})
}
