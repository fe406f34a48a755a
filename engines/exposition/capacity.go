// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"strconv"

	dto "github.com/prometheus/client_model/go"

	"github.com/caddy-llm/loadaware/engines"
)

// capacity adds up what the series of vllm:cache_config_info say of the size of
// the KV cache, one series for each engine.
type capacity struct {
	// tokens are sizes of one engine, which newer versions report: models with
	// several kinds of layers hold more or less than their blocks suggest.
	tokens tally

	// blocks are sizes in blocks times the tokens of one. first is the first of
	// them, and differ says that another one differs.
	blocks tally
	first  float64
	differ bool
}

func (c *capacity) add(m *dto.Metric) {
	if v := size(label(m, "kv_cache_size_tokens")); v > 0 {
		c.tokens.add(v)
	} else {
		c.tokens.broken = true
	}
	v := size(label(m, "block_size")) * size(label(m, "num_gpu_blocks"))
	if v <= 0 {
		c.blocks.broken = true
		return
	}
	if c.blocks.count == 0 {
		c.first = v
	}
	c.differ = c.differ || v != c.first
	c.blocks.add(v)
}

// total is the size of all KV caches together, in tokens.
func (c *capacity) total() engines.Number {
	if n := c.tokens.total(); n.Known {
		return n
	}
	// A server with several engines adds up their blocks, and writes that sum
	// into the series of every one of them.
	if !c.differ {
		return c.blocks.mean()
	}
	return c.blocks.total()
}

// size reads a label that counts something. It is 0 if that is not known, which
// vLLM writes as None, or if there is nothing.
func size(text string) float64 {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0
	}
	return float64(n)
}

// kvTokens is unknown as well if the size of one engine could not be read.
func (p *page) kvTokens() engines.Number {
	if p.spoiled(cacheConfigName) {
		return engines.Number{}
	}
	return p.capacity.total()
}
