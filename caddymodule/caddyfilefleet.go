// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

// parseFleet sets the name of a fleet from the only argument of a directive, which
// may be left out.
func parseFleet(d *caddyfile.Dispenser, fleet *string) error {
	d.Next() // consume directive name
	if !d.NextArg() {
		return nil
	}
	name, err := parseName(d.Val())
	if err != nil {
		return d.Errf("invalid fleet '%s': %v", d.Val(), err)
	}
	*fleet = name
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}
