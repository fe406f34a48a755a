// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"testing"
	"time"
)

func TestPositionsHaveAnAge(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for _, test := range []struct {
		id  string
		age time.Duration
	}{
		{"1800000000000-0", 0},
		{"1799999999000-7", time.Second},
		{"1799996400000-18446744073709551615", time.Hour},
		// the clock of Redis is ahead
		{"1800000000500-1", 0},
		{"18446744073709551615-1", 0},
	} {
		at, err := parsePosition(test.id)
		if err != nil || at.String() != test.id || at.age(now) != test.age {
			t.Errorf("parsePosition(%s) = %v of %v ago, %v, want %v ago", test.id, at, at.age(now), err, test.age)
		}
	}
}
