// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, 200, true); err != nil {
		t.Fatalf("run: %v\n%s", err, out.String())
	}
	for _, want := range []string{
		"least_conn", "llm_loadaware", "burst: requests per server", "conversation: turns per server",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
	// whichever server it is, one has the whole conversation
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "conversation: turns") && !slices.Contains(strings.Fields(line), "12") {
			t.Errorf("conversation did not stay on one server: %s", line)
		}
	}
}
