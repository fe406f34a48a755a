// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "llm-loadaware",
		Usage: "<command>",
		Short: "Shows the fleets of a running Caddy and explains placements",
		Long: `
Shows what the llm_loadaware policies of a running Caddy know and decide, by its
admin endpoint.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			cmd.AddCommand(topCommand(), explainCommand())
		},
	})
}

// adminFlags say which admin endpoint to ask.
type adminFlags struct{ address, config, adapter string }

func (f *adminFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.address, "address", "", "Address of the admin endpoint, if it is not in the config (default "+caddy.DefaultAdminListen+")")
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "Configuration file to read the address from")
	cmd.Flags().StringVarP(&f.adapter, "adapter", "a", "", "Name of config adapter to apply")
}

// endpoint returns the admin endpoint that the flags name.
func (f *adminFlags) endpoint() (adminEndpoint, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(f.address, nil, f.config, f.adapter)
	if err != nil {
		return "", fmt.Errorf("determining the address of the admin endpoint: %w", err)
	}
	return adminEndpoint(address), nil
}

// adminEndpoint is the address of a Caddy's admin endpoint.
type adminEndpoint string

// ask sends a request and decodes the answer into result.
func (e adminEndpoint) ask(method, path string, header http.Header, body io.Reader, result any) error {
	header = header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	// each request has a client of its own, whose connection nobody uses again
	header.Set("Connection", "close")
	res, err := caddycmd.AdminAPIRequest(string(e), method, path, header, body)
	if err != nil {
		return fmt.Errorf("asking %s for %s: %w", e, path, err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(result); err != nil {
		return fmt.Errorf("reading the answer of %s to %s: %w", e, path, err)
	}
	return nil
}

// fleetPath is where the admin endpoint has what belongs to a fleet.
func fleetPath(name, suffix string) string {
	return adminFleetsPath + "/" + url.PathEscape(name) + suffix
}

// printable replaces what a terminal would not print but obey: names of models
// come from clients.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
