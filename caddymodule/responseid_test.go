// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/prompts"
)

// createdEvents is how a stream of the Responses API begins.
const createdEvents = "event: response.created\n" +
	`data: {"response":{"id":"resp_1","object":"response"},"sequence_number":0,"type":"response.created"}` + "\n\n" +
	`data: {"type":"response.in_progress","response":{"id":"resp_other"}}` + "\n\n"

func TestIDScanner(t *testing.T) {
	longest := strings.Repeat("r", prompts.MaxValueBytes)
	for _, test := range []struct {
		name, text string
		events     bool
		want       string
	}{
		{"first field", `{"id":"resp_1","output":[{"id":"msg_1"}]}`, false, "resp_1"},
		{"with space", "\n {\n  \"id\" : \"resp_1\" }", false, "resp_1"},
		{"later field", `{"background":false,"error":null,"x":{"id":"no"},"y":["id",{"id":"no"}],"id":"resp_1"}`, false, "resp_1"},
		{"a value named id", `{"x":"id","id":"resp_1"}`, false, "resp_1"},
		{"not at the top", `{"response":{"id":"no"}}`, false, ""},
		{"a number", `{"id":7,"x":"no"}`, false, ""},
		{"in a text", `{"x":"\"id\":\"no\"","y":"}{","id":"resp_1"}`, false, "resp_1"},
		{"escaped", `{"id":"resp_\u0031"}`, false, ""},
		{"longest", `{"id":"` + longest + `"}`, false, longest},
		{"too long", `{"id":"` + longest + `r"}`, false, ""},
		{"empty", `{"id":""}`, false, ""},
		{"too late", `{"x":"` + strings.Repeat("x", idWithin) + `","id":"resp_1"}`, false, ""},
		{"a list", `[{"id":"no"}]`, false, ""},
		{"nothing", ``, false, ""},
		{"not JSON", `hello "id":"no"}]`, false, ""},
		{"event", createdEvents, true, "resp_1"},
		{"type first", `data: {"type":"response.created","response":{"id":"resp_1"}}` + "\n\n", true, "resp_1"},
		{"after a comment", ": it's \"open\n\nevent: response.created\r\n" + `data:{"response":{"x":{"id":"no"},"id":"resp_1"}}`, true, "resp_1"},
		{"id of an event", `data: {"id":"no","item":{"id":"no"},"x":{"response":{"id":"no"}}}` + "\n\n", true, ""},
		{"in a later event", "data: {\"type\":\"ping\"}\n\n" + createdEvents, true, "resp_1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for size := 1; size <= len(test.text)+1; size += 1 + size/8 {
				s, got := idScanner{events: test.events}, ""
				for rest := []byte(test.text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
					if id, done := s.scan(rest[:min(size, len(rest))]); done {
						got = string(id)
						break
					}
				}
				if got != test.want {
					t.Fatalf("in writes of %d: id = %q, want %q", size, got, test.want)
				}
			}
		})
	}
}

// kept is where the fleet places a question for the response, "" where it knows
// no keeper of it.
func kept(f *fleet.Fleet, id string) string {
	var p fleet.Placement
	options := fleet.DefaultOptions()
	// ties go to the first, where nothing was placed yet
	f.Place(&p, &fleet.Request{Response: responseKey(id)}, fleet.NewPool([]string{"first", "keeper"}), []int{0, 1}, &options, time.Unix(1, 0))
	defer p.End(fleet.CauseEnd, time.Unix(1, 0))
	if p.Reason() != fleet.ReasonPinned {
		return ""
	}
	return p.Upstream()
}

// placedAt is the attempt of a request to create a response, placed on the
// upstream.
func placedAt(upstream string) (*attempt, *fleet.Fleet) {
	f := fleet.New(func() uint64 { return 0 })
	a := &attempt{prefills: true, current: new(placed)}
	a.endpoint, _ = prompts.Lookup("/v1/responses")
	options := fleet.DefaultOptions()
	f.Place(&a.current.Placement, &fleet.Request{Tokens: 10, Prefills: true}, fleet.NewPool([]string{upstream}), []int{0}, &options, time.Unix(1, 0))
	return a, f
}

