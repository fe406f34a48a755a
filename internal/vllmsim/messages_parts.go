// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "encoding/json"

// block returns the only content block with the text that is said so far; a tool call shows its input at its end.
func (d *messagesDialect) block(text string) object {
	tool := d.parts[0].tool
	if tool == "" {
		return object{"type": "text", "text": text}
	}
	input := json.RawMessage("{}")
	if text != "" {
		input = json.RawMessage(text)
	}
	return object{"type": "tool_use", "id": "toolu_" + d.id, "name": tool, "input": input}
}

// tokens returns the usage of the Anthropic API, whose input_tokens leaves out what was cached. Without details vLLM
// does not know what was cached, and counts it.
func (d *messagesDialect) tokens(output int) object {
	prompt, cached, _ := d.counts()
	if !d.details {
		return object{"input_tokens": prompt, "output_tokens": output}
	}
	return object{
		"input_tokens": prompt - cached, "output_tokens": output,
		"cache_read_input_tokens": cached, "cache_creation_input_tokens": 0,
	}
}

func (d *messagesDialect) stopReason() string {
	switch d.parts[0].finish {
	case "length":
		return "max_tokens"
	case "tool_calls":
		return "tool_use"
	default:
		return "end_turn"
	}
}
