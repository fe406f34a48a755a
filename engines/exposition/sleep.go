// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import dto "github.com/prometheus/client_model/go"

// sleep is what the series of vllm:engine_sleep_state say, by engine.
type sleep map[string]sleepState

// sleepState is what is known of one engine.
type sleepState struct {
	notAwake bool // the state "awake" is 0
	named    bool // another state is 1
}

func (s *sleep) add(m *dto.Metric) {
	if *s == nil {
		*s = sleep{}
	}
	engine := label(m, "engine")
	state := (*s)[engine]
	switch awake := label(m, "sleep_state") == "awake"; value(m) {
	case 0:
		state.notAwake = state.notAwake || awake
	case 1:
		state.named = state.named || !awake
	}
	(*s)[engine] = state
}

// asleep reports that all engines sleep. One that is awake serves what the
// address is sent.
func (p *page) asleep() bool {
	for _, state := range p.sleep {
		if !state.notAwake || !state.named {
			return false
		}
	}
	return len(p.sleep) > 0 && !p.spoiled(sleepName)
}
