// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// command runs `caddy llm-loadaware` as a user does, with an input.
func command(t *testing.T, input string, args ...string) (output, failure string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, append([]string{"llm-loadaware"}, args...)...)
	c.Env = append(os.Environ(), commandVar+"=1")
	c.Stdin = strings.NewReader(input)
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	_ = c.Run()
	return out.String(), problems.String(), c.ProcessState.ExitCode()
}

// The commands answer where a request would go and how the fleet is balanced.
func TestCommands(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
	body := chat(words("hello", 600))
	home := turn(t, s, upstreams, body, "X-Session-ID", "a").address()

	out, failure, code := command(t, body, "explain", "--address", s.admin, "-H", "X-Session-ID: a")
	if want := "goes to " + home + ": pinned, 600 prompt tokens, "; code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("explain = %d: %s%s, want it to begin with %q", code, out, failure, want)
	}
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 5 || !strings.Contains(out, "> "+home) {
		t.Errorf("explain has printed\n%s, want a table of two upstreams, the chosen one marked", out)
	}
	if out, _, _ := command(t, body, "explain", "--address", s.admin, "--json"); !strings.Contains(out, `"upstream":"`+home+`"`) {
		t.Errorf("explain --json = %s, want the placement in it", out)
	}

	out, failure, code = command(t, "", "top", "--address", s.admin, "--count", "2", "--interval", "100ms")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 4 {
		t.Fatalf("top = %d: %s%s, want two lines twice", code, out, failure)
	}
	for i, line := range lines {
		if want := fmt.Sprintf("upstream=%q state=available requests_in_flight=0 ", upstreams[0].address()); strings.Contains(line, upstreams[0].address()) && !strings.Contains(line, want) {
			t.Errorf("line %d = %s, want %s in it", i, line, want)
		}
	}
}

// A command that cannot do what it was asked says why, and fails.
func TestCommandsRefuse(t *testing.T) {
	s := start(t, fmt.Sprintf(burstConfig, "127.0.0.1:1"))
	for _, test := range []struct {
		says string
		args []string
	}{
		{"connection refused", []string{"top", "--address", s.dead}},
		{"connection refused", []string{"explain", "--address", s.dead}},
		{"fleet not found: other", []string{"top", "--address", s.admin, "--fleet", "other"}},
		{"fleet not found: other", []string{"explain", "--address", s.admin, "--fleet", "other"}},
		{"policy not found: 5", []string{"explain", "--address", s.admin, "--policy", "5"}},
		{"path has no prompt: /tokenize", []string{"explain", "--address", s.admin, "--path", "/tokenize"}},
		{"header must be as 'Field: value': X", []string{"explain", "--address", s.admin, "-H", "X"}},
		{"interval must be at least 100ms: 1ms", []string{"top", "--address", s.admin, "--interval", "1ms"}},
		{"count must not be negative", []string{"top", "--address", s.admin, "--count", "-1"}},
		{"unknown command", []string{"top", "x"}},
	} {
		out, failure, code := command(t, "{}", test.args...)
		if code == 0 || out != "" || !strings.Contains(failure, test.says) {
			t.Errorf("%q = %d: %s%s, want a failure that says %q", test.args, code, out, failure, test.says)
		}
	}
}
