// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"testing"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/prompts"
)

// The packages do not import each other, and have to mean the same by a block.
func TestBlocksAreTheSame(t *testing.T) {
	if fleet.BlockTokens != prompts.BlockTokens {
		t.Errorf("a block is %d tokens to the fleet and %d to the prompts", fleet.BlockTokens, prompts.BlockTokens)
	}
}
