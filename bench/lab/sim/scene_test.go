// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/bench/lab/workload"
)

// staged runs short questions on four engines in a scene.
func staged(scene Scene, rule string) Result {
	c := fleetOf(4)
	c.Scene = scene
	c.Duration = 6 * time.Minute
	c.Patience = 30 * time.Second
	return Run(c, workload.Unshared{Rate: 2.5, BlockTokens: blockTokens, Seed: 2}.Arrivals(), maker(rule, c))
}

func TestScenes(t *testing.T) {
	calm := staged(SceneNone, "round-robin")
	if calm.Lost != 0 || calm.Scene != nil {
		t.Errorf("without a scene Run() = %+v, want nothing lost and no scene", calm)
	}
	tests := []struct {
		scene Scene
		rule  string
		check func(r Result) bool
		want  string
	}{
		{SceneJoin, "round-robin", func(r Result) bool { return r.Lost == 0 && r.Scene.Later < r.Scene.Before }, "shorter waits later"},
		{SceneErrors, "round-robin", func(r Result) bool { return r.Lost == 0 }, "nothing lost: a retry goes to the next"},
		{SceneErrors, rules.LoadAware, func(r Result) bool { return r.Lost == 0 }, "nothing lost"},
		{SceneHang, "round-robin", func(r Result) bool { return r.Lost > r.Requests/12 }, "a quarter of half of the requests lost"},
		{SceneHang, rules.LoadAware, func(r Result) bool { return r.Lost > 0 && r.Lost < r.Requests/100 }, "none lost but those before anyone could know, and trials"},
		{SceneRestart, rules.LoadAware, func(r Result) bool { return r.Lost == 0 }, "nothing lost"},
		{SceneSlow, "round-robin", func(r Result) bool { return r.TTFT.P95 > 2*calm.TTFT.P95 }, "long waits"},
	}
	for _, test := range tests {
		t.Run(string(test.scene)+"/"+test.rule, func(t *testing.T) {
			if r := staged(test.scene, test.rule); r.Scene == nil || !test.check(r) {
				t.Errorf("Run() = %+v with %+v, want %s", r, r.Scene, test.want)
			}
		})
	}
}

// The next router knows where the caches are, so the engines compute no more
// than before; one that knows nothing has them compute every conversation again.
func TestRestartKeepsCaches(t *testing.T) {
	work := func(rule string) *Around {
		c := fleetOf(4)
		c.Scene, c.Warmup, c.Duration = SceneRestart, 3*time.Minute, 6*time.Minute
		return Run(c, agents(0.05), maker(rule, c)).Work
	}
	kept, lost := work(rules.LoadAware), work("sticky-tokens")
	if kept.Before == 0 || lost.First < 2*lost.Before || kept.First > lost.First/2 {
		t.Errorf("computed tokens per second = %+v, and %+v without what was stored; want far fewer in the first minute", kept, lost)
	}
}

func TestParseScene(t *testing.T) {
	for _, s := range Scenes() {
		if got, err := ParseScene(string(s)); err != nil || got != s {
			t.Errorf("ParseScene(%s) = %v, %v", s, got, err)
		}
	}
	if _, err := ParseScene("storm"); err == nil {
		t.Error("ParseScene(storm) gives no error")
	}
}

// An engine refuses what exceeds its cache; the client goes on.
func TestTooLongPromptIsLost(t *testing.T) {
	c := fleetOf(2)
	c.Warmup = 0
	left := 2
	r := Run(c, func() (time.Duration, *workload.Script, bool) {
		left--
		return time.Second, workload.Single(workload.Request{Tokens: 700_000, Output: 1}), left >= 0
	}, maker(rules.LoadAware, c))
	if r.Requests != 2 || r.Lost != 2 {
		t.Errorf("Run() = %+v, want both requests lost", r)
	}
}
