// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
)

// valid is how long the tests' reports may be believed.
const valid = 3 * time.Second

func (b *bed) report(at int, r engines.Report) { b.Observe(b.pool.Names()[at], r, b.now, valid) }

func (b *bed) fill(at int)  { b.report(at, engines.Report{KVUsage: engines.Known(0.99)}) }
func (b *bed) sleep(at int) { b.report(at, engines.Report{Asleep: true}) }

func (b *bed) drain(at int, on bool) { b.Drain(b.pool.Names()[at], on) }

func (b *bed) lists(at int, ids ...string) {
	b.ObserveModels(b.pool.Names()[at], models(ids...), b.now, valid)
}

func models(ids ...string) []engines.Model {
	var list []engines.Model
	for _, id := range ids {
		list = append(list, engines.Model{ID: id, JSON: json.RawMessage(`{"id":"` + id + `"}`)})
	}
	return list
}

// known returns a bed whose upstreams the fleet knows.
func known(n int) *bed {
	b := newBed(n)
	b.List(b.pool.Names())
	return b
}

// mark is something that speaks against an upstream for a request of model "m".
type mark struct {
	name string
	set  func(b *bed, at int, req *Request)
}

// An upstream that stands worse is chosen only when there is no better one,
// however loaded that is.
func TestStandingOrder(t *testing.T) {
	other := func(b *bed, at int, _ *Request) { b.lists(at, "other") }
	fullMark := mark{"full", func(b *bed, at int, _ *Request) { b.fill(at) }}
	better := []mark{
		{"available", func(*bed, int, *Request) {}},
		fullMark,
	}
	worse := []mark{
		{"drained", func(b *bed, at int, _ *Request) { b.drain(at, true) }},
		{"asleep", func(b *bed, at int, _ *Request) { b.sleep(at) }},
		{"tried", func(b *bed, at int, req *Request) { req.Tried = append(req.Tried, b.pool.Names()[at]) }},
	}
	orders := []struct {
		name   string
		models Models
		marks  []mark
		// lists is what the upstreams list before they are marked
		lists string
	}{
		{"list", ModelsList, append(append(append([]mark(nil), better...), worse...), mark{"foreign", other}), "m"},
		{"list, and none lists it", ModelsList, append(append([]mark(nil), better...), worse...), "other"},
		{"prefer", ModelsPrefer, append(append(append([]mark(nil), better...),
			mark{"unlisted", other},
			mark{"unlisted and full", func(b *bed, at int, _ *Request) { b.lists(at, "other"); b.fill(at) }},
		), worse...), "m"},
		{"prefer, and none lists it", ModelsPrefer, append(append([]mark(nil), better...), worse...), "other"},
		{"off", ModelsOff, append(append([]mark(nil), better...), worse...), "other"},
	}
	for _, o := range orders {
		for i, good := range o.marks {
			for _, bad := range o.marks[i:] {
				t.Run(o.name+"/"+good.name+" before "+bad.name, func(t *testing.T) {
					b := known(2)
					b.options.Models = o.models
					b.loaded(0, 200_000)
					b.lists(0, o.lists)
					b.lists(1, o.lists)
					req := prompt(1000, nil)
					req.Model = "m"
					good.set(b, 0, &req)
					bad.set(b, 1, &req)
					want := 0
					if good.name == bad.name {
						// equal ones are chosen by their cost
						want = 1
					}
					if _, at := b.place(req); at != want {
						t.Errorf("Place() = %v, want %v", at, want)
					}
				})
			}
		}
	}
}

// With every upstream in the way of a request it is still placed.
func TestNothingShutsAllOut(t *testing.T) {
	b := known(3)
	req := turn(7, 1000)
	req.Model = "m"
	for at := range b.usable {
		b.lists(at)
		b.report(at, engines.Report{KVUsage: engines.Known(1), Asleep: true})
		b.drain(at, true)
		req.Tried = append(req.Tried, b.pool.Names()[at])
	}
	for range 9 {
		if _, at := b.place(req); at < 0 {
			t.Fatalf("Place() = %v, want an upstream", at)
		}
	}
}

