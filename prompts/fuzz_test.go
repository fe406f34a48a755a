// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"bytes"
	"slices"
	"testing"
)

// paths are one path per shape, and one that is not read.
var paths = []string{
	"/v1/chat/completions", "/v1/chat/completions/batch", "/v1/completions", "/v1/responses", "/v1/messages",
	"/v1/embeddings", "/v2/embed", "/score", "/rerank", "/inference/v1/generate", "/invocations",
	"/v1/audio/transcriptions", "/tokenize",
}

// FuzzRead holds what is true for any body: Read does not panic, leaves the
// body alone, says the same twice, and keeps within its bounds.
func FuzzRead(f *testing.F) {
	for i, tc := range shapes {
		f.Add([]byte(tc.body), uint8(slices.Index(paths, tc.path)), i%2 == 0, "application/json", 0, 0)
	}
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nsound\r\n--b--\r\n"), uint8(11), true, "multipart/form-data; boundary=b", 0, 0)
	f.Fuzz(func(t *testing.T, body []byte, path uint8, complete bool, contentType string, maxTokens, mediaTokens int) {
		l := Limits{MaxPromptTokens: maxTokens, MediaTokens: mediaTokens % (1 << 20)}
		e, ok := Lookup(paths[int(path)%len(paths)])
		if !ok {
			t.Fatal("a known path is not found")
		}
		before := bytes.Clone(body)
		p := e.Read(body, complete, contentType, l)
		if !bytes.Equal(body, before) {
			t.Fatal("Read changed the body")
		}
		limits := l.withDefaults()
		if p.Tokens < 0 || p.Tokens > limits.MaxPromptTokens {
			t.Errorf("Tokens = %d, want 0 to %d", p.Tokens, limits.MaxPromptTokens)
		}
		if p.TextBytes < 0 || p.TokenIDs < 0 || p.MediaTokens < 0 {
			t.Errorf("TextBytes, TokenIDs, MediaTokens = %d, %d, %d, want none negative", p.TextBytes, p.TokenIDs, p.MediaTokens)
		}
		written := int64(2*len(body)) + 4*(p.MediaTokens+1)
		if n := int64(len(p.Blocks)); n > written/BlockBytes+1 || n > int64(limits.MaxPromptTokens/BlockTokens) {
			t.Errorf("%d blocks of a body of %d bytes with %d tokens of media", n, len(body), p.MediaTokens)
		}
		if !p.Parsed && (p.Blocks != nil || p.Model != "" || p.Hints != nil) {
			t.Errorf("Read = %+v, want nothing of a body that is not parsed", p)
		}
		for _, h := range p.Hints {
			if len(h.Value) == 0 || len(h.Value) > MaxValueBytes {
				t.Errorf("hint %s has %d bytes, want 1 to %d", h.Source, len(h.Value), MaxValueBytes)
			}
		}
		if q := e.Read(body, complete, contentType, l); !slices.Equal(p.Blocks, q.Blocks) || p.Tokens != q.Tokens || p.TextBytes != q.TextBytes {
			t.Errorf("Read = %+v, and then %+v", p, q)
		}
	})
}

// FuzzLookup: a path that is found is found behind a prefix and before a slash.
func FuzzLookup(f *testing.F) {
	for _, path := range paths {
		f.Add(path)
	}
	f.Add("/v1/responses/resp_1/cancel")
	f.Fuzz(func(t *testing.T, path string) {
		e, ok := Lookup(path)
		if !ok {
			return
		}
		if e.Name == "" || e.Reads != (e.shape != shapeNone) {
			t.Errorf("Lookup(%q) = %+v", path, e)
		}
		if got, ok := Lookup("/prefix/" + path + "/"); !ok || got.Name == "" {
			t.Errorf("Lookup(%q) = %+v, %v behind a prefix, want one", path, got, ok)
		}
	})
}
