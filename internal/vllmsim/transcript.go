// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// mediaBytes is the size of the text that stands for an image, a document or a sound: usually 1,024 tokens.
const mediaBytes = 4096

// message is one turn of a conversation as text.
type message struct{ role, text string }

// transcript writes a conversation as the chat template would: tools, then the messages, then the cue for the answer.
// An answer that comes back as the next assistant message continues the same text, so a next turn finds it cached.
func transcript(tools []any, messages []message) []byte {
	var b bytes.Buffer
	if len(tools) > 0 {
		b.WriteString(canonical(tools))
		b.WriteByte('\n')
	}
	for _, m := range messages {
		fmt.Fprintf(&b, "<|%s|>%s\n", m.role, m.text)
	}
	b.WriteString("<|assistant|>")
	return b.Bytes()
}

// canonical writes a decoded JSON value without regard to the order of its keys, and without the marks that move
// between turns.
func canonical(v any) string {
	text, err := json.Marshal(strip(v))
	if err != nil {
		return ""
	}
	return string(text)
}

// strip returns v without cache_control.
func strip(v any) any {
	switch v := v.(type) {
	case map[string]any:
		kept := make(map[string]any, len(v))
		for key, value := range v {
			if key != "cache_control" {
				kept[key] = strip(value)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, value := range v {
			kept[i] = strip(value)
		}
		return kept
	default:
		return v
	}
}

// contentText returns the text of a message's content, in any of the APIs' shapes.
func contentText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		var b strings.Builder
		for _, part := range v {
			b.WriteString(contentText(part))
		}
		return b.String()
	case map[string]any:
		return partText(v)
	default:
		return canonical(v)
	}
}

// partText returns the text of one part of a message's content.
func partText(part map[string]any) string {
	switch part["type"] {
	case "text", "input_text", "output_text":
		return contentText(part["text"])
	case "thinking":
		return contentText(part["thinking"])
	case "tool_result":
		return contentText(part["content"])
	case "image", "image_url", "input_image", "document", "file", "input_file", "input_audio", "audio_url", "video_url":
		name := fmt.Sprintf("%016x", fnv(fnvOffset, canonical(part)))
		return strings.Repeat(name, mediaBytes/len(name))
	default:
		return canonical(part)
	}
}

// hasPart reports whether content is a list with a part of the given type.
func hasPart(content any, kind string) bool {
	parts, _ := content.([]any)
	for _, part := range parts {
		if m, ok := part.(map[string]any); ok && m["type"] == kind {
			return true
		}
	}
	return false
}
