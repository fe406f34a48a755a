// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"fmt"
	"strings"
)

// exposition writes the text format of Prometheus, one series of each metric per engine.
type exposition struct {
	strings.Builder
	engines []Stats
	labels  []string // of the engines
}

// family writes the head of a metric; series of it follow.
func (x *exposition) family(name, kind, help string) {
	fmt.Fprintf(x, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// series writes one value per engine. labels go in front of those of the engine.
func (x *exposition) series(name, labels string, value func(Stats) float64) {
	for i, st := range x.engines {
		fmt.Fprintf(x, "%s{%s%s} %v\n", name, labels, x.labels[i], value(st))
	}
}

func (x *exposition) gauge(name, help string, value func(Stats) float64) {
	x.family(name, "gauge", help)
	x.series(name, "", value)
}

// counter writes a counter with the ending that Prometheus clients give it.
func (x *exposition) counter(name, help string, value func(Stats) int64) {
	x.family(name, "counter", help)
	x.series(name+"_total", "", func(st Stats) float64 { return float64(value(st)) })
}

// always returns a value that does not depend on the engine.
func always(value float64) func(Stats) float64 {
	return func(Stats) float64 { return value }
}