// The id is found wherever the response is cut, and the client gets what was
// written.
func TestIDOfResponse(t *testing.T) {
	for _, text := range []string{createdEvents, `{"error":null,"id":"resp_1","object":"response"}`} {
		mediaType := "application/json"
		if text == createdEvents {
			mediaType = "text/event-stream"
		}
		for cut := range text {
			a, f := placedAt("keeper")
			recorder := httptest.NewRecorder()
			w := newResponseWriter(recorder, a, t.Context())
			w.Header().Set("Content-Type", mediaType)
			_, _ = io.WriteString(w, text[:cut])
			_, _ = w.ReadFrom(strings.NewReader(text[cut:]))
			if got := kept(f, "resp_1"); got != "keeper" || w.id != nil {
				t.Errorf("%s cut at %d: the keeper is %q, want it found", mediaType, cut, got)
			}
			if kept(f, "resp_other") != "" {
				t.Errorf("%s cut at %d: another id was noted too", mediaType, cut)
			}
			if recorder.Body.String() != text {
				t.Errorf("%s cut at %d: the client got %q", mediaType, cut, recorder.Body)
			}
		}
	}
}

func TestIDIsNotLookedFor(t *testing.T) {
	for _, test := range []struct {
		name, encoding string
		status         int
		change         func(*attempt)
	}{
		{"compressed", "gzip", 200, nil},
		{"an error", "", 400, nil},
		{"another endpoint", "", 200, func(a *attempt) { a.endpoint, _ = prompts.Lookup("/v1/chat/completions") }},
		{"no prompt", "", 200, func(a *attempt) { a.prefills = false }},
		{"not placed", "", 200, func(a *attempt) { a.current = nil }},
	} {
		a, f := placedAt("keeper")
		if test.change != nil {
			test.change(a)
		}
		w := newResponseWriter(httptest.NewRecorder(), a, t.Context())
		w.Header().Set("Content-Encoding", test.encoding)
		w.WriteHeader(test.status)
		_, _ = io.WriteString(w, `{"id":"resp_1"}`)
		if w.id != nil || kept(f, "resp_1") != "" {
			t.Errorf("%s: the id was looked for", test.name)
		}
	}
}

// Whoever answers for a response keeps it, also one that was made before Caddy
// was started.
func TestAnswerTellsKeeper(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusNotFound} {
		a, f := placedAt("keeper")
		r := httptest.NewRequest(http.MethodGet, "/v1/responses/resp_1", nil)
		a.look(r, prompts.Limits{})
		newResponseWriter(httptest.NewRecorder(), a, t.Context()).WriteHeader(status)
		if got := kept(f, "resp_1") != ""; got != (status == http.StatusOK) {
			t.Errorf("status %d: keeper known %v", status, got)
		}
	}
}

func TestRefersTo(t *testing.T) {
	for _, test := range []struct {
		method, path, body string
		want               string
	}{
		{http.MethodGet, "/v1/responses/resp_1", "", "resp_1"},
		{http.MethodDelete, "/openai/v1/responses/resp_1", "", "resp_1"},
		{http.MethodPost, "/v1/responses/resp_1/cancel", "{}", "resp_1"},
		{http.MethodPost, "/v1/responses", `{"input":"x","previous_response_id":"resp_1"}`, "resp_1"},
		{http.MethodPost, "/v1/responses", `{"input":"x"}`, ""},
		{http.MethodGet, "/v1/responses", "", ""},
		{http.MethodGet, "/v1/models", "", ""},
	} {
		r := httptest.NewRequest(test.method, test.path, strings.NewReader(test.body))
		a := new(attempt)
		a.look(r, prompts.Limits{})
		if a.prefills {
			a.prompt = a.endpoint.Read([]byte(test.body), true, "application/json", prompts.Limits{})
		}
		if got := a.refersTo(); got != responseKey(test.want) {
			t.Errorf("%s %s %s refers to %d, want %q", test.method, test.path, test.body, got, test.want)
		}
	}
}

func FuzzIDScanner(f *testing.F) {
	f.Add([]byte(createdEvents), true, uint8(3))
	f.Add([]byte(`{"x":[{"id":"no"}],"id":"resp_1"}`), false, uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, events bool, size uint8) {
		whole, pieces := idScanner{events: events}, idScanner{events: events}
		want, _ := whole.scan(bytes.Clone(text))
		var got []byte
		for rest := text; len(rest) > 0; {
			n := min(int(size)+1, len(rest))
			id, done := pieces.scan(rest[:n])
			if got = id; done {
				break
			}
			rest = rest[n:]
		}
		if !bytes.Equal(got, want) {
			t.Errorf("id = %q in pieces, %q at once", got, want)
		}
	})
}
