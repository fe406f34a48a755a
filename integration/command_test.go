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

// A request that is not read is charged by its length, which the command tells.
func TestCommandTellsTheLength(t *testing.T) {
	s := start(t, fmt.Sprintf(burstConfig, "127.0.0.1:1"))
	out, failure, _ := command(t, words("x", 15_000), "explain", "--address", s.admin, "--path", "/foo/bar")
	if !strings.Contains(out, "15,000 prompt tokens") {
		t.Errorf("60,000 bytes to an unknown path: %s%s, want 15,000 tokens", out, failure)
	}
}

// In the shadow of another policy the request goes where that one sends it.
func TestCommandInTheShadow(t *testing.T) {
	s := start(t, fmt.Sprintf("{site0} {\n\tllm_loadaware\n\treverse_proxy %s {\n\t\tlb_policy llm_loadaware {\n\t\t\tshadow first\n\t\t}\n\t}\n}\n", "127.0.0.1:1"))
	out, failure, code := command(t, chat("Hello"), "explain", "--address", s.admin)
	if code != 0 || !strings.HasPrefix(out, "goes where another policy sends it, and would go to 127.0.0.1:1: load, ") || !strings.Contains(out, "> 127.0.0.1:1") {
		t.Errorf("explain = %d: %s%s, want what would be chosen and no more", code, out, failure)
	}
	if p := s.explain("", chat("Hello")); p.Reason != "shadow" || p.Upstream != "" || p.UncachedTokens != 0 || len(p.Upstreams) != 1 {
		t.Errorf("explained as %+v, want the reason shadow and no upstream", p)
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
