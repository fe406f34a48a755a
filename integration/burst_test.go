// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
)

// burst sends the bodies at once, round robin over the sites, and returns how
// many each upstream holds while none of them has shown any output.
func burst(t *testing.T, sites []string, upstreams []*upstream, bodies []string) []int {
	t.Helper()
	held := newStage()
	before := make([]int, len(upstreams))
	for i, u := range upstreams {
		before[i] = u.count()
		u.setAnswer(held.answer)
	}
	var wg sync.WaitGroup
	for i, body := range bodies {
		wg.Go(func() {
			res, err := send(t.Context(), sites[i%len(sites)], chatPath, body)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
		})
	}
	var got []int
	eventually(t, func() bool {
		got = counts(upstreams)
		for i := range got {
			got[i] -= before[i]
		}
		return total(got) == len(bodies)
	}, func() string { return fmt.Sprintf("requests at the upstreams = %v, want %d in all", got, len(bodies)) })
	close(held.output)
	close(held.end)
	wg.Wait()
	slices.Sort(got)
	return got
}

func repeated(n int, body func(i int) string) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = body(i)
	}
	return bodies
}

const burstConfig = `
{site0} {
	llm_loadaware
	reverse_proxy %[1]s {
		lb_policy llm_loadaware
	}
}
{site1} {
	llm_loadaware
	reverse_proxy %[1]s {
		lb_policy llm_loadaware
	}
}
`

// Of 128 prompts that came at once one of three upstreams got 95. A burst arrives
// faster than any response could tell of load.
func TestCaseC1BurstSplitsEvenly(t *testing.T) {
	const prompt = 32_000
	shared := words("shared", prompt)
	tests := []struct {
		name  string
		warm  string // sent to one upstream before
		sites int
		body  func(i int) string
	}{
		{"cold", "", 1, func(i int) string { return chat(words(fmt.Sprint("cold ", i), prompt)) }},
		{"cold and equal", "", 1, func(int) string { return chat(shared) }},
		{"one upstream has the first 512 tokens", shared[:512*4], 1, func(i int) string {
			return chat(shared[:512*4] + words(fmt.Sprint("own ", i), prompt-512))
		}},
		{"through two sites", "", 2, func(i int) string { return chat(words(fmt.Sprint("two ", i), prompt)) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
			if test.warm != "" {
				exchange(t, s.sites[0], chatPath, chat(test.warm))
			}
			got := burst(t, s.sites[:test.sites], upstreams, repeated(128, test.body))
			if want := []int{42, 43, 43}; !slices.Equal(got, want) {
				t.Errorf("burst of 128 went %v, want %v", got, want)
			}
			s.settled()
		})
	}
}

// Counts that grow only after the decision send all of a burst to the pod that
// scores best, and of equal scores to the same one. Decision and count are one
// step, also where every upstream has the prompt cached.
func TestCaseC7IdenticalPromptsSpreadEvenly(t *testing.T) {
	for _, test := range []struct {
		name string
		text string
	}{
		{"small", "Say hello."},
		{"cached everywhere", words("cached", 8000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
			// the first burst leaves the prompt in every cache
			for i := range 2 {
				got := burst(t, s.sites[:1], upstreams, repeated(64, func(int) string { return chat(test.text) }))
				if got[2]-got[0] > 1 {
					t.Errorf("burst %d of 64 identical prompts went %v, want within 1 of each other", i, got)
				}
				s.settled()
			}
		})
	}
}

// Ties went to the first in the list, and every session stayed where it began, so
// one replica had them all. Slow traffic finds no load at any decision; what
// decides then is who was chosen last.
func TestCaseC6NewSessionsUseEveryUpstream(t *testing.T) {
	for _, test := range []struct {
		name   string
		header func(i int) []string
	}{
		{"new sessions", func(i int) []string { return []string{"X-Session-ID", fmt.Sprint("session ", i)} }},
		{"without a session", func(int) []string { return nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 4, answerAtOnce)
			s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
			for i := range 200 {
				body := chat(words(fmt.Sprint("sequential ", i), 300))
				if status, text := exchange(t, s.sites[0], chatPath, body, test.header(i)...); status != 200 {
					t.Fatalf("status %d: %s", status, text)
				}
			}
			got := counts(upstreams)
			for _, n := range got {
				if n < 30 {
					t.Errorf("200 sequential requests went %v, want at least 30 each", got)
				}
			}
			s.settled()
		})
	}
}
