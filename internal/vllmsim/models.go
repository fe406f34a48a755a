// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"net/http"
	"slices"
)

// Adapter is a LoRA adapter. To the engine it is a model like any other: it costs nothing and shares no cache.
type Adapter struct {
	// Name is what requests call it.
	Name string
	// Base is the model that it changes. Default: the first.
	Base string
	// Root is where it was loaded from. Default: /adapters/ and its name.
	Root string
}

// catalog is what a server serves. It is replaced, never changed.
type catalog struct {
	models   []string
	adapters []Adapter
}

// label returns the model_name of the metrics.
func (c *catalog) label() string {
	if len(c.models) == 0 {
		return ""
	}
	return c.models[0]
}

// has reports whether requests may name a model.
func (c *catalog) has(name string) bool {
	return slices.Contains(c.models, name) ||
		slices.ContainsFunc(c.adapters, func(a Adapter) bool { return a.Name == name })
}

// entries returns the data of /v1/models: the models, then the adapters, which have no length.
func (c *catalog) entries(created int64, maxTokens int) []object {
	list := []object{}
	add := func(name, root string, parent, length any) {
		list = append(list, object{
			"id": name, "object": "model", "created": created, "owned_by": "vllm", "root": root,
			"parent": parent, "max_model_len": length, "permission": []object{},
		})
	}
	for _, name := range c.models {
		add(name, c.label(), nil, maxTokens)
	}
	for _, a := range c.adapters {
		base, root := a.Base, a.Root
		if base == "" {
			base = c.label()
		}
		if root == "" {
			root = "/adapters/" + a.Name
		}
		add(a.Name, root, base, nil)
	}
	return list
}

// SetModels replaces what the server serves: the names of the model, and LoRA adapters. No model at all is allowed, and
// then every request is for an unknown one. It affects requests that arrive afterwards and the label of the metrics,
// stays over a restart, and is not seen in [Server.Config].
func (s *Server) SetModels(models []string, adapters ...Adapter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catalog = &catalog{slices.Clone(models), slices.Clone(adapters)}
}

// served returns the name of the model that a request means.
func (s *Server) served(name string) (string, *apiError) {
	s.mu.Lock()
	c := s.catalog
	s.mu.Unlock()
	if name == "" && len(c.models) > 0 {
		return c.models[0], nil
	}
	if !c.has(name) {
		return "", noModel(name)
	}
	return name, nil
}

// models serves GET /v1/models.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	fault, created, c := s.fault.Models, s.started.Unix(), s.catalog
	s.mu.Unlock()
	switch fault {
	case ModelsMissing:
		writeJSON(w, http.StatusNotFound, object{"detail": "Not Found"})
	case ModelsError:
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
	case ModelsGarbage:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("\x00\xff<html>{\"object\":\"list\",\"data\":[{\"id\":"))
	default:
		writeJSON(w, http.StatusOK, object{"object": "list", "data": c.entries(created, s.cfg.MaxModelTokens)})
	}
}
