// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"net/http"
	"strings"
	"testing"
)

func TestResponsesStream(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	list := stream(t, h, "/v1/responses", `{"input":"hello","max_output_tokens":2,"stream":true}`)
	want := "response.created response.in_progress response.output_item.added response.content_part.added " +
		"response.output_text.delta response.output_text.delta response.output_text.done response.content_part.done " +
		"response.output_item.done response.completed"
	if got := names(list); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	for i, e := range list {
		if e.data["sequence_number"] != float64(i) || e.data["type"] != e.name {
			t.Errorf("event %d: %s", i, e.raw)
		}
	}
	last := list[len(list)-1].data["response"]
	if at(t, last, "status") != "completed" || at(t, last, "usage", "output_tokens") != 2.0 {
		t.Errorf("completed %v", last)
	}
	tool := stream(t, h, "/v1/responses", `{"input":"x","stream":true,"tools":[{"type":"function","name":"f"}],"tool_choice":"required"}`)
	want = "response.created response.in_progress response.output_item.added response.function_call_arguments.delta " +
		"response.function_call_arguments.done response.output_item.done response.completed"
	if got := names(tool); got != want {
		t.Errorf("events of a tool call %s, want %s", got, want)
	}
}

func TestResponsesAreRemembered(t *testing.T) {
	h := newTestHost(t, ServerConfig{PromptTokensDetails: true})
	text := strings.Repeat("remember this. ", 30)
	first := call200(t, h, "/v1/responses", `{"input":"`+text+`","instructions":"be kind"}`)
	id, _ := first["id"].(string)
	for _, tc := range []struct {
		name, method, path string
		status             int
		want               any
	}{
		{"get", http.MethodGet, "/v1/responses/" + id, 200, "completed"},
		{"get unknown", http.MethodGet, "/v1/responses/resp_none", 404, nil},
		{"cancel what ran in the foreground", http.MethodPost, "/v1/responses/" + id + "/cancel", 400, nil},
		{"cancel unknown", http.MethodPost, "/v1/responses/resp_none/cancel", 404, nil},
		{"delete", http.MethodDelete, "/v1/responses/" + id, 200, nil},
		{"delete again", http.MethodDelete, "/v1/responses/" + id, 404, nil},
		{"get deleted", http.MethodGet, "/v1/responses/" + id, 404, nil},
	} {
		if tc.name == "delete" {
			next := call200(t, h, "/v1/responses", `{"input":"go on","instructions":"be kind","previous_response_id":"`+id+`"}`)
			if got, _ := at(t, next, "usage", "input_tokens_details", "cached_tokens").(float64); got < 112 {
				t.Errorf("a continued response has %v cached tokens, want the whole of the first", got)
			}
		}
		status, v := callJSON(t, h, tc.method, tc.path, "")
		if status != tc.status || v["status"] != tc.want {
			t.Errorf("%s = %d %v, want %d %v", tc.name, status, v, tc.status, tc.want)
		}
	}
	unstored := call200(t, h, "/v1/responses", `{"input":"x","store":false}`)
	if status, _ := callJSON(t, h, http.MethodGet, "/v1/responses/"+unstored["id"].(string), ""); status != 404 {
		t.Errorf("GET of a response with store false = %d, want 404", status)
	}
}

func TestBackgroundResponses(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	get := func(id string) any {
		_, v := callJSON(t, h, http.MethodGet, "/v1/responses/"+id, "")
		return v["status"]
	}
	v := call200(t, h, "/v1/responses", `{"input":"x","background":true}`)
	id, _ := v["id"].(string)
	if v["status"] != "queued" {
		t.Errorf("status %v, want queued", v["status"])
	}
	eventually(t, "the response is completed", func() bool { return get(id) == "completed" })

	h.Server().SetFault(Fault{Stall: true})
	v = call200(t, h, "/v1/responses", `{"input":"x","background":true}`)
	id, _ = v["id"].(string)
	if v := call200(t, h, "/v1/responses/"+id+"/cancel", ""); v["status"] != "cancelled" {
		t.Errorf("cancel = %v", v)
	}
	eventually(t, "the engine is idle", func() bool { return idle(h) })
	if got := get(id); got != "cancelled" {
		t.Errorf("status %v after cancel, want cancelled", got)
	}

	// one that is left over does not keep Close from returning
	call200(t, h, "/v1/responses", `{"input":"x","background":true}`)
}

// TestCanceledResponseStaysCanceled completes a response whose cancellation came first.
func TestCanceledResponseStaysCanceled(t *testing.T) {
	s, canceled := newResponseStore(), false
	s.put("r", &stored{body: object{"status": "queued"}, cancel: func() { canceled = true }})
	if body := s.cancel("r"); body["status"] != "cancelled" || !canceled {
		t.Errorf("cancel() = %v, canceled %v", body, canceled)
	}
	s.complete("r", object{"status": "completed"}, nil)
	if got := s.get("r").body["status"]; got != "cancelled" {
		t.Errorf("status %v, want cancelled", got)
	}
	s.complete("deleted", object{"status": "completed"}, nil)
	if s.get("deleted") != nil {
		t.Error("complete() brings a deleted response back")
	}
}

// idle reports whether the engine has nothing to do.
func idle(h *Host) (is bool) {
	h.Server().WithEngine(func(e *Engine) { is = e.Idle() })
	return is
}