// A session stays at a full home: what it needs is there already. One that has
// none, and one whose home costs too much, go elsewhere.
func TestFullHome(t *testing.T) {
	const a, z = 0, 1
	tests := []struct {
		name    string
		before  func(b *bed)
		session bool
		at      int
		reason  Reason
	}{
		{"its session", func(b *bed) { b.fill(a) }, true, a, ReasonPinned},
		{"another one", func(b *bed) { b.fill(a) }, false, z, ReasonLoad},
		{"its session, under pressure", func(b *bed) { b.loaded(a, 100_000); b.fill(a) }, true, z, ReasonMovedPressure},
		{"all are full", func(b *bed) { b.fill(a); b.fill(z) }, true, a, ReasonPinned},
		{"all are full, another one", func(b *bed) { b.loaded(a, 9000); b.fill(a); b.fill(z) }, false, z, ReasonLoad},
		{"all are full, another one where the cost is least", func(b *bed) { b.loaded(z, 9000); b.fill(a); b.fill(z) }, false, a, ReasonLoad},
		{"the other sleeps", func(b *bed) { b.fill(a); b.sleep(z) }, false, a, ReasonLoad},
		{"and nobody lists the model", func(b *bed) { b.fill(a); b.lists(a, "other"); b.lists(z, "other") }, true, a, ReasonPinned},
		{"and nobody lists the model, another one", func(b *bed) { b.fill(a); b.lists(a, "other"); b.lists(z, "other") }, false, z, ReasonLoad},
		{"and it does not list the model", func(b *bed) { b.fill(a); b.lists(a, "other"); b.lists(z, "m") }, true, z, ReasonMovedUnavailable},
		{"and only preferred", func(b *bed) {
			b.options.Models = ModelsPrefer
			b.fill(a)
			b.lists(a, "other")
			b.lists(z, "other")
		}, true, a, ReasonPinned},
		{"and less preferred", func(b *bed) {
			b.options.Models = ModelsPrefer
			b.fill(a)
			b.lists(a, "other")
			b.lists(z, "m")
		}, true, z, ReasonMovedUnavailable},
		{"not full, but asleep beside one that is drained", func(b *bed) { b.sleep(a); b.drain(z, true) }, true, z, ReasonMovedUnavailable},
		{"not full, but asleep beside a full one that does not list the model", func(b *bed) {
			b.options.Models = ModelsPrefer
			b.sleep(a)
			b.fill(z)
			b.lists(z, "other")
		}, true, z, ReasonMovedUnavailable},
		{"and sleeps", func(b *bed) { b.report(a, engines.Report{KVUsage: engines.Known(1), Asleep: true}) }, true, z, ReasonMovedUnavailable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := known(2)
			b.serve(turn(7, 1000), a)
			test.before(b)
			req := turn(7, 1200)
			req.Model = "m"
			if !test.session {
				req.Session = 0
			}
			p, at := b.place(req)
			if at != test.at || p.Reason() != test.reason {
				t.Errorf("Place() = %v for %q, want %v for %q", at, p.Reason(), test.at, test.reason)
			}
		})
	}
}

