// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llm/loadaware/engines"
)

// askModels sends a request to the handler of the test's fleet. Status 299 is
// the answer of the handler behind it.
func askModels(t *testing.T, method string) *httptest.ResponseRecorder {
	t.Helper()
	h := &ModelsHandler{Fleet: t.Name()}
	if err := h.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(299)
		return nil
	})
	if err := h.ServeHTTP(recorder, httptest.NewRequest(method, "/v1/models", nil), next); err != nil {
		t.Fatal(err)
	}
	return recorder
}

func TestModelsHandler(t *testing.T) {
	now := time.Now()
	f := newFleet(t, "a", "b", "c")
	model := func(id, rest string) engines.Model {
		return engines.Model{ID: id, JSON: json.RawMessage(`{"id": "` + id + `", "html": "<&>"` + rest + `}`)}
	}
	f.ObserveModels("a", []engines.Model{model("m", `, "of": "a"`)}, now, time.Minute)
	f.ObserveModels("b", []engines.Model{model("adapter", ""), model("m", `, "of": "b"`)}, now, time.Minute)
	f.ObserveModels("c", []engines.Model{model("gone", "")}, now.Add(-time.Hour), time.Minute)

	got := askModels(t, http.MethodGet)
	want := `{"object":"list","data":[{"id": "adapter", "html": "<&>"},{"id": "m", "html": "<&>", "of": "a"}]}`
	if got.Code != http.StatusOK || got.Body.String() != want || got.Header().Get("Content-Type") != "application/json" {
		t.Errorf("GET = %d, %s: %s, want 200 and %s", got.Code, got.Header().Get("Content-Type"), got.Body, want)
	}
	if got := askModels(t, http.MethodHead); got.Code != http.StatusOK {
		t.Errorf("HEAD = %d, want 200", got.Code)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		if got := askModels(t, method); got.Code != 299 {
			t.Errorf("%s = %d, want the answer of the next handler", method, got.Code)
		}
	}
}

// An engine without a model says something; one that was not asked does not.
func TestModelsHandlerEmptyList(t *testing.T) {
	newFleet(t, "a").ObserveModels("a", nil, time.Now(), time.Minute)
	if got := askModels(t, http.MethodGet); got.Code != http.StatusOK || got.Body.String() != `{"object":"list","data":[]}` {
		t.Errorf("GET = %d: %s, want an empty list", got.Code, got.Body)
	}
}

func TestModelsHandlerUnknown(t *testing.T) {
	unavailable := func(t *testing.T, message string) {
		t.Helper()
		got := askModels(t, http.MethodGet)
		want := `{"error":{"message":"` + message + `","type":"service_unavailable","param":null,"code":503}}`
		if got.Code != http.StatusServiceUnavailable || got.Body.String() != want {
			t.Errorf("GET = %d: %s, want 503 and %s", got.Code, got.Body, want)
		}
	}
	t.Run("unused", func(t *testing.T) {
		unavailable(t, "fleet "+t.Name()+" is not in use")
		if _, inUse := findFleet(t.Name()); inUse {
			t.Error("the handler keeps a fleet")
		}
	})
	t.Run("unread", func(t *testing.T) {
		newFleet(t, "a")
		unavailable(t, "the models of the upstreams are not known")
	})
}

func TestModelsHandlerCaddyfile(t *testing.T) {
	for _, test := range []struct{ input, fleet string }{
		{"llm_loadaware_models", "default"},
		{"llm_loadaware_models blue", "blue"},
		{`llm_loadaware_models "/a fleet"`, "/a fleet"},
	} {
		h := new(ModelsHandler)
		if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(test.input)); err != nil {
			t.Errorf("%s: %v", test.input, err)
		}
		if err := h.Provision(caddy.Context{}); err != nil || h.Fleet != test.fleet {
			t.Errorf("%s: fleet = %q, %v, want %q", test.input, h.Fleet, err, test.fleet)
		}
	}
	for _, input := range []string{
		"llm_loadaware_models blue green",
		`llm_loadaware_models ""`,
		"llm_loadaware_models {\n}",
		"llm_loadaware_models blue {\nx\n}",
	} {
		if err := new(ModelsHandler).UnmarshalCaddyfile(caddyfile.NewTestDispenser(input)); err == nil {
			t.Errorf("%s: no error", input)
		}
	}
}
