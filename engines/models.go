// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// maxModels is how many models of one engine are kept: a base model and
	// more adapters than an engine lists in practice.
	maxModels = 1024

	// maxModelID is how long a model's name may be, in bytes. Names are those
	// of repositories or paths of files.
	maxModelID = 512
)

var errNoModels = errors.New("models: no list of models in data")

// ParseModels reads the body of /v1/models, in the form of OpenAI's list. It
// returns the first 1,024 models in the engine's order. Entries without an id,
// with one of more than 512 bytes, or with that of an earlier entry are left
// out. A body that is no such list is an error.
//
// The entries are copies, and hold on to nothing else of the body.
func ParseModels(body []byte) ([]Model, error) {
	var list struct {
		Data *[]json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	if list.Data == nil {
		return nil, errNoModels
	}
	var models []Model
	seen := map[string]struct{}{}
	for _, entry := range *list.Data {
		id := entryID(entry)
		if _, ok := seen[id]; ok || id == "" || len(id) > maxModelID {
			continue
		}
		if len(models) == maxModels {
			break
		}
		seen[id] = struct{}{}
		models = append(models, Model{ID: id, JSON: entry})
	}
	return models, nil
}

// entryID returns the id of an entry, "" if it is no object with a string.
func entryID(entry json.RawMessage) string {
	var named struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(entry, &named) != nil {
		return ""
	}
	return named.ID
}
