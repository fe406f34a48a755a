// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"

	"github.com/caddy-llm/loadaware"
	"github.com/caddy-llm/loadaware/internal/bed"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// exampleSite and exampleUpstreams are the addresses in Caddyfile.example that
// the demo puts its own in place of.
const exampleSite = "localhost:8080"

// exampleHandler is the line in Caddyfile.example after which the demo puts the live
// page.
const exampleHandler = "\tllm_loadaware\n"

var exampleUpstreams = []string{"localhost:8001", "localhost:8002", "localhost:8003"}

// stage is a bed on which one policy is shown.
type stage struct {
	*bed.Bed
	policy string
	speed  float64

	// client is the stage's own: the connections of another stage are dead
	client *http.Client
}

// startStage starts servers with empty caches and Caddy with the example
// config, in which policy takes the place of llm_loadaware.
func startStage(policy string, speed float64) (*stage, error) {
	servers := make([]vllmsim.ServerConfig, len(exampleUpstreams))
	for i := range servers {
		servers[i] = vllmsim.ServerConfig{
			Engine: vllmsim.Config{KVTokens: 2_000_000, Seed: uint64(i + 1)},
			Speed:  speed,
		}
	}
	b, err := bed.Start(servers, exampleSite, func(site string, upstreams []string) string {
		config := strings.Replace(loadaware.Example, "lb_policy llm_loadaware", "lb_policy "+policy, 1)
		config = strings.Replace(config, exampleSite, site, 1)
		config = strings.Replace(config, exampleHandler, exampleHandler+"\tllm_loadaware_status /status\n", 1)
		for i, upstream := range upstreams {
			config = strings.Replace(config, exampleUpstreams[i], upstream, 1)
		}
		return config
	})
	if err != nil {
		return nil, err
	}
	return &stage{b, policy, speed, &http.Client{Transport: new(http.Transport)}}, nil
}
