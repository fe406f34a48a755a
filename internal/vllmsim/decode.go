// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// decode reads a JSON body, answers what vLLM would refuse with status 400, and reports whether v is filled.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" {
		writeError(w, r, badRequest("Unsupported Media Type: Only 'application/json' is allowed"))
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		message := "JSON decode error: " + err.Error()
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			message = fmt.Sprintf("Input should be a valid %s: %s", wrong.Type, wrong.Field)
		}
		writeError(w, r, badRequest(message))
		return false
	}
	return true
}
