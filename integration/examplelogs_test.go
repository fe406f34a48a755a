// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// shipped is a Caddyfile of the examples as it is, with the address of its site and
// those of its upstreams replaced.
func shipped(t *testing.T, path, upstreams string) string {
	t.Helper()
	config := readFile(t, examplesFolder+"/"+path)
	for _, replace := range [][2]string{
		{"llm.example.com {", "{site0} {"},
		{"vllm-0:8000 vllm-1:8000 vllm-2:8000", upstreams},
	} {
		if strings.Count(config, replace[0]) != 1 {
			t.Fatalf("%s does not have %q once", path, replace[0])
		}
		config = strings.Replace(config, replace[0], replace[1], 1)
	}
	return config
}

// fieldsWith are the fields of a log line or a header that begin with a prefix.
func fieldsWith[V any](fields map[string]V, prefix string) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range maps.Keys(fields) {
			if strings.HasPrefix(name, prefix) && !yield(name) {
				return
			}
		}
	})
}

// The example's log has exactly the fields that its README lists, and where the
// stream breaks off the handler's own alone.
func TestLogsExample(t *testing.T) {
	hosts := []*vllmsim.Host{simulated(t, vllmsim.ServerConfig{}), simulated(t, vllmsim.ServerConfig{})}
	s, log := startLogged(t, shipped(t, "logs/Caddyfile", hostAddresses(hosts...)))
	body := chat(words("log", 1000))
	if status, text := exchange(t, s.sites[0], chatPath, body, "X-Session-ID", "s"); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	s.settled()
	res, _ := exchangeAs(t, http.MethodGet, s.sites[0], "/v1/models", "")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("GET /v1/models: status %d", res.StatusCode)
	}
	s.settled()
	for _, host := range hosts {
		host.Server().SetFault(vllmsim.Fault{Request: vllmsim.FaultResetMidStream, AfterEvents: 2})
	}
	res, err := send(t.Context(), s.sites[0], chatPath, body, "X-Session-ID", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("the stream was not broken off")
	}
	entries := log.access(3)

	readme := readFile(t, examplesFolder+"/logs/README.md")
	added := []string{"llm_first_output_ms", "llm_prompt_tokens", "llm_reason", "llm_uncached_tokens", "llm_upstream"}
	for _, field := range added {
		if !strings.Contains(readme, "| `"+field+"` |") {
			t.Errorf("README.md does not list the field %s", field)
		}
	}
	all := append([]string{"llm_first_output_ms", "llm_loadaware"}, added[1:]...)
	for i, want := range [][]string{all, all, {"llm_loadaware"}} {
		if got := fieldsWith(entries[i], "llm_"); !slices.Equal(got, want) {
			t.Errorf("line %d has %q, want %q", i, got, want)
		}
	}

	placed, listed, broken := entries[0], entries[1], entries[2]["llm_loadaware"].(map[string]any)
	tokens := float64(estimate(body))
	for field, want := range map[string]any{"llm_reason": "new", "llm_prompt_tokens": tokens, "llm_uncached_tokens": tokens} {
		if placed[field] != want {
			t.Errorf("%s = %v, want %v", field, placed[field], want)
		}
	}
	if at, ok := placed["llm_upstream"].(string); !ok || !strings.Contains(hostAddresses(hosts...), at) {
		t.Errorf("llm_upstream = %v, want one of %s", placed["llm_upstream"], hostAddresses(hosts...))
	}
	if ms, ok := placed["llm_first_output_ms"].(float64); !ok || ms <= 0 {
		t.Errorf("llm_first_output_ms = %v, want a time", placed["llm_first_output_ms"])
	}
	if listed["llm_reason"] != "" || listed["llm_upstream"] == "" {
		t.Errorf("a list of models has the reason %v and the upstream %v", listed["llm_reason"], listed["llm_upstream"])
	}
	if broken["reason"] != "pinned" || broken["upstream"] != placed["llm_upstream"] {
		t.Errorf("the broken stream has %v, want it pinned to %v", broken, placed["llm_upstream"])
	}
}

// The example's responses have exactly the headers that its README shows.
func TestHeadersExample(t *testing.T) {
	hosts := []*vllmsim.Host{simulated(t, vllmsim.ServerConfig{}), simulated(t, vllmsim.ServerConfig{})}
	s := start(t, shipped(t, "logs/headers.Caddyfile", hostAddresses(hosts...)))
	readme := readFile(t, examplesFolder+"/logs/README.md")
	upstream := ""
	for i, want := range []string{"new", "pinned", ""} {
		method, path, body := http.MethodPost, chatPath, conversation(words("headers", 1000), "yes", "and")
		if want == "" {
			method, path, body = http.MethodGet, "/v1/models", ""
		}
		res, text := exchangeAs(t, method, s.sites[0], path, body, "X-Session-ID", "s")
		if res.StatusCode != http.StatusOK {
			t.Fatalf("request %d: status %d: %s", i, res.StatusCode, text)
		}
		s.settled()
		names := fieldsWith(res.Header, "X-Llm-")
		if !slices.Equal(names, []string{"X-Llm-Placement", "X-Llm-Upstream"}) {
			t.Errorf("request %d: headers are %q", i, names)
		}
		if got := res.Header.Values("X-Llm-Placement"); len(got) != 1 || got[0] != want {
			t.Errorf("request %d: X-LLM-Placement = %q, want %q", i, got, want)
		}
		at := res.Header.Get("X-Llm-Upstream")
		if !strings.Contains(hostAddresses(hosts...), at) || want == "pinned" && at != upstream {
			t.Errorf("request %d: X-LLM-Upstream = %q after %q", i, at, upstream)
		}
		upstream = at
	}
	for _, line := range []string{"X-LLM-Upstream: vllm-1:8000", "X-LLM-Placement: pinned"} {
		if !strings.Contains(readme, fmt.Sprintln(line)) {
			t.Errorf("README.md does not show %q", line)
		}
	}
}
