// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/engines"
)

// Models says what to do with upstreams that do not list a request's model.
type Models uint8

const (
	// ModelsList takes them for no candidates, unless no upstream lists it.
	ModelsList Models = iota
	// ModelsPrefer chooses them after those that list it.
	ModelsPrefer
	// ModelsOff does not look at models.
	ModelsOff
)

// modelList is what an upstream last listed.
type modelList struct {
	byID    map[string]engines.Model
	expires time.Time
}

// known reports that there is a list to believe.
func (l *modelList) known(now time.Time) bool { return l.byID != nil && now.Before(l.expires) }

// serves reports that the upstream serves a model, as far as is known.
func (l *modelList) serves(model string, now time.Time) bool {
	if !l.known(now) {
		return true
	}
	_, ok := l.byID[model]
	return ok
}

// names returns the models in order, nil where they are not known.
func (l *modelList) names(now time.Time) []string {
	if !l.known(now) {
		return nil
	}
	names := slices.AppendSeq(make([]string, 0, len(l.byID)), maps.Keys(l.byID))
	slices.Sort(names)
	return names
}

// ObserveModels takes in what the named upstream lists as its models, to be
// believed for the time valid.
func (f *Fleet) ObserveModels(name string, models []engines.Model, now time.Time, valid time.Duration) {
	byID := make(map[string]engines.Model, len(models))
	for _, m := range models {
		byID[m.ID] = m
	}
	f.mu.Lock()
	defer f.done(now)
	if u, ok := f.upstreams[name]; ok {
		u.models = modelList{byID: byID, expires: now.Add(valid)}
	}
}

// ServedModels returns every model that an upstream of the fleet is known to
// serve, by name; of one that several serve, the entry of the first upstream by
// name. It returns nil while no upstream's list is known.
func (f *Fleet) ServedModels(now time.Time) []engines.Model {
	f.mu.Lock()
	defer f.mu.Unlock()
	type offer struct {
		engines.Model
		upstream string
	}
	offers := []offer{}
	known := false
	for name, u := range f.upstreams {
		if !u.models.known(now) {
			continue
		}
		known = true
		for _, m := range u.models.byID {
			offers = append(offers, offer{m, name})
		}
	}
	if !known {
		return nil
	}
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.upstream, b.upstream))
	})
	models := make([]engines.Model, 0, len(offers))
	for _, o := range offers {
		if len(models) == 0 || models[len(models)-1].ID != o.ID {
			models = append(models, o.Model)
		}
	}
	return models
}
