// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "fmt"

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
	// SceneRestart lets the router forget everything half way. What is in
	// flight is served to its end by the router that placed it.
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
		r.at(half, func() { r.rule = r.newRule() })
	case SceneSlow:
		first.SetSlowdown(3)
	}
	if s != SceneNone {
		r.measures.half = half
	}
	r.look()
}