// An upstream that was once overloaded stayed so for ever, and requests waited for
// it until their clients left.
//
// Each mark ends: with the next report, by an operator, or by itself. Then the
// idle upstream takes requests again.
func TestCaseD16EveryMarkEnds(t *testing.T) {
	later := func(b *bed) { b.now = b.now.Add(valid) }
	tests := []struct {
		name     string
		set, end func(b *bed)
	}{
		{"full until a report says otherwise", func(b *bed) { b.fill(1) }, func(b *bed) { b.report(1, engines.Report{KVUsage: engines.Known(0.1)}) }},
		{"full until no report says so", func(b *bed) { b.fill(1) }, later},
		{"asleep until it wakes up", func(b *bed) { b.sleep(1) }, func(b *bed) { b.report(1, engines.Report{}) }},
		{"asleep until no report says so", func(b *bed) { b.sleep(1) }, later},
		{
			"loaded by others until they are done", func(b *bed) { b.report(1, engines.Report{Running: engines.Known(90)}) },
			func(b *bed) { b.report(1, engines.Report{Running: engines.Known(0)}) },
		},
		{"loaded by others until no report says so", func(b *bed) { b.report(1, engines.Report{Running: engines.Known(90)}) }, later},
		{"drained until that ends", func(b *bed) { b.drain(1, true) }, func(b *bed) { b.drain(1, false) }},
		{"another model until it lists this one", func(b *bed) { b.lists(1, "other") }, func(b *bed) { b.lists(1, "other", "m") }},
		{"another model until the list is too old", func(b *bed) { b.lists(1, "other") }, later},
		{"no model until the list is too old", func(b *bed) { b.lists(1) }, later},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := known(2)
			b.loaded(0, 50_000)
			req := prompt(1000, nil)
			req.Model = "m"
			test.set(b)
			if _, at := b.place(req); at != 0 {
				t.Errorf("Place() = %v while marked, want 0", at)
			}
			test.end(b)
			if _, at := b.place(req); at != 1 {
				t.Errorf("Place() = %v afterwards, want 1", at)
			}
		})
	}
}

// What is in flight on a drained upstream goes on, and a session that was at
// home there finds another one.
func TestDrain(t *testing.T) {
	b := newBed(2)
	if b.Drain(b.pool.Names()[0], true) {
		t.Errorf("Drain() of an upstream that the fleet has never seen = true, want false")
	}
	b.serve(turn(7, 1000), 0)
	running, _ := b.place(turn(7, 1200), 0)
	if !b.Drain(b.pool.Names()[0], true) {
		t.Errorf("Drain() = false, want true")
	}
	if p, at := b.place(turn(7, 1400)); at != 1 || p.Reason() != ReasonMovedUnavailable {
		t.Errorf("Place() of a session that was at home there = %v for %q, want 1", at, p.Reason())
	}
	for range 5 {
		if _, at := b.place(prompt(100_000, nil)); at != 1 {
			t.Errorf("Place() = %v, want 1", at)
		}
		if _, at := b.place(Request{}); at != 1 {
			t.Errorf("Place() of a request without a prompt = %v, want 1", at)
		}
	}
	if u := b.view(t, 0); u.State != "drained" || u.Requests != 1 {
		t.Errorf("the drained upstream is %q with %v requests, want its one", u.State, u.Requests)
	}
	if !running.FirstOutput(b.now) {
		t.Errorf("FirstOutput() on a drained upstream = false, want true")
	}
	running.End(CauseEnd, b.now)
	if u := b.view(t, 0); u.Requests != 0 {
		t.Errorf("the drained upstream has %v requests at the end, want 0", u.Requests)
	}
	if !b.Drain(b.pool.Names()[0], false) {
		t.Errorf("Drain() = false, want true")
	}
	if _, at := b.place(prompt(100, nil)); at != 0 {
		t.Errorf("Place() after the drain = %v, want 0", at)
	}
}

