// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
)

// dimensions is the length of an embedding.
const dimensions = 16

type embeddingsRequest struct {
	Model    string        `json:"model"`
	Input    promptList    `json:"input"`
	Messages []chatMessage `json:"messages"`
	Format   string        `json:"encoding_format"`
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request, f Fault) {
	var in embeddingsRequest
	if !decode(w, r, &in) {
		return
	}
	a := asked{model: in.Model, prompts: in.Input, embed: true}
	if len(in.Messages) > 0 {
		chat := chatRequest{Messages: in.Messages}
		a.prompts = onePrompt(transcript(nil, chat.conversation()))
	}
	g, fail := s.plan(r, "embd-", a)
	if fail != nil {
		writeError(w, r, fail)
		return
	}
	d := &embeddingsDialect{generation: g, base64: in.Format == "base64"}
	for _, prompt := range a.prompts {
		d.vectors = append(d.vectors, embed(prompt.text))
	}
	s.serve(w, r, f, g, false, d)
}

// embed returns a vector of length 1 that depends on the text only.
func embed(text []byte) []float32 {
	vector, sum := make([]float32, dimensions), 0.0
	h := fnv(fnvOffset, text)
	for i := range vector {
		h = fnv(h, "embedding")
		v := float64(h>>40)/(1<<23) - 1
		vector[i], sum = float32(v), sum+v*v
	}
	for i := range vector {
		vector[i] /= float32(math.Sqrt(sum))
	}
	return vector
}

// embeddingsDialect writes embeddings, which do not stream.
type embeddingsDialect struct {
	*generation
	vectors [][]float32
	base64  bool
}

func (d *embeddingsDialect) begin(*events)              {}
func (d *embeddingsDialect) first(*events, int)         {}
func (d *embeddingsDialect) token(*events, int, string) {}
func (d *embeddingsDialect) last(*events, int)          {}
func (d *embeddingsDialect) end(*events)                {}

func (d *embeddingsDialect) whole() any {
	list := make([]object, len(d.vectors))
	for i, vector := range d.vectors {
		list[i] = object{"index": i, "object": "embedding", "embedding": vector}
		if d.base64 {
			list[i]["embedding"] = packed(vector)
		}
	}
	return object{
		"id": d.id, "object": "list", "created": d.created, "model": d.model, "data": list, "usage": d.usage(),
	}
}

// packed writes a vector as the OpenAI clients ask for it: base64 of little-endian floats.
func packed(vector []float32) string {
	var raw []byte
	for _, v := range vector {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return base64.StdEncoding.EncodeToString(raw)
}
