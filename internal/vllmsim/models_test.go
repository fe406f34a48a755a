// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestModelsList(t *testing.T) {
	h := newTestHost(t, ServerConfig{Models: []string{"big", "alias"}, MaxModelTokens: 5000})
	type entry struct {
		ID, Object, Root string
		OwnedBy          string `json:"owned_by"`
		Parent           *string
		Length           *int `json:"max_model_len"`
		Permission       []any
	}
	list := func() []entry {
		var v struct{ Data []entry }
		if err := json.NewDecoder(mustSend(t, h, http.MethodGet, "/v1/models", "").Body).Decode(&v); err != nil {
			t.Fatal(err)
		}
		return v.Data
	}
	for i, e := range list() {
		if e.ID != []string{"big", "alias"}[i] || e.Root != "big" || e.Parent != nil || *e.Length != 5000 {
			t.Errorf("entry %d: %+v", i, e)
		}
	}
	h.Server().SetModels([]string{"new"}, Adapter{Name: "tuned"}, Adapter{Name: "other", Base: "alias", Root: "org/other"})
	h.Server().Restart()
	got := list()
	if len(got) != 3 || got[0].ID != "new" {
		t.Fatalf("list %+v, want a model and two adapters", got)
	}
	for i, want := range [][3]string{{"tuned", "new", "/adapters/tuned"}, {"other", "alias", "org/other"}} {
		e := got[i+1]
		if e.Parent == nil || [3]string{e.ID, *e.Parent, e.Root} != want || e.Length != nil || e.OwnedBy != "vllm" ||
			e.Object != "model" || e.Permission == nil {
			t.Errorf("adapter %+v, want %v without a length", e, want)
		}
	}
	h.Server().SetModels(nil)
	if text, _ := io.ReadAll(mustSend(t, h, http.MethodGet, "/v1/models", "").Body); string(text) != `{"data":[],"object":"list"}` {
		t.Errorf("no models: %s", text)
	}
}

func TestModelsServed(t *testing.T) {
	h := newTestHost(t, ServerConfig{Models: []string{"old"}})
	h.Server().SetModels([]string{"new"}, Adapter{Name: "tuned"})
	for path, body := range map[string]string{
		"/v1/chat/completions": hello, "/v1/completions": `"prompt":"x"`, "/v1/messages": `"max_tokens":1,` + hello,
		"/v1/responses": `"input":"x"`, "/v1/embeddings": `"input":"x"`, "/tokenize": `"prompt":"x"`,
		"/v1/messages/count_tokens": hello, "/inference/v1/generate": `"token_ids":[1]`,
	} {
		for _, model := range []string{"new", "tuned"} {
			call200(t, h, path, `{"model":"`+model+`",`+body+`}`)
		}
		status, v := callJSON(t, h, http.MethodPost, path, `{"model":"old",`+body+`}`)
		if status != 404 || at(t, v, "error", "message") != "The model `old` does not exist." ||
			at(t, v, "error", "type") != "NotFoundError" {
			t.Errorf("%s: a model that is gone = %d %v", path, status, v)
		}
	}
	if v := call200(t, h, "/v1/completions", `{"prompt":"x"}`); v["model"] != "new" {
		t.Errorf("no model named: %v answers", v["model"])
	}
	if !strings.Contains(page(t, h), `model_name="new"`) {
		t.Error("metrics keep the old label")
	}
	h.Server().SetModels(nil)
	if status, _ := callJSON(t, h, http.MethodPost, "/v1/completions", `{"prompt":"x"}`); status != 404 {
		t.Errorf("no model named and none served = %d, want 404", status)
	}
}

func TestModelsFaults(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	for fault, want := range map[ModelsFault]struct {
		status int
		sound  bool
	}{
		ModelsMissing: {404, true}, ModelsError: {500, false}, ModelsGarbage: {200, false}, ModelsFine: {200, true},
	} {
		h.Server().SetFault(Fault{Models: fault})
		resp := mustSend(t, h, http.MethodGet, "/v1/models", "")
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want.status || json.Valid(text) != want.sound {
			t.Errorf("%q: %d %q, %v, want %+v", fault, resp.StatusCode, text, err, want)
		}
		call200(t, h, "/v1/completions", `{"prompt":"x","max_tokens":1}`)
	}
	if status, _ := callJSON(t, h, http.MethodPost, "/sim/fault", `{"models":"explode"}`); status != 400 {
		t.Errorf("unknown fault = %d, want 400", status)
	}
}

func TestAPIKey(t *testing.T) {
	h := newTestHost(t, ServerConfig{APIKey: "secret"})
	for _, tc := range []struct {
		path, authorization string
		status              int
	}{
		{"/v1/models", "", 401},
		{"/v1/models", "Bearer wrong", 401},
		{"/v1/models", "Basic secret", 401},
		{"/v1/models", "secret", 401},
		{"/v1/models", "Bearer secret", 200},
		{"/v1/models", "bearer secret", 200},
		{"/v1/responses/none", "", 401},
		{"/v1/responses/none", "Bearer secret", 404},
		{"/metrics", "", 200},
		{"/health", "", 200},
	} {
		r, err := http.NewRequest(http.MethodGet, h.URL()+tc.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if tc.authorization != "" {
			r.Header.Set("Authorization", tc.authorization)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tc.status || tc.status == 401 && string(text) != `{"error":"Unauthorized"}` {
			t.Errorf("GET %s with %q = %d %s, want %d", tc.path, tc.authorization, resp.StatusCode, text, tc.status)
		}
	}
}
