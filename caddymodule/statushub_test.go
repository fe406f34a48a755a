// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/sessions"
)

// watcher is a viewer's end of a stream that takes everything at once.
type watcher struct {
	header http.Header
	events [][]byte
}

func (w *watcher) Header() http.Header { return w.header }
func (w *watcher) WriteHeader(int)     {}
func (w *watcher) FlushError() error   { return nil }
func (w *watcher) Write(p []byte) (int, error) {
	w.events = append(w.events, p)
	return len(p), nil
}

// stuck is one that takes nothing, until its deadline.
type stuck struct {
	watcher
	deadline *time.Timer
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	s.deadline.Reset(time.Until(at))
	return nil
}

func (s *stuck) Write([]byte) (int, error) {
	<-s.deadline.C
	return 0, os.ErrDeadlineExceeded
}

// watch serves events until ctx ends or the stream does.
func watch(ctx context.Context, t *testing.T, h *StatusHandler, w http.ResponseWriter) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/?events", http.NoBody)
	if err := h.ServeHTTP(w, r, nil); err != nil {
		t.Errorf("ServeHTTP: %v", err)
	}
}

// However many watch, an event is made once for an interval, and none while nobody
// watches. Whoever comes sees one at once.
func TestStatusEventsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newFleet(t, "a")
		h, other := newStatusHandler(t), newStatusHandler(t)
		if h.hub != other.hub {
			t.Fatal("two handlers of one fleet have two hubs")
		}
		early, late, after := &watcher{header: http.Header{}}, &watcher{header: http.Header{}}, &watcher{header: http.Header{}}
		ctx, leave := context.WithCancel(t.Context())
		go watch(ctx, t, h, early)
		time.Sleep(2500 * time.Millisecond)
		go watch(ctx, t, other, late)
		time.Sleep(7 * time.Second)
		leave()
		synctest.Wait()

		// the first thing that is written says how soon to come again
		a, b := early.events[1:], late.events[1:]
		if len(a) != 10 || len(b) != 8 {
			t.Errorf("viewers for 9.5 and for 7 seconds saw %d and %d events, want 10 and 8", len(a), len(b))
		}
		if last := a[len(a)-len(b):]; !slices.EqualFunc(last, b, func(a, b []byte) bool { return &a[0] == &b[0] }) {
			t.Error("the two viewers did not see the same events")
		}
		made := h.hub.made
		time.Sleep(time.Hour)
		if h.hub.made != made {
			t.Error("events were made while nobody watched")
		}
		ctx, leave = context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		watch(ctx, t, h, after)
		if len(after.events) != 2 || bytes.Equal(after.events[1], a[len(a)-1]) {
			t.Errorf("who came an hour later saw %d events, want a new one", len(after.events)-1)
		}
	})
}

// Who does not read is no burden to others, and is let go after a few seconds, no
// later when the configuration ends meanwhile.
func TestStatusSlowViewer(t *testing.T) {
	for _, test := range []struct {
		name string
		ends time.Duration
		seen int
	}{
		{"let go", time.Hour, 10},
		{"end of the configuration", 2500 * time.Millisecond, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				newFleet(t, "a")
				h := newStatusHandler(t)
				slow := &stuck{watcher: watcher{header: http.Header{}}, deadline: time.NewTimer(time.Hour)}
				quick := &watcher{header: http.Header{}}
				begin := time.Now()
				time.AfterFunc(test.ends, h.end)
				var gone time.Duration
				go func() {
					watch(t.Context(), t, h, slow)
					gone = time.Since(begin)
				}()
				ctx, leave := context.WithTimeout(t.Context(), 9500*time.Millisecond)
				defer leave()
				watch(ctx, t, h, quick)
				if seen := len(quick.events) - 1; seen != test.seen {
					t.Errorf("the quick viewer saw %d events, want %d", seen, test.seen)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if gone != viewerPatience {
					t.Errorf("the slow viewer was let go after %v, want %v", gone, viewerPatience)
				}
				h.end()
			})
		})
	}
}

// decode reads an event.
func decode(t *testing.T, event []byte) (status pageStatus) {
	t.Helper()
	text, ok := strings.CutPrefix(string(event), "data: ")
	if !ok || !strings.HasSuffix(text, "\n\n") || strings.Count(text, "\n") != 2 {
		t.Fatalf("event = %q, want one line of data", event)
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		t.Fatalf("event %s: %v", text, err)
	}
	return status
}

