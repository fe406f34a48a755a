// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

func init() {
	caddy.RegisterModule(adminFleets{})
}

// adminFleets serves the state of the fleets on the admin API, and lets an
// operator take an upstream out of service:
//
//	GET    /llm_loadaware/fleets                                every fleet in use
//	GET    /llm_loadaware/fleets/{name}                         one of them
//	GET    /llm_loadaware/fleets/{name}/placements?limit={n}    its last placements
//	POST   /llm_loadaware/fleets/{name}/explain                 where a request would go
//	DELETE /llm_loadaware/fleets/{name}/sessions                forgets the sessions
//	POST   /llm_loadaware/fleets/{name}/drain?upstream={dial}   drains an upstream
//	DELETE /llm_loadaware/fleets/{name}/drain?upstream={dial}   ends that
//
// Placements come the last one first, each with the cost of every upstream and
// the terms of it; the last 256 are kept, and all of them are shown without a
// limit.
//
// What is posted to /explain is the body of an LLM request, whose headers may
// name its session. The answer is the placement that it would get now, and
// nothing is reserved or remembered. The query may have the `path` of the request
// (default: /v1/chat/completions), and which `policy` of the fleet's is asked, by
// its position in the list of them (default: 0). It is read as the handler does
// in front of that policy.
//
// Sessions that are forgotten begin anew with their next request; the prefix
// indexes stay. The answer is how many there were.
//
// A drained upstream gets nothing new while the fleet has another one. What runs
// there goes on, and the sessions whose home it is move with their next request.
// That holds over reloads, until the fleet has forgotten the upstream: some
// minutes after no config and no traffic names it any more, or with the last
// config that uses the fleet.
//
// A name with a slash may stand in the path as it is, unless it ends like one of
// these paths; with %2F in its place every name may.
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

// Where the fleets are, and what follows the name of one.
const (
	adminFleetsPath     = "/llm_loadaware/fleets"
	adminDrainPath      = "/drain"
	adminPlacementsPath = "/placements"
	adminExplainPath    = "/explain"
	adminSessionsPath   = "/sessions"
)

// Routes implements caddy.AdminRouter.
func (a adminFleets) Routes() []caddy.AdminRoute {
	handler := caddy.AdminHandlerFunc(a.serve)
	return []caddy.AdminRoute{
		{Pattern: adminFleetsPath, Handler: handler},
		{Pattern: adminFleetsPath + "/", Handler: handler},
	}
}

// fleetEndpoint is what is served of one fleet under a path that follows its name.
type fleetEndpoint struct {
	suffix  string
	methods []string
	serve   func(w http.ResponseWriter, r *http.Request, f namedFleet) error
}

// fleetEndpoints are tried in order, so the one without a suffix is last.
var fleetEndpoints = []fleetEndpoint{
	{adminDrainPath, []string{http.MethodPost, http.MethodDelete}, serveDrain},
	{adminPlacementsPath, []string{http.MethodGet}, servePlacements},
	{adminExplainPath, []string{http.MethodPost}, serveExplain},
	{adminSessionsPath, []string{http.MethodDelete}, serveForget},
	{"", []string{http.MethodGet}, serveFleet},
}

var errMethod = errors.New("method not allowed")

func (adminFleets) serve(w http.ResponseWriter, r *http.Request) error {
	// with escapes, so that a slash in a name is none of the path
	path := strings.TrimPrefix(r.URL.EscapedPath(), adminFleetsPath)
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	if path == "" {
		if r.Method != http.MethodGet {
			return adminError(http.StatusMethodNotAllowed, errMethod)
		}
		return writeJSON(w, allFleets())
	}
	for _, endpoint := range fleetEndpoints {
		if escaped, ok := strings.CutSuffix(path, endpoint.suffix); ok {
			return endpoint.serveNamed(w, r, escaped)
		}
	}
	return nil
}

// serveNamed serves the fleet of a name that is still escaped.
func (e fleetEndpoint) serveNamed(w http.ResponseWriter, r *http.Request, escaped string) error {
	name, err := url.PathUnescape(escaped)
	if err != nil {
		return adminError(http.StatusBadRequest, fmt.Errorf("reading fleet name: %w", err))
	}
	if !slices.Contains(e.methods, r.Method) {
		return adminError(http.StatusMethodNotAllowed, errMethod)
	}
	f, inUse := findFleet(name)
	if !inUse {
		return adminError(http.StatusNotFound, fmt.Errorf("fleet not found: %s", name))
	}
	return e.serve(w, r, f)
}

func serveFleet(w http.ResponseWriter, _ *http.Request, f namedFleet) error {
	return writeJSON(w, describeFleet(f))
}

// servePlacements serves the last placements, the last one first.
func servePlacements(w http.ResponseWriter, r *http.Request, f namedFleet) error {
	limit := math.MaxInt
	if given := r.URL.Query().Get("limit"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 {
			return adminError(http.StatusBadRequest, fmt.Errorf("limit must be a number from 1: %s", given))
		}
		limit = n
	}
	return writeJSON(w, recentPlacements(f.Fleet, limit))
}

// serveDrain drains an upstream or ends that. Like Caddy's own changes it is
// answered with an empty 200, also where there was nothing to change.
func serveDrain(_ http.ResponseWriter, r *http.Request, f namedFleet) error {
	upstream := r.URL.Query().Get("upstream")
	if upstream == "" {
		return adminError(http.StatusBadRequest, errors.New("upstream is missing in the query"))
	}
	if !f.Drain(upstream, r.Method == http.MethodPost) {
		return adminError(http.StatusNotFound, fmt.Errorf("upstream not found: %s", upstream))
	}
	return nil
}

// serveForget forgets the fleet's sessions.
func serveForget(w http.ResponseWriter, _ *http.Request, f namedFleet) error {
	return writeJSON(w, map[string]int{"sessions_forgotten": f.ForgetSessions()})
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
