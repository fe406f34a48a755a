// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/fleet"
)

func init() {
	caddy.RegisterModule(adminFleets{})
}

// adminFleets serves the state of the fleets on the admin API:
//
//	GET /llm_loadaware/fleets         every fleet in use
//	GET /llm_loadaware/fleets/{name}  one of them
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

const adminFleetsPath = "/llm_loadaware/fleets"

// Routes implements caddy.AdminRouter.
func (a adminFleets) Routes() []caddy.AdminRoute {
	handler := caddy.AdminHandlerFunc(a.serve)
	return []caddy.AdminRoute{
		{Pattern: adminFleetsPath, Handler: handler},
		{Pattern: adminFleetsPath + "/", Handler: handler},
	}
}

func (adminFleets) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: fmt.Errorf("method not allowed")}
	}
	name := strings.Trim(strings.TrimPrefix(r.URL.Path, adminFleetsPath), "/")
	if name == "" {
		return writeJSON(w, allFleets())
	}
	f := findFleet(name)
	if f == nil {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf("fleet not found: %s", name)}
	}
	return writeJSON(w, describeFleet(name, f))
}

func writeJSON(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		return caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	}
	return nil
}

// fleetStatus is the JSON form of a fleet, in the words of the metrics.
type fleetStatus struct {
	Name      string           `json:"name"`
	Sessions  int              `json:"sessions"`
	Upstreams []upstreamStatus `json:"upstreams"`
}

// upstreamStatus is the JSON form of an upstream.
type upstreamStatus struct {
	Upstream             string            `json:"upstream"`
	RequestsInFlight     int               `json:"requests_in_flight"`
	RequestsWaiting      int               `json:"requests_waiting"`
	PrefillTokens        int               `json:"prefill_tokens"`
	FailedLoad           float64           `json:"failed_load"`
	Sessions             int               `json:"sessions"`
	PrefixBlocks         int               `json:"prefix_blocks"`
	PrefixBlocksCapacity int               `json:"prefix_blocks_capacity"`
	Placements           map[string]uint64 `json:"placements"`
	Releases             map[string]uint64 `json:"releases"`
}

func allFleets() []fleetStatus {
	list := []fleetStatus{}
	for _, f := range listFleets() {
		list = append(list, describeFleet(f.name, f.fleet))
	}
	slices.SortFunc(list, func(a, b fleetStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func describeFleet(name string, f *fleet.Fleet) fleetStatus {
	view := f.View(time.Now())
	status := fleetStatus{Name: name, Sessions: view.Sessions, Upstreams: []upstreamStatus{}}
	for i := range view.Upstreams {
		u := &view.Upstreams[i]
		s := upstreamStatus{
			Upstream:             u.Name,
			RequestsInFlight:     u.Requests,
			RequestsWaiting:      u.Waiting,
			PrefillTokens:        u.Prefill,
			FailedLoad:           u.FailedLoad,
			Sessions:             u.Sessions,
			PrefixBlocks:         u.PrefixBlocks,
			PrefixBlocksCapacity: u.PrefixCapacity,
			Placements:           make(map[string]uint64, fleet.Reasons),
			Releases:             make(map[string]uint64, fleet.Causes),
		}
		for i, n := range u.Totals.Placements {
			s.Placements[fleet.Reason(i).String()] = n
		}
		for i, n := range u.Totals.Releases {
			s.Releases[fleet.Cause(i).String()] = n
		}
		status.Upstreams = append(status.Upstreams, s)
	}
	return status
}

// Interface guards
var (
	_ caddy.Provisioner = adminFleets{}
	_ caddy.AdminRouter = adminFleets{}
)
