// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"fmt"
	"net/http"
	"time"
)

// generation is one HTTP request on its way through the engine.
type generation struct {
	id      string
	model   string
	created int64
	details bool // usage tells about cached tokens
	parts   []*part
}

// part is one prompt of a generation.
type part struct {
	answer
	request *Request
	cached  int // known from the first output on
	sent    int // tokens given to the dialect
	begun   bool
	ended   bool
}

// asked is what a request wants of the engine, in any of the APIs.
type asked struct {
	model     string
	prompts   promptList
	maxTokens *int    // limit of each answer, or nil
	embed     bool    // no answer at all
	ids       bool    // the answer is token ids
	forced    *answer // a tool call instead of text, or nil
}

// plan prepares a generation. The id is prefix and a unique rest.
func (s *Server) plan(r *http.Request, prefix string, a asked) (*generation, *apiError) {
	model, fail := s.served(a.model)
	if fail != nil {
		return nil, fail
	}
	if len(a.prompts) == 0 {
		return nil, badRequest("Field required: the prompt is missing")
	}
	g := &generation{id: s.newID(r, prefix), model: model, created: time.Now().Unix(), details: s.cfg.PromptTokensDetails}
	for i, text := range a.prompts {
		p := s.prompt(model, text)
		answer, fail := s.answerTo(p, a)
		if fail != nil {
			return nil, fail
		}
		said := []byte(answer.text)
		if a.ids {
			said = idBytes(answer.ids())
		}
		g.parts = append(g.parts, &part{answer: answer, request: p.request(fmt.Sprintf("%s-%d", g.id, i), answer, said)})
	}
	return g, nil
}

// prompt returns a text as the engine sees it.
func (s *Server) prompt(model string, t promptText) prompt {
	d := newDensity(s.cfg.BytesPerToken)
	if t.ids {
		d = idDensity
	}
	return newPrompt(model, t.text, d, s.cfg.Engine.BlockTokens)
}

// answerTo decides what the model says.
func (s *Server) answerTo(p prompt, a asked) (answer, *apiError) {
	if p.tokens > s.cfg.MaxModelTokens || p.tokens == s.cfg.MaxModelTokens && !a.embed {
		return answer{}, badRequest(fmt.Sprintf(
			"This model's maximum context length is %d tokens. However, your request has %d input tokens. "+
				"Please reduce the length of the input messages.", s.cfg.MaxModelTokens, p.tokens))
	}
	if a.embed {
		return answer{finish: "stop"}, nil
	}
	if a.forced != nil {
		call := *a.forced
		call.density, call.tokens = p.density, p.cover(len(call.text))
		return call, nil
	}
	tokens, finish := s.cfg.OutputTokens, "stop"
	if a.maxTokens != nil {
		tokens, finish = *a.maxTokens, "length"
	}
	if tokens < 1 {
		return answer{}, badRequest(fmt.Sprintf("max_tokens must be at least 1, got %d.", tokens))
	}
	if tokens > s.cfg.MaxOutputTokens {
		tokens, finish = s.cfg.MaxOutputTokens, "stop"
	}
	if room := s.cfg.MaxModelTokens - p.tokens; tokens > room {
		tokens, finish = room, "length"
	}
	return textAnswer(s.cfg.Engine.Seed, p, tokens, finish), nil
}

// newID returns an id that starts with prefix and goes on with the client's request id, or else with a number that
// depends on the seed.
func (s *Server) newID(r *http.Request, prefix string) string {
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return prefix + id
	}
	n := s.cfg.Engine.Seed<<32 + s.lastID.Add(1)
	return fmt.Sprintf("%s%016x", prefix, (n^n>>31)*0x9e3779b97f4a7c15)
}

// counts sums up the tokens of a generation.
func (g *generation) counts() (prompt, cached, output int) {
	for _, p := range g.parts {
		prompt += p.request.PromptTokens
		cached += p.cached
		output += p.sent
	}
	return prompt, cached, output
}

// tellsUsage reports whether a stream of the older OpenAI APIs ends with its usage.
func (s *Server) tellsUsage(wanted streamOptions) bool {
	return wanted.IncludeUsage || s.cfg.ForceIncludeUsage
}

// usage returns the usage object of the OpenAI APIs that are older than responses.
func (g *generation) usage() object {
	prompt, cached, output := g.counts()
	u := object{
		"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
		"prompt_tokens_details": nil,
	}
	if g.details {
		u["prompt_tokens_details"] = object{"cached_tokens": cached}
	}
	return u
}
