// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"fmt"
	"strings"
	"testing"
)

func TestAsleep(t *testing.T) {
	// states are awake, weights_offloaded and discard_all of each engine
	tests := []struct {
		name   string
		states []string
		want   bool
	}{
		{"awake", []string{"100"}, false},
		{"asleep", []string{"010"}, true},
		{"in deep sleep", []string{"001"}, true},
		{"neither", []string{"000"}, false},
		{"both", []string{"110"}, false},
		{"only one of two", []string{"010", "100"}, false},
		{"two", []string{"010", "001"}, true},
		{"one of two unknown", []string{"010", "000"}, false},
		{"nothing known", nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var page strings.Builder
			page.WriteString("vllm:num_requests_running 0\n")
			for engine, states := range test.states {
				for i, name := range []string{"awake", "weights_offloaded", "discard_all"} {
					fmt.Fprintf(&page, "vllm:engine_sleep_state{engine=\"%d\",sleep_state=%q} %c.0\n", engine, name, states[i])
				}
			}
			got, err := Parse(strings.NewReader(page.String()))
			if err != nil || got.Asleep != test.want {
				t.Errorf("Asleep = %v, %v, want %v", got.Asleep, err, test.want)
			}
		})
	}
	if parsed(t, "vllm:engine_sleep_state", []string{`sleep_state="awake"`}, "0").Asleep {
		t.Error("asleep without a state of sleep")
	}
	page := "vllm:engine_sleep_state{sleep_state=\"awake\"} 0\nvllm:engine_sleep_state{sleep_state=\"discard_all\"} 1\n"
	if got, err := Parse(strings.NewReader(page)); err != nil || !got.Asleep {
		t.Errorf("Parse() = %+v, %v, want it asleep", got, err)
	}
	if got, err := Parse(strings.NewReader(page + "vllm:engine_sleep_state{engine=\"1\" 1\n")); err != nil || got.Asleep {
		t.Errorf("Parse() = %+v, %v, want it awake where a series is broken", got, err)
	}
}
