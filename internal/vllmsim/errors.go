// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// object is a JSON object of a response.
type object = map[string]any

// apiError is an error as vLLM answers it.
type apiError struct {
	status  int
	kind    string // default: the text of the status
	message string
	param   string // default: null
}

func badRequest(message string) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "BadRequestError", message: message}
}

func noModel(name string) *apiError {
	return &apiError{
		status:  http.StatusNotFound,
		kind:    "NotFoundError",
		message: fmt.Sprintf("The model `%s` does not exist.", name),
		param:   "model",
	}
}

func noResponse(id string) *apiError {
	return &apiError{
		status:  http.StatusNotFound,
		kind:    "invalid_request_error",
		message: fmt.Sprintf("Response with id '%s' not found.", id),
		param:   "response_id",
	}
}

// body returns the error in the shape of the API that the path belongs to.
func (e *apiError) body(path string) object {
	kind := e.kind
	if kind == "" {
		kind = http.StatusText(e.status)
	}
	if strings.HasPrefix(path, "/v1/messages") {
		return object{"type": "error", "error": object{"type": kind, "message": e.message}}
	}
	var param any
	if e.param != "" {
		param = e.param
	}
	return object{"error": object{"message": e.message, "type": kind, "param": param, "code": e.status}}
}

func writeError(w http.ResponseWriter, r *http.Request, e *apiError) {
	writeJSON(w, e.status, e.body(r.URL.Path))
}

// writeJSON answers with one JSON document. The client may have gone; there is nobody to tell.
func writeJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"encoding response"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
