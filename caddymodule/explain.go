// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llm/loadaware/fleet"
)

// defaultExplainPath is the path of a request to explain that names none.
const defaultExplainPath = "/v1/chat/completions"

// serveExplain answers a request that an operator has posted with the placement
// that a policy would make for it.
func serveExplain(w http.ResponseWriter, r *http.Request, f namedFleet) error {
	p, err := policyAsked(r, f)
	if err != nil {
		return err
	}
	a := &attempt{watched: true}
	defer func() { a.body.drop() }()
	if err := p.readExplained(a, r); err != nil {
		return adminError(http.StatusBadRequest, err)
	}
	request := p.request(a, r.Header)
	d := p.explain(&request, time.Now())
	if p.shadow != nil {
		inTheShadow(&d)
	}
	return writeJSON(w, describeDecision(&d))
}

// inTheShadow makes a decision one that another policy takes: where the request
// goes is not known before that policy is asked.
func inTheShadow(d *fleet.Decision) {
	d.Shadow = fleet.Choice{Upstream: d.Upstream, Reason: d.Reason, UncachedTokens: d.UncachedTokens}
	d.Upstream, d.Reason, d.UncachedTokens = "", fleet.ReasonShadow, 0
}

// policyAsked returns the policy that the query names.
func policyAsked(r *http.Request, f namedFleet) (*LoadAwareSelection, error) {
	at := 0
	if given := r.URL.Query().Get("policy"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 0 {
			return nil, adminError(http.StatusBadRequest, fmt.Errorf("policy must be a position in the fleet's list of policies: %s", given))
		}
		at = n
	}
	policies := f.live.all()
	if at >= len(policies) {
		return nil, adminError(http.StatusNotFound, fmt.Errorf("policy not found: %d of the %d policies of fleet %s", at, len(policies), f.name))
	}
	return policies[at].LoadAwareSelection, nil
}

// readExplained reads r as if it had come to the proxy, by the limits of the
// handler that stands in front of that, or by default ones while that is not
// known. It changes r.
func (p *LoadAwareSelection) readExplained(a *attempt, r *http.Request) error {
	path := r.URL.Query().Get("path")
	if path == "" {
		path = defaultExplainPath
	}
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("path must begin with a slash: %s", path)
	}
	r.URL = &url.URL{Path: path}
	h := p.handler.Load()
	if h == nil {
		h = &Handler{logger: zap.NewNop()}
		h.setDefaults()
	}
	h.read(r, a)
	switch {
	case a.body.broken():
		return errors.New("reading the body failed")
	case !a.prefills:
		return fmt.Errorf("path has no prompt: %s", path)
	}
	return nil
}
