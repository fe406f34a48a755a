// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

// Report is what /metrics says of every engine in place of the truth. A field that is nil is the truth; counters always
// are. The engine itself, /load and [Server.Stats] know nothing of it.
type Report struct {
	// KVUsage is the share of blocks that are in use, 0 to 1: 0.97 is an engine that is full.
	KVUsage *float64 `json:"kv_usage,omitempty"`
	// Running and Waiting are numbers of requests, such as those that came to the engine by another way.
	Running *int `json:"running,omitempty"`
	Waiting *int `json:"waiting,omitempty"`
}

// apply returns the numbers that are reported in place of the given ones, which it overwrites.
func (p Report) apply(engines []Stats) []Stats {
	for i := range engines {
		replace(&engines[i].KVUsage, p.KVUsage)
		replace(&engines[i].Running, p.Running)
		replace(&engines[i].Waiting, p.Waiting)
	}
	return engines
}

// replace sets a field if there is a value for it.
func replace[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}
