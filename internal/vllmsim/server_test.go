// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// promptEndpoints is one body for each endpoint that runs the engine and streams.
var promptEndpoints = map[string]string{
	"/v1/chat/completions":   `{` + hello + `,"max_tokens":4,"stream":true}`,
	"/v1/completions":        `{"prompt":"hello","max_tokens":4,"stream":true}`,
	"/v1/messages":           `{` + hello + `,"max_tokens":4,"stream":true}`,
	"/v1/responses":          `{"input":"hello","max_output_tokens":4,"stream":true}`,
	"/inference/v1/generate": `{"token_ids":[1,2,3],"sampling_params":{"max_tokens":4},"stream":true}`,
}

// TestHeadersComeBeforePrefill holds the engine: headers must come, and no event but the two that the Responses API
// sends without the engine.
func TestHeadersComeBeforePrefill(t *testing.T) {
	for path, body := range promptEndpoints {
		t.Run(path, func(t *testing.T) {
			h := newTestHost(t, ServerConfig{})
			h.Server().SetFault(Fault{Stall: true})
			resp := mustSend(t, h, http.MethodPost, path, body)
			in := bufio.NewReader(resp.Body)
			if path == "/v1/responses" {
				for _, want := range []string{"response.created", "response.in_progress"} {
					if e, err := next(in); err != nil || e.name != want {
						t.Fatalf("event %s, %v before prefill, want %s", e.name, err, want)
					}
				}
			}
			came := make(chan error, 1)
			go func() {
				_, err := in.Peek(1)
				came <- err
			}()
			select {
			case <-came:
				t.Fatal("an event came before the prefill")
			case <-time.After(30 * time.Millisecond):
			}
			h.Server().SetFault(Fault{})
			if err := <-came; err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestUnstreamedComesAtTheEnd(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	h.Server().SetFault(Fault{Stall: true})
	came := make(chan int, 1)
	go func() {
		resp, err := http.Post(h.URL()+"/v1/chat/completions", "application/json", strings.NewReader(`{`+hello+`}`))
		if err != nil {
			came <- 0
			return
		}
		_ = resp.Body.Close()
		came <- resp.StatusCode
	}()
	select {
	case <-came:
		t.Fatal("headers came before the engine ran")
	case <-time.After(30 * time.Millisecond):
	}
	h.Server().SetFault(Fault{})
	if status := <-came; status != 200 {
		t.Errorf("status %d, want 200", status)
	}
}

func TestClientThatLeavesIsAborted(t *testing.T) {
	for _, name := range []string{"streamed", "unstreamed"} {
		t.Run(name, func(t *testing.T) {
			h := newTestHost(t, ServerConfig{Speed: 1, MaxOutputTokens: 100_000})
			body := `{"prompt":"hello","max_tokens":50000` + map[string]string{"streamed": `,"stream":true`}[name] + `}`
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL()+"/v1/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			eventually(t, "the request runs", func() bool { return h.Server().Stats().GeneratedTokens > 2 })
			cancel()
			<-ended
			eventually(t, "the engine is idle", func() bool { return idle(h) })
			if s := h.Server().Stats(); s.Finished != 0 || s.GeneratedTokens > 1000 {
				t.Errorf("Stats() = %+v, want an unfinished request", s)
			}
			eventually(t, "no request is in flight", func() bool { return h.Server().inFlight.Load() == 0 })
		})
	}
}

func TestInformation(t *testing.T) {
	h := newTestHost(t, ServerConfig{Models: []string{"big", "alias"}, MaxModelTokens: 5000})
	_, v := callJSON(t, h, http.MethodGet, "/v1/models", "")
	if v["object"] != "list" || at(t, v, "data", 0, "id") != "big" || at(t, v, "data", 1, "id") != "alias" ||
		at(t, v, "data", 0, "max_model_len") != 5000.0 || at(t, v, "data", 0, "object") != "model" {
		t.Errorf("models %v", v)
	}
	if _, v := callJSON(t, h, http.MethodGet, "/version", ""); v["version"] == nil {
		t.Errorf("version %v", v)
	}
	for path, status := range map[string]int{"/health": 200, "/ping": 200, "/v1/nothing": 404} {
		if resp := mustSend(t, h, http.MethodGet, path, ""); resp.StatusCode != status {
			t.Errorf("GET %s = %d, want %d", path, resp.StatusCode, status)
		}
	}

	h.Server().SetFault(Fault{Stall: true})
	resp := mustSend(t, h, http.MethodPost, "/v1/completions", promptEndpoints["/v1/completions"])
	if _, v := callJSON(t, h, http.MethodGet, "/load", ""); v["server_load"] != 1.0 {
		t.Errorf("load %v, want 1", v)
	}
	_ = resp.Body.Close()
	eventually(t, "the load is 0", func() bool {
		_, v := callJSON(t, h, http.MethodGet, "/load", "")
		return v["server_load"] == 0.0
	})
}

func TestRecording(t *testing.T) {
	h := newTestHost(t, ServerConfig{RecordBodies: 2})
	bodies := []string{`{"prompt":"a"}`, `{ "prompt" : "b" }`, `not JSON`}
	for i, body := range bodies {
		r, err := http.NewRequest(http.MethodPost, h.URL()+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if i == 1 {
			r.Header.Set("X-Session-Id", "s1")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	_ = mustSend(t, h, http.MethodGet, "/v1/responses/x", "")
	list := h.Server().Requests()
	if len(list) != 4 {
		t.Fatalf("%d requests, want 4", len(list))
	}
	// the GET's empty body is the last, so the third request's is the only other one kept
	for i, want := range []string{"", "", bodies[2], ""} {
		if got := string(list[i].Body); got != want {
			t.Errorf("body %d is %q, want %q", i, got, want)
		}
	}
	if list[1].Session != "s1" || list[0].Session != "" || list[1].Method != "POST" || list[1].Path != "/v1/completions" {
		t.Errorf("request %+v, want session s1", list[1])
	}
	counts := h.Server().Counts()
	if counts["/v1/completions"] != 3 || counts["/v1/responses/{id}"] != 1 || len(counts) != 2 {
		t.Errorf("Counts() = %v", counts)
	}
}

func TestAnswersDependOnTheSeed(t *testing.T) {
	ask := func(seed uint64) (id, text any) {
		h := newTestHost(t, ServerConfig{Engine: Config{Seed: seed}})
		v := call200(t, h, "/v1/completions", `{"prompt":"hello"}`)
		return v["id"], at(t, v, "choices", 0, "text")
	}
	id1, text1 := ask(1)
	id2, text2 := ask(1)
	id3, text3 := ask(2)
	if id1 != id2 || text1 != text2 {
		t.Errorf("equal seeds answer %v %v and %v %v", id1, text1, id2, text2)
	}
	if id1 == id3 || text1 == text3 {
		t.Errorf("seeds 1 and 2 both answer %v %v", id1, text1)
	}
}

// TestCloseLeavesNothingBehind closes a server whose requests hang, stream and run in the background.
func TestCloseLeavesNothingBehind(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	call200(t, h, "/v1/completions", `{"prompt":"x"}`)
	h.Server().SetFault(Fault{Request: FaultHangAfterHeaders, Times: 1, Stall: true})
	for range 2 {
		_ = mustSend(t, h, http.MethodPost, "/v1/completions", promptEndpoints["/v1/completions"])
	}
	call200(t, h, "/v1/responses", `{"input":"x","background":true}`)
	h.Close()
	stack := make([]byte, 1<<20)
	eventually(t, "no goroutine is in a method of this package", func() bool {
		return !strings.Contains(string(stack[:runtime.Stack(stack, true)]), "internal/vllmsim.(*")
	})
}
