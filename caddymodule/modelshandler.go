// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llm/loadaware/engines"
)

func init() {
	caddy.RegisterModule(new(ModelsHandler))
}

// ModelsHandler answers a GET or HEAD with the list of all models that the
// upstreams of a fleet serve, in the form of OpenAI's `/v1/models`. Clients see
// one server that has every model, whichever upstream has it.
//
// Each entry is as the engine wrote it; of a model that several upstreams
// serve, it is that of one of them. While no upstream's list is known, which is
// so until the first was read and where the policy does not read them, the
// answer is an error with status 503 in the same form. Other methods are passed
// on.
type ModelsHandler struct {
	// Fleet names the fleet, see the `llm_loadaware` selection policy. It need
	// not be in use when the config is loaded. Default: `default`.
	Fleet string `json:"fleet,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*ModelsHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.llm_loadaware_models",
		New: func() caddy.Module { return new(ModelsHandler) },
	}
}

// Provision fills in the default.
func (h *ModelsHandler) Provision(caddy.Context) error {
	set(&h.Fleet, defaultFleet)
	return nil
}

func parseModelsHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(ModelsHandler)
	err := handler.UnmarshalCaddyfile(h.Dispenser)
	return handler, err
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llm_loadaware_models [<matcher>] [<fleet>]
//
// A fleet that is left out is default.
func (h *ModelsHandler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if err := parseFleet(d, &h.Fleet); err != nil {
		return err
	}
	return refuseBlock(d, "llm_loadaware_models")
}

// ServeHTTP implements caddyhttp.MiddlewareHandler. The fleet is looked up for
// each request, so that the handler does not keep one alive that nothing else
// uses.
func (h *ModelsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return next.ServeHTTP(w, r)
	}
	f, inUse := findFleet(h.Fleet)
	if !inUse {
		return writeBody(w, http.StatusServiceUnavailable, noModels(fmt.Sprintf("fleet %s is not in use", h.Fleet)))
	}
	models := f.ServedModels(time.Now())
	if models == nil {
		return writeBody(w, http.StatusServiceUnavailable, noModels("the models of the upstreams are not known"))
	}
	return writeBody(w, http.StatusOK, modelList(models))
}

// modelList is OpenAI's list of models. It is put together by hand, because
// encoding an entry would rewrite it.
func modelList(models []engines.Model) []byte {
	list := []byte(`{"object":"list","data":[`)
	for i, m := range models {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, m.JSON...)
	}
	return append(list, `]}`...)
}

// noModels is an error in the form of OpenAI's.
func noModels(message string) []byte {
	type failure struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	// what has only strings and numbers can be encoded
	body, _ := json.Marshal(map[string]failure{
		"error": {message, "service_unavailable", nil, http.StatusServiceUnavailable},
	})
	return body
}

func writeBody(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}

// Interface guards
var (
	_ caddy.Module                = (*ModelsHandler)(nil)
	_ caddy.Provisioner           = (*ModelsHandler)(nil)
	_ caddyhttp.MiddlewareHandler = (*ModelsHandler)(nil)
	_ caddyfile.Unmarshaler       = (*ModelsHandler)(nil)
)
