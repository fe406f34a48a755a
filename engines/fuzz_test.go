// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzParseModels holds what is true of any body.
func FuzzParseModels(f *testing.F) {
	for _, body := range []string{listed, "", "{}", `{"data":[{"id":"a"},{"id":"a"},{"id":7},[]]}`, `{"data":[[[[`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		models, err := ParseModels(body)
		if err != nil {
			if models != nil {
				t.Fatalf("ParseModels() = %v, %v, want nothing with an error", models, err)
			}
			return
		}
		if len(models) > maxModels {
			t.Errorf("%d models", len(models))
		}
		seen := map[string]bool{}
		for _, m := range models {
			if m.ID == "" || len(m.ID) > maxModelID || seen[m.ID] {
				t.Errorf("ID = %q, want a distinct name", m.ID)
			}
			if !json.Valid(m.JSON) || !bytes.Contains(body, m.JSON) {
				t.Errorf("JSON = %s, want what is in the body", m.JSON)
			}
			seen[m.ID] = true
		}
	})
}

// FuzzReadUsage holds what is true of any tail.
func FuzzReadUsage(f *testing.F) {
	for _, tail := range []string{
		chatEnd, messageEnd, responseEnd, "", `"usage":{"usage":{`, `"usage":{"\`, `\"usage":{"prompt_tokens":1}`,
	} {
		f.Add([]byte(tail))
	}
	f.Fuzz(func(t *testing.T, tail []byte) {
		before := bytes.Clone(tail)
		u, ok := ReadUsage(tail)
		if !bytes.Equal(tail, before) {
			t.Fatal("ReadUsage changed the tail")
		}
		if ok != (u != Usage{}) || u.PromptTokens < 0 || ok && u.PromptTokens < 1 || u.PromptTokens > maxUsageTokens {
			t.Errorf("ReadUsage() = %+v, %v", u, ok)
		}
		if c := u.CachedTokens; c.Value < 0 || c.Value > float64(u.PromptTokens) || !c.Known && c.Value != 0 {
			t.Errorf("CachedTokens = %+v of %d", c, u.PromptTokens)
		}
		// the same tail inside a string is text
		text, err := json.Marshal(string(tail))
		if err != nil {
			t.Fatal(err)
		}
		if u, ok := ReadUsage(text); ok {
			t.Errorf("ReadUsage(%s) = %+v, want none in a string", text, u)
		}
	})
}
