// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"bytes"
	"mime/multipart"
	"slices"
	"testing"
)

// formBody is a form with the given fields, name and value in turn, and its
// content type. The field "file" is an upload.
func formBody(t *testing.T, fields ...string) (body []byte, contentType string) {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for i := 0; i < len(fields); i += 2 {
		part, err := w.CreateFormField(fields[i])
		if fields[i] == "file" {
			part, err = w.CreateFormFile("file", "speech.wav")
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write([]byte(fields[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), w.FormDataContentType()
}

func TestReadForm(t *testing.T) {
	e, _ := Lookup("/v1/audio/transcriptions")
	sound := long("sound", 40)
	body, contentType := formBody(t, "file", sound, "model", "whisper", "prompt", "names: Ann", "stream", "true", "language", "en")
	p := e.Read(body, true, contentType, Limits{})
	words := int64(len("names: Ann"))
	if !p.Parsed || !p.Streams || p.Model != "whisper" || p.TextBytes != words || p.Tokens != int(words/4)+DefaultMediaTokens {
		t.Errorf("Read = %+v, want a stream of whisper with %d bytes of text and one item", p, words)
	}

	reordered, contentType2 := formBody(t, "prompt", "names: Ann", "model", "whisper", "file", sound)
	q := e.Read(reordered, true, contentType2, Limits{})
	if q.Streams || len(q.Blocks) == 0 || !slices.Equal(p.Blocks, q.Blocks) {
		t.Errorf("the same form in another order streams: %v, and shares %d of %d blocks", q.Streams, shared(p, q), len(p.Blocks))
	}

	other, contentType3 := formBody(t, "prompt", "names: Ann", "model", "whisper", "file", sound+"x")
	if n := shared(p, e.Read(other, true, contentType3, Limits{})); n != 0 {
		t.Errorf("another recording shares %d blocks, want 0", n)
	}

	noFile, contentType4 := formBody(t, "model", "whisper", "stream", "false")
	if p := e.Read(noFile, true, contentType4, Limits{}); !p.Parsed || p.Tokens != 0 || p.Streams {
		t.Errorf("Read without a file = %+v, want no tokens and no stream", p)
	}
}

func TestReadFormThatIsNone(t *testing.T) {
	e, _ := Lookup("/v1/audio/translations")
	body, contentType := formBody(t, "model", "whisper", "file", long("sound", 8))
	for _, tc := range []struct {
		name, contentType string
		body              []byte
	}{
		{"no content type", "", body},
		{"no boundary", "multipart/form-data", body},
		{"another boundary", "multipart/form-data; boundary=x", body},
		{"bad content type", "multipart/form-data; boundary=", body},
		{"json", "application/json", []byte(`{"model":"m"}`)},
		{"empty", contentType, nil},
		{"cut", contentType, body[:len(body)-20]},
		{"cut in a header", contentType, body[:100]},
	} {
		if p := e.Read(tc.body, true, tc.contentType, Limits{}); p.Parsed || p.Tokens != len(tc.body)/4 || !p.Prefills {
			t.Errorf("%s: Read = %+v, want it placed by its size", tc.name, p)
		}
	}
	p := e.Read(body[:4000], false, contentType, Limits{})
	if !p.Parsed || p.Model != "whisper" || p.Tokens != DefaultMediaTokens {
		t.Errorf("Read of the first part = %+v, want whisper and one item", p)
	}
}
