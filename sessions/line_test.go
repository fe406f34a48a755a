// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sessions

import "testing"

func TestLine(t *testing.T) {
	blocks := []uint64{10, 20, 30}
	tests := []struct {
		name               string
		line               Line
		head               uint64
		blocks             []uint64
		extends, continues bool
	}{
		{"nothing known", Line{}, 1, blocks, false, false},
		{"the same prompt", NewLine(1, blocks), 1, blocks, true, true},
		{"a longer one", NewLine(1, blocks), 1, []uint64{10, 20, 30, 40}, true, true},
		{"a longer one without a head", NewLine(0, blocks), 0, []uint64{10, 20, 30, 40}, true, true},
		{"a shorter one with the same head", NewLine(1, blocks), 1, []uint64{10, 20}, false, true},
		{"another one with the same head", NewLine(1, blocks), 1, []uint64{10, 21, 31, 41}, false, true},
		{"another head", NewLine(1, blocks), 2, []uint64{11, 21, 31, 41}, false, false},
		{"no head on either side", NewLine(0, blocks), 0, []uint64{11, 21, 31}, false, false},
		{"no blocks", NewLine(1, blocks), 0, nil, false, false},
		{"a line of a head alone", NewLine(1, nil), 1, blocks, false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.line.Extends(test.blocks); got != test.extends {
				t.Errorf("Extends(%v) = %v, want %v", test.blocks, got, test.extends)
			}
			if got := test.line.Continues(test.head, test.blocks); got != test.continues {
				t.Errorf("Continues(%v, %v) = %v, want %v", test.head, test.blocks, got, test.continues)
			}
		})
	}
	if (Line{}).Known() || !NewLine(0, blocks).Known() || !NewLine(1, nil).Known() {
		t.Error("Known() is wrong about what a line holds")
	}
}
