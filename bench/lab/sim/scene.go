// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
)

// Scene is something that happens to a fleet half way through the measured
// time, or at the start of the run. The zero value is nothing.
type Scene string

const (
	// SceneNone is an undisturbed run.
	SceneNone Scene = ""
	// SceneJoin adds the last engine to the router's list half way.
	SceneJoin Scene = "join"
	// SceneErrors lets the first engine answer with an error in a millisecond
	// from half way on.
	SceneErrors Scene = "errors"
	// SceneHang stops the first engine half way: it takes requests and shows
	// nothing.
	SceneHang Scene = "hang"
	// SceneRestart kills the router half way, and starts another one that knows
	// only what was stored half a minute before. What is in flight is served to
	// its end by the router that placed it.
	SceneRestart Scene = "restart"
	// SceneSlow makes every step of the first engine take three times as long
	// from the start of the run.
	SceneSlow Scene = "slow"
)

// Scenes are all scenes in which something happens.
func Scenes() []Scene {
	return []Scene{SceneJoin, SceneErrors, SceneHang, SceneRestart, SceneSlow}
}

// ParseScene returns the scene of that name.
func ParseScene(name string) (Scene, error) {
	for _, s := range append(Scenes(), SceneNone) {
		if name == string(s) {
			return s, nil
		}
	}
	return SceneNone, fmt.Errorf("unrecognized scene '%s': it is none of %v", name, Scenes())
}

// stage prepares the scene.
func (s Scene) stage(r *run) {
	first, last := r.engines[0], r.engines[len(r.engines)-1]
	half := r.Warmup + r.Duration/2
	switch s {
	case SceneNone:
	case SceneJoin:
		last.usable = false
		r.at(half, func() { last.usable = true; r.look() })
	case SceneErrors:
		r.at(half, func() { first.failing = true })
	case SceneHang:
		r.at(half, func() { first.hung = true })
	case SceneRestart:
		var kept []byte
		r.at(half-storedBefore, func() { kept = r.keep() })
		r.at(half, func() { r.restart(kept) })
	case SceneSlow:
		first.SetSlowdown(3)
	}
	if s != SceneNone {
		r.stageMeasures(half)
	}
	r.look()
}

// storedBefore is how old what a router has stored is when it is killed: it
// stores every minute.
const storedBefore = 30 * time.Second

// keep returns what the router stores, nil where it stores nothing.
func (r *run) keep() []byte {
	if k, ok := r.rule.(rules.Keeper); ok {
		return k.Keep(r.now)
	}
	return nil
}

// restart puts another router in the place of the one that there is.
func (r *run) restart(kept []byte) {
	r.route()
	if k, ok := r.rule.(rules.Keeper); ok {
		k.Take(kept, r.now)
	}
}
