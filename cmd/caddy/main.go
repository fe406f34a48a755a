// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Command caddy is Caddy with its standard modules and this one.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	// plug in the modules
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-llm/loadaware"
)

func main() {
	caddycmd.Main()
}
