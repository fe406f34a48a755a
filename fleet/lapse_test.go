// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"
)

// The room of a router that has died is given to who waits, by whatever finds
// out.
func TestRoomOfALostPeerIsGiven(t *testing.T) {
	for name, look := range map[string]func(*bed){
		"News": func(b *bed) { b.News(new(News), b.now) },
		"View": func(b *bed) { b.View(b.now) },
	} {
		beds := shared(2, 1)
		a, b := beds[0], beds[1]
		b.options.Queue = Queue{MaxRequests: 1, MaxWaiting: 10, MaxWait: time.Hour}
		a.place(prompt(10, nil), 0)
		b.Hear(1, a.told(), b.now)
		ticket := b.enqueue(t, nil, prompt(10, nil))
		b.wait(PeerLifetime)
		look(b)
		if got := states(ticket); got != "0" {
			t.Errorf("%s: the ticket is %s, want it placed on 0", name, got)
		}
	}
}

// What time alone lets go is told though the router places nothing.
func TestWhatTimeLetsGoIsTold(t *testing.T) {
	tests := []struct {
		name    string
		request Request
		// kept and gone are how long after its placement the request holds its
		// tokens, and does not
		kept, gone time.Duration
	}{
		{"a silent request", Request{Tokens: 50_000, Prefills: true, Silent: true}, time.Second, time.Minute},
		{"a request without output", prompt(50_000, nil), 9 * time.Minute, 11 * time.Minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			beds := shared(2, 2)
			a, b := beds[0], beds[1]
			a.prefilled(0, 20, 10_000)
			a.place(test.request, 0)
			placed := a.now
			for _, step := range []struct {
				after time.Duration
				want  int
			}{{test.kept, 50_000}, {test.gone, 0}} {
				a.now = placed.Add(step.after)
				b.now = a.now
				b.Hear(1, a.told(), b.now)
				if got := b.peersOf()[0]; got.Prefill != step.want || got.Requests != 1 {
					t.Errorf("after %v the other holds %+v, want %d tokens of one request", step.after, got, step.want)
				}
			}
		})
	}
}

// A fleet that is shared while a request is under way keeps what that holds.
func TestSharingLaterLetsNothingGo(t *testing.T) {
	b := newBed(2)
	b.place(prompt(50_000, nil), 0)
	b.wait(time.Second)
	b.Share(true)
	if n := b.told(); len(n.Loads) != 1 || n.Loads[0].Prefill != 50_000 {
		t.Errorf("Loads = %+v, want 50000 tokens", n.Loads)
	}
}