func TestModels(t *testing.T) {
	none := []string{}
	tests := []struct {
		name   string
		models Models
		model  string
		lists  [3][]string // nil where nothing is known
		want   []int       // those that may be chosen
	}{
		{"none is known", ModelsList, "m", [3][]string{}, []int{0, 1, 2}},
		{"one lists it", ModelsList, "m", [3][]string{{"x"}, {"m", "x"}, {"x"}}, []int{1}},
		{"two list it", ModelsList, "m", [3][]string{{"m"}, {"x"}, {"m"}}, []int{0, 2}},
		{"an unknown list may have it", ModelsList, "m", [3][]string{{"x"}, nil, {"m"}}, []int{1, 2}},
		{"an empty list has not", ModelsList, "m", [3][]string{none, nil, {"m"}}, []int{1, 2}},
		{"none lists it", ModelsList, "m", [3][]string{{"x"}, {"y"}, none}, []int{0, 1, 2}},
		{"the request names none", ModelsList, "", [3][]string{{"x"}, {"y"}, none}, []int{0, 1, 2}},
		{"prefer, one lists it", ModelsPrefer, "m", [3][]string{{"x"}, {"m"}, {"x"}}, []int{1}},
		{"prefer, none lists it", ModelsPrefer, "m", [3][]string{{"x"}, {"y"}, {"z"}}, []int{0, 1, 2}},
		{"off", ModelsOff, "m", [3][]string{{"x"}, {"m"}, none}, []int{0, 1, 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := known(3)
			b.options.Models = test.models
			for at, list := range test.lists {
				if list != nil {
					b.lists(at, list...)
				}
			}
			var counts [3]int
			for range 12 {
				req := prompt(1000, nil)
				req.Model = test.model
				_, at := b.place(req)
				counts[at]++
			}
			var want [3]int
			for _, at := range test.want {
				want[at] = 12 / len(test.want)
			}
			if counts != want {
				t.Errorf("12 requests went %v, want %v", counts, want)
			}
		})
	}
}

// A retry of the right model goes back where it has failed rather than where
// nobody knows the model, and does not fail there twice in a row.
func TestRetries(t *testing.T) {
	tests := []struct {
		name  string
		lists [3][]string
		tried []int
		want  int
	}{
		{"an untried one", [3][]string{{"m"}, {"m"}, {"x"}}, []int{0}, 1},
		{"all that list it were tried", [3][]string{{"m"}, {"x"}, {"x"}}, []int{0}, 0},
		{"none lists it", [3][]string{{"x"}, {"x"}, {"x"}}, []int{0, 2}, 1},
		{"none lists it and all were tried", [3][]string{{"x"}, {"x"}, {"x"}}, []int{0, 1, 2}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := known(3)
			for at, list := range test.lists {
				b.lists(at, list...)
				// what was not tried looks worse
				b.loaded(at, []int{10, 50_000, 100_000}[at])
			}
			req := prompt(1000, nil)
			req.Model = "m"
			for _, at := range test.tried {
				req.Tried = append(req.Tried, b.pool.Names()[at])
			}
			if _, at := b.place(req); at != test.want {
				t.Errorf("Place() after %v = %v, want %v", test.tried, at, test.want)
			}
		})
	}
}

func TestServedModels(t *testing.T) {
	b := known(3)
	if got := b.ServedModels(b.now); got != nil {
		t.Errorf("ServedModels() of nobody = %v, want nil", got)
	}
	b.ObserveModels("stranger:8000", models("q"), b.now, valid)
	b.lists(2)
	if got := b.ServedModels(b.now); got == nil || len(got) != 0 {
		t.Errorf("ServedModels() of an empty list = %#v, want an empty one", got)
	}
	b.lists(2, "b", "c")
	b.ObserveModels(b.pool.Names()[1], []engines.Model{{ID: "b", JSON: json.RawMessage(`{"first":1}`)}, {ID: "a"}}, b.now, 2*valid)
	tests := []struct {
		after time.Duration
		want  string
	}{
		{0, `a "" b "{\"first\":1}" c "{\"id\":\"c\"}" `},
		{valid - 1, `a "" b "{\"first\":1}" c "{\"id\":\"c\"}" `},
		{valid, `a "" b "{\"first\":1}" `},
		{2 * valid, ``},
	}
	for _, test := range tests {
		var got []byte
		for _, m := range b.ServedModels(b.now.Add(test.after)) {
			got = fmt.Appendf(got, "%s %q ", m.ID, m.JSON)
		}
		if string(got) != test.want {
			t.Errorf("ServedModels() after %v = %s, want %s", test.after, got, test.want)
		}
	}
}
