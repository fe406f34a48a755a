// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// client makes requests without a limit on connections, and keeps none: a
// connection left open would hold a reload up.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

const chatPath = "/v1/chat/completions"

// words is a text of about n tokens that begins with mark, so that texts with
// different marks share no prompt block.
func words(mark string, n int) string {
	unit := fmt.Sprintf("%-16s", mark)
	return strings.Repeat(unit, n*4/len(unit)+1)[:n*4]
}

// chat is a streamed chat request with one user message.
func chat(text string) string {
	return conversation(text)
}

// conversation is a streamed chat request whose messages alternate between the
// user and the assistant.
func conversation(texts ...string) string {
	messages := make([]map[string]string, len(texts))
	for i, text := range texts {
		messages[i] = map[string]string{"role": []string{"user", "assistant"}[i%2], "content": text}
	}
	body, err := json.Marshal(map[string]any{"model": "m", "stream": true, "messages": messages})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// send posts a JSON body to a site and path. header are fields and values.
func send(ctx context.Context, site, path, body string, header ...string) (*http.Response, error) {
	return sendAs(ctx, http.MethodPost, site, path, body, header...)
}

// sendAs is send with another method.
func sendAs(ctx context.Context, method, site, path, body string, header ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+site+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return client.Do(r)
}

// exchange posts a body and returns the status and all of the response.
func exchange(t testing.TB, site, path, body string, header ...string) (int, string) {
	t.Helper()
	res, text := exchangeAs(t, http.MethodPost, site, path, body, header...)
	return res.StatusCode, text
}

// exchangeAs sends a request and returns the response and all of its body.
func exchangeAs(t testing.TB, method, site, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	res, err := sendAs(t.Context(), method, site, path, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}
