// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/fleet"
)

func init() {
	caddy.RegisterModule(adminFleets{})
}

// adminFleets serves the state of the fleets on the admin API, and lets an
// operator take an upstream out of service:
//
//	GET    /llm_loadaware/fleets                                every fleet in use
//	GET    /llm_loadaware/fleets/{name}                         one of them
//	POST   /llm_loadaware/fleets/{name}/drain?upstream={dial}   drains an upstream
//	DELETE /llm_loadaware/fleets/{name}/drain?upstream={dial}   ends that
//
// A drained upstream gets nothing new while the fleet has another one. What runs
// there goes on, and the sessions whose home it is move with their next request.
// That holds over reloads, until the fleet has forgotten the upstream: some
// minutes after no config and no traffic names it any more, or with the last
// config that uses the fleet.
//
// A name with a slash may stand in the path as it is, unless it ends in /drain;
// with %2F in its place every name may.
//
// It is a view and keeps nothing: Caddy provisions admin modules before apps
// and never cleans them up.
type adminFleets struct{}

// CaddyModule returns the Caddy module information.
func (adminFleets) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.llm_loadaware",
		New: func() caddy.Module { return new(adminFleets) },
	}
}

// Provision registers the metrics with the registry of a config that may fail
// before any policy of it is provisioned: the numbers stay in view.
func (adminFleets) Provision(ctx caddy.Context) error {
	return registerMetrics(ctx)
}

const (
	adminFleetsPath = "/llm_loadaware/fleets"
	adminDrainPath  = "/drain"
)

// Routes implements caddy.AdminRouter.
func (a adminFleets) Routes() []caddy.AdminRoute {
	handler := caddy.AdminHandlerFunc(a.serve)
	return []caddy.AdminRoute{
		{Pattern: adminFleetsPath, Handler: handler},
		{Pattern: adminFleetsPath + "/", Handler: handler},
	}
}

var errMethod = errors.New("method not allowed")

func (adminFleets) serve(w http.ResponseWriter, r *http.Request) error {
	// with escapes, so that a slash in a name is none of the path
	path := strings.TrimPrefix(r.URL.EscapedPath(), adminFleetsPath)
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	escaped, drain := strings.CutSuffix(path, adminDrainPath)
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return adminError(http.StatusBadRequest, fmt.Errorf("reading fleet name: %w", err))
	}
	if drain {
		return serveDrain(name, r)
	}
	if r.Method != http.MethodGet {
		return adminError(http.StatusMethodNotAllowed, errMethod)
	}
	if name == "" {
		return writeJSON(w, allFleets())
	}
	f, err := fleetInUse(name)
	if err != nil {
		return err
	}
	return writeJSON(w, describeFleet(name, f))
}

// serveDrain drains an upstream or ends that. Like Caddy's own changes it is
// answered with an empty 200, also where there was nothing to change.
func serveDrain(name string, r *http.Request) error {
	if r.Method != http.MethodPost && r.Method != http.MethodDelete {
		return adminError(http.StatusMethodNotAllowed, errMethod)
	}
	f, err := fleetInUse(name)
	if err != nil {
		return err
	}
	upstream := r.URL.Query().Get("upstream")
	if upstream == "" {
		return adminError(http.StatusBadRequest, errors.New("upstream is missing in the query"))
	}
	if !f.Drain(upstream, r.Method == http.MethodPost) {
		return adminError(http.StatusNotFound, fmt.Errorf("upstream not found: %s", upstream))
	}
	return nil
}

// fleetInUse returns the named fleet, or the error that there is none.
func fleetInUse(name string) (*fleet.Fleet, error) {
	f := findFleet(name)
	if f == nil {
		return nil, adminError(http.StatusNotFound, fmt.Errorf("fleet not found: %s", name))
	}
	return f, nil
}

func adminError(status int, err error) error {
	return caddy.APIError{HTTPStatus: status, Err: err}
}

func writeJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		return adminError(http.StatusInternalServerError, err)
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner = adminFleets{}
	_ caddy.AdminRouter = adminFleets{}
)
