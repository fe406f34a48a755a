// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// askModels sends a request for the list of models to the first site. Who has
// answered is told by the status: 503 is the handler whose fleet knows nothing,
// and 200 the upstream.
func askModels(t *testing.T, s *server, method, path string) (status int, answer string) {
	t.Helper()
	res, answer := exchangeAs(t, method, s.sites[0], path, "")
	return res.StatusCode, answer
}

// The directive works beside a proxy wherever that stands, and nothing else of
// the site changes.
func TestModelsDirective(t *testing.T) {
	const proxy = "reverse_proxy %s {\nlb_policy llm_loadaware\n}\n"
	for _, test := range []struct{ name, site string }{
		{"before the proxy", "llm_loadaware_models /v1/models\n" + proxy},
		{"after the proxy", proxy + "llm_loadaware_models /v1/models\n"},
		{"before a handle", "llm_loadaware_models /v1/models\nhandle /v1/* {\n" + proxy + "}\n"},
		{"in a handle", "handle /v1/models {\nllm_loadaware_models\n}\nhandle {\n" + proxy + "}\n"},
		{"in a route", "route {\nllm_loadaware_models /v1/models\n" + proxy + "}\n"},
		{"with a named matcher", "@models path /v1/models\nllm_loadaware_models @models default\n" + proxy},
		{"with another fleet", "llm_loadaware_models /v1/models other\n" + proxy},
		{"inside encode", "encode gzip\nllm_loadaware\nllm_loadaware_models /v1/models\n" + proxy},
	} {
		t.Run(test.name, func(t *testing.T) {
			up := newUpstream(t, answerAtOnce)
			s := start(t, "{site0} {\n"+fmt.Sprintf(test.site, up.address())+"}\n")
			status, text := askModels(t, s, http.MethodGet, "/v1/models")
			var answer struct {
				Error struct {
					Message, Type string
					Code          int
				}
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil || status != http.StatusServiceUnavailable {
				t.Fatalf("GET /v1/models: status %d, %v: %s, want an error with status 503", status, err, text)
			}
			if e := answer.Error; e.Type != "service_unavailable" || e.Code != status || e.Message == "" {
				t.Errorf("error = %+v, want one of type service_unavailable with a message and code %d", e, status)
			}
			if strings.Contains(test.name, "another fleet") != strings.Contains(text, "fleet other is not in use") {
				t.Errorf("error = %s, want it to name a fleet that is not in use, and only that", text)
			}
			if status, text := askModels(t, s, http.MethodHead, "/v1/models"); status != http.StatusServiceUnavailable || text != "" {
				t.Errorf("HEAD /v1/models: status %d: %q, want 503 and nothing", status, text)
			}
			if status, text := exchange(t, s.sites[0], chatPath, chat("hello")); status != http.StatusOK || !strings.Contains(text, "Hello") {
				t.Errorf("chat: status %d: %s", status, text)
			}
			if test.name == "in a handle" {
				return
			}
			if status, text := askModels(t, s, http.MethodPost, "/v1/models"); status != http.StatusOK || !strings.Contains(text, "Hello") {
				t.Errorf("POST /v1/models: status %d: %s, want the upstream's answer", status, text)
			}
		})
	}
}

// Clients see the models of all engines, each as an engine describes it.
func TestModelsOfFleet(t *testing.T) {
	engines := map[string]*vllmsim.Host{}
	var addresses []string
	for _, name := range []string{"one", "two"} {
		engines[name] = simulated(t, vllmsim.ServerConfig{Models: []string{"base", name}})
		addresses = append(addresses, engines[name].Addr())
	}
	s := start(t, strings.Replace(fmt.Sprintf(scraping, strings.Join(addresses, " "), "", "", ""),
		"llm_loadaware\n", "llm_loadaware\nllm_loadaware_models /v1/models\n", 1))

	type entries struct {
		Object string
		Data   []json.RawMessage
	}
	list := func(url string) (list entries) {
		res, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode == http.StatusOK && json.Unmarshal(text, &list) != nil {
			t.Fatalf("GET %s: %v: %s", url, err, text)
		}
		return list
	}
	var got entries
	eventually(t, func() bool { got = list("http://" + s.sites[0] + "/v1/models"); return len(got.Data) == 3 },
		func() string { return fmt.Sprintf("models = %s, want base, one and two", got.Data) })
	if got.Object != "list" {
		t.Errorf("object = %q, want list", got.Object)
	}
	for i, name := range []string{"one", "two"} {
		// the engine's list has the base first
		if want := list(engines[name].URL() + "/v1/models").Data[1]; string(got.Data[i+1]) != string(want) {
			t.Errorf("model %d = %s, want %s", i+1, got.Data[i+1], want)
		}
	}
}

// The handler refers to a fleet by its name only: it may come first, and does
// not keep a fleet that nothing else uses.
func TestModelsDirectiveKeepsNoFleet(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	const models = "{site0} {\nllm_loadaware_models\n}\n"
	s := start(t, models)
	fleets := func(want int) {
		t.Helper()
		eventually(t, func() bool {
			_, text := s.get("/llm_loadaware/fleets")
			return strings.Count(text, `"name"`) == want
		}, func() string { return fmt.Sprintf("fleets in use are not %d", want) })
	}
	fleets(0)
	if _, text := askModels(t, s, http.MethodGet, "/"); !strings.Contains(text, "fleet default is not in use") {
		t.Errorf("error without the fleet = %s", text)
	}
	if err := s.reload(models + "{site1} {\nreverse_proxy " + up.address() + " {\nlb_policy llm_loadaware\n}\n}\n"); err != nil {
		t.Fatal(err)
	}
	fleets(1)
	s.accepts()
	if status, text := askModels(t, s, http.MethodGet, "/"); status != http.StatusServiceUnavailable || strings.Contains(text, "not in use") {
		t.Errorf("status %d: %s, want 503 because the models are not known", status, text)
	}
	if err := s.reload(models); err != nil {
		t.Fatal(err)
	}
	fleets(0)
}

func TestBadModelsCaddyfiles(t *testing.T) {
	for _, bad := range []string{"blue green", `""`, "/v1/models blue green", "{\n}", "blue {\nx\n}"} {
		refused(t, ":80 {\n\tllm_loadaware_models "+bad+"\n}\n", "llm_loadaware_models", 2)
	}
}
