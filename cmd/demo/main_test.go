// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// visitor reads what the demo says, looks at the live page that it names, and stops
// the demo.
type visitor struct {
	said bytes.Buffer
	stop context.CancelFunc
	page string
	err  error
}

// Write implements io.Writer.
func (v *visitor) Write(p []byte) (int, error) {
	v.said.Write(p)
	for word := range strings.FieldsSeq(string(p)) {
		if strings.HasSuffix(word, "/status") {
			v.page, v.err = visit(word + "?events")
			v.stop()
		}
	}
	return len(p), nil
}

// visit returns the first event of a live page.
func visit(address string) (string, error) {
	res, err := http.Get(address)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadString('\n')
		if event, ok := strings.CutPrefix(line, "data: "); ok || err != nil {
			return event, err
		}
	}
}

func TestDemo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	v := &visitor{stop: stop}
	out := &v.said
	if err := run(ctx, v, 200, false); err != nil {
		t.Fatalf("run: %v\n%s", err, out.String())
	}
	if v.err != nil || strings.Count(v.page, `"placements":{`) != 3 {
		t.Errorf("live page = %s, %v, want three upstreams", v.page, v.err)
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
