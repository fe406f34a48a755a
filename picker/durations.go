// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"slices"
	"time"
)

// durations remembers how long the latest requests took.
type durations struct {
	recent [64]time.Duration
	count  int
}

func (d *durations) add(took time.Duration) {
	d.recent[d.count%len(d.recent)] = took
	d.count++
}

// median returns 0 while nothing is known.
func (d *durations) median() time.Duration {
	n := min(d.count, len(d.recent))
	if n == 0 {
		return 0
	}
	sorted := d.recent
	slices.Sort(sorted[:n])
	return sorted[n/2]
}
