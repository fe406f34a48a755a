// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"

	"github.com/cespare/xxhash/v2"
)

// form is what a multipart form asks of an audio model.
type form struct {
	model, prompt, stream []byte
	digest                uint64
	hasFile               bool
}

// readForm reads the fields model, prompt and stream of a multipart form and
// takes its file for one media item. It is false for what is no such form, and
// for a complete body that ends too early.
func readForm(body []byte, complete bool, contentType string, l Limits) (Prompt, bool) {
	_, params, err := mime.ParseMediaType(contentType)
	boundary := params["boundary"]
	if err != nil || boundary == "" {
		return Prompt{}, false
	}
	var f form
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for err == nil {
		var p *multipart.Part
		if p, err = parts.NextRawPart(); err == nil {
			err = f.add(p, int64(l.MaxPromptTokens)*BytesPerToken)
		}
	}
	// the reader takes some early ends for the last boundary
	if complete && (!errors.Is(err, io.EOF) || !bytes.Contains(body, []byte("--"+boundary+"--"))) {
		return Prompt{}, false
	}
	return f.asPrompt(len(body), l), true
}

// add reads one part. Text beyond limit bytes is worth nothing to an estimate
// that is capped there.
func (f *form) add(p *multipart.Part, limit int64) error {
	name := p.FormName()
	if name == "file" {
		f.hasFile = true
		var d xxhash.Digest
		d.Reset()
		_, err := io.Copy(&d, p)
		f.digest = d.Sum64()
		return err
	}
	dst := f.field(name)
	if dst == nil {
		return nil
	}
	var err error
	*dst, err = io.ReadAll(io.LimitReader(p, limit))
	return err
}

// field is where the form field of that name goes, and nil for one that does
// not matter.
func (f *form) field(name string) *[]byte {
	switch name {
	case "model":
		return &f.model
	case "prompt":
		return &f.prompt
	case "stream":
		return &f.stream
	}
	return nil
}

// asPrompt is the estimate: the words first, as the model sees them.
func (f *form) asPrompt(bodyBytes int, l Limits) Prompt {
	r := reader{limits: l}
	r.begin(f.model, nil, bodyBytes, l)
	r.plain(f.prompt)
	if f.hasFile {
		r.media(f.digest, l.MediaTokens)
	}
	p := r.estimate()
	p.Streams = isTrue(f.stream)
	if len(f.model) <= MaxValueBytes {
		p.Model = string(f.model)
	}
	return p
}
