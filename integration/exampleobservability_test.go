// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"strings"
	"testing"
)

// Prometheus finds the metrics where the example says, before there is traffic.
func TestObservabilityExample(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	config := shipped(t, "observability/Caddyfile", addresses(upstreams))
	if !strings.Contains(config, "http://:9180 {") || !strings.Contains(readFile(t, examplesFolder+"/observability/prometheus.yaml"), `"localhost:9180"`) {
		t.Fatal("the Caddyfile does not serve the port that prometheus.yaml asks")
	}
	s := start(t, strings.Replace(config, "http://:9180 {", "{site1} {", 1))
	res, text := exchangeAs(t, http.MethodGet, s.sites[1], "/metrics", "")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics: status %d", res.StatusCode)
	}
	for _, u := range upstreams {
		if got, ok := exported(text, "requests_in_flight")[u.address()]; !ok || got != 0 {
			t.Errorf("metrics do not have the requests in flight on %s", u.address())
		}
	}
}
