// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import "strings"

// Endpoint is what is known of an API path. Its values are comparable, and the
// zero value stands for a path nobody knows: it reads and prefills nothing.
type Endpoint struct {
	// Name is a small closed name, fit for a metric label.
	Name string

	// Reads is true where the body carries a prompt and is worth reading.
	Reads bool

	// Prefills is true where the engine has a prompt to prefill.
	Prefills bool

	// Streams is true where the engine can answer with an event stream.
	Streams bool

	shape shape
}

// shape is where in a body the prompt is.
type shape uint8

const (
	shapeNone         shape = iota
	shapeConversation       // tools, documents, system, instructions, messages, input
	shapeCompletion         // prompt
	shapeTexts              // input, messages, texts, images, inputs, data
	shapePairs              // two sides, each with each
	shapeIDs                // token_ids, features
	shapeForm               // multipart/form-data with a file
	shapeGuess              // any of the above, told by its fields
)

// endpoints are keyed by the end of their path, without the version where the
// rest is telling enough.
var endpoints = func() map[string]Endpoint {
	m := map[string]Endpoint{
		"chat/completions":       streaming("chat", shapeConversation),
		"chat/completions/batch": plain("chat_batch", shapeConversation),
		"completions":            streaming("completions", shapeCompletion),
		"responses":              streaming("responses", shapeConversation),
		"messages":               streaming("messages", shapeConversation),
		"v2/chat":                streaming("cohere_chat", shapeConversation),
		"embeddings":             plain("embeddings", shapeTexts),
		"v2/embed":               plain("embed", shapeTexts),
		"pooling":                plain("pooling", shapeTexts),
		"classify":               plain("classify", shapeTexts),
		"score":                  plain("score", shapePairs),
		"rerank":                 plain("rerank", shapePairs),
		"generative_scoring":     plain("generative_scoring", shapePairs),
		"audio/transcriptions":   streaming("transcriptions", shapeForm),
		"audio/translations":     streaming("translations", shapeForm),
		"inference/v1/generate":  streaming("generate", shapeIDs),
		"invocations":            streaming("invocations", shapeGuess),
		"messages/count_tokens":  {Name: "count_tokens"},
		"completions/render":     {Name: "render"},
		"completions/derender":   {Name: "derender"},
		"tokenize":               {Name: "tokenize"},
		"detokenize":             {Name: "detokenize"},
		"v1/realtime":            {Name: "realtime"},
		"v1/models":              {Name: "models"},
		"v1/load_lora_adapter":   {Name: "lora"},
		"v1/unload_lora_adapter": {Name: "lora"},
	}
	for _, path := range []string{
		"health", "ping", "load", "version", "metrics", "server_info", "tokenizer_info",
		"sleep", "wake_up", "is_sleeping", "pause", "resume", "is_paused", "abort_requests",
		"reset_prefix_cache", "reset_mm_cache", "reset_encoder_cache", "collective_rpc",
		"update_weights", "scale_elastic_ep", "is_scaling_elastic_ep", "start_profile", "stop_profile",
	} {
		m[path] = Endpoint{Name: "control"}
	}
	return m
}()

// streaming is an endpoint with a prompt whose answer may be an event stream.
func streaming(name string, s shape) Endpoint {
	return Endpoint{Name: name, Reads: true, Prefills: true, Streams: true, shape: s}
}

// plain is an endpoint with a prompt that answers in one piece.
func plain(name string, s shape) Endpoint {
	return Endpoint{Name: name, Reads: true, Prefills: true, shape: s}
}

// maxSegments is how many path segments the longest key of endpoints has.
const maxSegments = 3

// Lookup finds the endpoint of a URL path by the path's end, at the boundary
// of a segment: whatever stands before is a prefix such as /openai, and
// trailing slashes do not count. The longest known end wins. It is false for a
// path nobody knows.
func Lookup(path string) (Endpoint, bool) {
	path = strings.TrimRight(path, "/")
	var found Endpoint
	var ok bool
	start := len(path)
	for range maxSegments {
		start = strings.LastIndexByte(path[:start], '/')
		if e, known := endpoints[path[start+1:]]; known {
			found, ok = e, true
		}
		if start < 0 {
			break
		}
	}
	if !ok && ResponseID(path) != "" {
		return Endpoint{Name: "response"}, true
	}
	return found, ok
}

// ResponseID is the id in a path such as /v1/responses/{id} or
// /v1/responses/{id}/cancel, and empty for any other path. A stored response
// is known only to the engine that made it.
func ResponseID(path string) string {
	const before = "/v1/responses/"
	i := strings.LastIndex(path, before)
	if i < 0 {
		return ""
	}
	id, rest, _ := strings.Cut(path[i+len(before):], "/")
	if rest = strings.TrimRight(rest, "/"); rest != "" && rest != "cancel" && rest != "input_items" {
		return ""
	}
	return id
}
