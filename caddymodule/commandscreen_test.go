// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// watched is a fleet as it is shown, with names that would change a terminal.
func watchedFleet() *look {
	usage := 0.456
	f := fleetStatus{Name: "f", Sessions: 1234, QueueWaiting: map[string]int{"interactive": 2, "batch": 3}, Upstreams: []upstreamStatus{
		{Upstream: "a:8000", State: "available", RequestsInFlight: 7, PrefillTokens: 40_000, PrefillRateTokens: 9876, Engine: &engineStatus{KVUsage: &usage}, PromptTokensEstimated: 1000, PrefillTokensEstimated: 250},
		{Upstream: "b\x1b[2J", State: "drained", PrefillTokens: 10_000},
	}}
	return &look{time: time.Now(), fleets: []fleetStatus{f}, placements: map[string][]placementStatus{
		"f": {{Reason: "pinned", Upstream: "a:8000", Model: "m\x1b]0;x\x07", PromptTokens: 5000, FirstOutputMS: 12}},
	}}
}

func TestScreen(t *testing.T) {
	var page strings.Builder
	printScreen(&page, watchedFleet())
	for _, want := range []string{
		"fleet f   2 upstreams   1,234 sessions   5 queued",
		"██████████", "██▌       ", "46 %", "75 %", "9,876", "drained", "12 ms", "5,000", "b�[2J", "m�]0;x�",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the screen has no %q:\n%s", want, page.String())
		}
	}
}

// Whatever the size of the terminal, nothing wraps or scrolls, and no name reaches
// it as a command.
func TestFrame(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {20, 3}, {1, 1}, {300, 100}} {
		text := string(frame(watchedFleet(), size[0], size[1]))
		lines := strings.Split(text, "\r\n")
		if len(lines) > size[1] {
			t.Errorf("%d lines on a screen of %d", len(lines), size[1])
		}
		for _, line := range lines {
			for _, command := range []string{home, clearLine, clearBelow} {
				line = strings.ReplaceAll(line, command, "")
			}
			if utf8.RuneCountInString(line) > size[0] || strings.ContainsAny(line, "\x1b\x07\n") {
				t.Errorf("line %q on a screen %d columns wide", line, size[0])
			}
		}
	}
}

func TestBar(t *testing.T) {
	for _, test := range []struct {
		n, most int
		want    string
	}{{0, 1, "          "}, {1, 1, "██████████"}, {1, 2, "█████     "}, {1, 80, "▏         "}, {79, 80, "█████████▉"}} {
		if got := bar(test.n, test.most); got != test.want {
			t.Errorf("bar(%d, %d) = %q, want %q", test.n, test.most, got, test.want)
		}
	}
}
