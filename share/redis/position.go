// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// position is the id of an entry of a stream. Redis gives each entry a greater
// one than any before.
type position struct {
	// millis is the time of the entry by the clock of Redis, and number counts
	// the entries of the same millisecond
	millis, number uint64
}

// parsePosition reads an id as Redis writes it.
func parsePosition(id string) (position, error) {
	millis, number, _ := strings.Cut(id, "-")
	m, err := strconv.ParseUint(millis, 10, 64)
	if err != nil {
		return position{}, fmt.Errorf("reading id of an entry: %w", err)
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return position{}, fmt.Errorf("reading id of an entry: %w", err)
	}
	return position{m, n}, nil
}

// age is how long before now the entry was written, 0 where the clock of Redis is
// ahead.
func (p position) age(now time.Time) time.Duration {
	return max(now.Sub(time.UnixMilli(int64(min(p.millis, math.MaxInt64)))), 0)
}

// String is the id in Redis's form.
func (p position) String() string { return fmt.Sprintf("%d-%d", p.millis, p.number) }

// compare is negative if p is before q, positive if it is after.
func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.millis, q.millis), cmp.Compare(p.number, q.number))
}
