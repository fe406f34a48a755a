// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// endpoint is a method and a path of the admin endpoint, as documents have it.
var endpoint = regexp.MustCompile(`\b(GET|POST|PUT|PATCH|DELETE) +(/llm_loadaware/[^\s\x60]*)`)

// endpointsOf returns the endpoints that a text names, each as method and path.
func endpointsOf(text string) (list []string) {
	for _, m := range endpoint.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1]+" "+m[2])
	}
	return list
}

// The endpoints in the README are those in the doc comment of adminFleets, and
// these are the ones that are served.
func TestEndpointsAreDocumented(t *testing.T) {
	code := readCode(t)
	comment := endpointsOf(code.comments["adminFleets"])
	if len(comment) < 4 {
		t.Fatalf("the doc comment of adminFleets names only %q", comment)
	}
	var documented []string
	for _, r := range tables(manual(t), "endpoint") {
		documented = append(documented, endpointsOf(r.cells[0])...)
	}
	compare(t, documented, comment, "is in no table of endpoints", "is in a table of endpoints and not in the doc comment of adminFleets")

	if len(code.paths) < 2 {
		t.Fatalf("only the paths %q were found in the code", code.paths)
	}
	all := strings.Join(comment, "\n") + "\n"
	for _, path := range code.paths {
		if !regexp.MustCompile(regexp.QuoteMeta(path) + `[?\n]`).MatchString(all) {
			t.Errorf("the doc comment of adminFleets has no endpoint that ends in %s", path)
		}
	}
	for _, route := range (adminFleets{}).Routes() {
		if !strings.Contains(all, route.Pattern) {
			t.Errorf("the doc comment of adminFleets does not have the route %s", route.Pattern)
		}
	}
	for _, p := range everyPage(t) {
		for _, path := range regexp.MustCompile(`/llm_loadaware/[^\s'"`+"`"+`)]*`).FindAllString(p.text, -1) {
			if !slices.ContainsFunc(comment, func(e string) bool { return sameEndpoint(e, path) }) {
				t.Errorf("%s names %s, which is no endpoint", p.name, path)
			}
		}
	}
}

// sameEndpoint reports that a path with names of fleets and upstreams in it is
// that of an endpoint.
func sameEndpoint(endpoint, path string) bool {
	_, want, _ := strings.Cut(endpoint, " ")
	want, _, _ = strings.Cut(want, "?")
	path, _, _ = strings.Cut(path, "?")
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), `\{name\}`, `[^/]+`)
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimRight(path, ".,"))
}

// Every method that a path of the doc comment takes is named there.
func TestMethodsAreDocumented(t *testing.T) {
	f := newFleet(t, "a")
	f.List([]string{"a"})
	comment := endpointsOf(readCode(t).comments["adminFleets"])
	paths := map[string]bool{}
	for _, e := range comment {
		_, path, _ := strings.Cut(e, " ")
		path, _, _ = strings.Cut(path, "?")
		paths[path] = true
	}
	for path := range paths {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			target := strings.ReplaceAll(path, "{name}", url.PathEscape(t.Name())) + "?upstream=a"
			err := adminFleets{}.serve(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
			var failure caddy.APIError
			refused := errors.As(err, &failure) && failure.HTTPStatus == http.StatusMethodNotAllowed
			named := slices.ContainsFunc(comment, func(e string) bool { return strings.HasPrefix(e+"?", method+" "+path+"?") })
			if named == refused {
				t.Errorf("%s %s is named in the doc comment of adminFleets: %v, and answered with %v", method, path, named, err)
			}
		}
	}
}