func TestStatusEvent(t *testing.T) {
	h := newStatusHandler(t)
	begin := h.hub.epoch
	at := func(seconds float64) pageStatus {
		t.Helper()
		event, next := h.hub.event(begin.Add(time.Duration(seconds * float64(time.Second))))
		if next <= 0 || next > time.Second {
			t.Errorf("the next event after %v s is due in %v", seconds, next)
		}
		return decode(t, event)
	}
	if status := at(0.5); status.Fleet != nil || status.Name != t.Name() || status.IntervalMS != 1000 {
		t.Errorf("event of a fleet that nobody uses = %+v", status)
	}
	f := newFleet(t)
	if status := at(1.5); status.Fleet == nil || len(status.Fleet.Upstreams) != 0 || len(status.Placements) != 0 {
		t.Errorf("event of an empty fleet = %+v", status)
	}
	f.List([]string{"a"})
	at(2.5)
	place := func(took time.Duration) {
		var p fleet.Placement
		o := fleet.DefaultOptions()
		req := fleet.Request{Model: "m", Session: 7, Tokens: 1000, Prefills: true, Watched: true, Head: 1}
		f.Place(&p, &req, fleet.NewPool([]string{"a"}), []int{0}, &o, begin)
		p.FirstOutput(begin.Add(took))
	}
	for range 30 {
		place(time.Second)
	}
	status := at(3.5)
	if u := status.Fleet.Upstreams[0]; u.Upstream != "a" || u.RequestsInFlight != 30 || u.Sessions != 1 || u.Models != nil {
		t.Errorf("upstream = %+v, want one with 30 requests and a session", u)
	}
	if p := status.Placements; len(p) != pagePlacements || p[0].Reason != "pinned" || p[0].Upstreams != nil || p[0].FirstOutputMS != 1000 {
		t.Errorf("placements = %+v, want %d pinned ones without the upstreams", p, pagePlacements)
	}
	if again := at(3.9); again.Time != status.Time {
		t.Error("two events were made in one interval")
	}
	if points := pointsOf(at(6.5).FirstOutput.P50MS); !slices.Equal(points, []int64{-1, -1, 750, -1, -1, -1}) {
		t.Errorf("median first output = %v, want 750 in the third of six intervals", points)
	}
}

// pointsOf has -1 for what is not known.
func pointsOf(list []*int64) (points []int64) {
	for _, p := range list {
		if p == nil {
			points = append(points, -1)
		} else {
			points = append(points, *p)
		}
	}
	return points
}

// What is drawn is bounded, and begins anew with a fleet that does.
func TestFirstOutputs(t *testing.T) {
	var o firstOutputs
	view := &fleet.View{Upstreams: []fleet.UpstreamView{{Name: "a"}}}
	for interval := range int64(shownIntervals + 10) {
		o.take(interval+1, view)
	}
	if len(o.p50) != shownIntervals || len(o.p95) != shownIntervals {
		t.Errorf("%d and %d points, want %d", len(o.p50), len(o.p95), shownIntervals)
	}
	o.take(1<<40, view)
	if len(o.p50) != shownIntervals {
		t.Errorf("%d points after a long time, want %d", len(o.p50), shownIntervals)
	}
	o.forget()
	o.take(1<<40, view)
	if len(o.p50) != 1 {
		t.Errorf("%d points of a new fleet, want 1", len(o.p50))
	}
}

// An event is made of copies: while somebody holds the fleet's lock, here by an
// upstream that is just added, what was copied is rendered and sent all the same.
func TestStatusRendersWithoutTheFleetsLock(t *testing.T) {
	var holding atomic.Bool
	held, let := make(chan struct{}), make(chan struct{})
	f := fleet.New(func() uint64 {
		if holding.Load() {
			close(held)
			<-let
		}
		return 1
	})
	if _, loaded, err := fleets.LoadOrNew(t.Name(), func() (caddy.Destructor, error) {
		return pooledFleet{f, newScrapeOwners(), new(storeWriters), new(livePolicies), new(sharing)}, nil
	}); err != nil || loaded {
		t.Fatalf("LoadOrNew() = %v, %v", loaded, err)
	}
	defer func() {
		if _, err := fleets.Delete(t.Name()); err != nil {
			t.Error(err)
		}
	}()
	f.List([]string{"a"})
	h := newStatusHandler(t)
	now := h.hub.epoch.Add(time.Second / 2)
	copied := h.hub.look(1, now)
	h.hub.event(now)

	holding.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.List([]string{"b"})
	}()
	<-held
	rendered := make(chan [2][]byte)
	go func() {
		rendered <- [...][]byte{copied.event(), first(h.hub.event(now))}
	}()
	select {
	case events := <-rendered:
		for _, event := range events {
			if status := decode(t, event); len(status.Fleet.Upstreams) != 1 {
				t.Errorf("event = %s, want one upstream", event)
			}
		}
	case <-time.After(30 * time.Second):
		t.Error("rendering waits for the fleet's lock")
	}
	close(let)
	<-done
}

func first(event []byte, _ time.Duration) []byte { return event }

func BenchmarkStatusEvent(b *testing.B) {
	for _, n := range []int{4, 64, 512} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := &lease{name: b.Name()}
			f := l.acquire()
			defer l.release()
			names, usable := make([]string, n), make([]int, n)
			for i := range names {
				names[i], usable[i] = fmt.Sprintf("upstream-%d:8000", i), i
			}
			f.List(names)
			hub := acquireStatusHub(b.Name(), time.Second)
			defer hub.release()
			now, o, pool := hub.epoch, fleet.DefaultOptions(), fleet.NewPool(names)
			for i := range pagePlacements {
				f.Observe(names[i%n], fullReport(), now, time.Hour)
				var p fleet.Placement
				f.Place(&p, &fleet.Request{Session: sessions.Key(i + 1), Tokens: 1000, Prefills: true}, pool, usable, &o, now)
			}
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Second)
				hub.event(now)
			}
			b.ReportMetric(float64(len(hub.last)), "bytes/event")
		})
	}
}
