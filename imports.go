// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package loadaware makes Caddy place LLM requests by the prefill work they
// cause. Importing it registers the modules of package caddymodule:
//
//   - http.reverse_proxy.selection_policies.llm_loadaware decides,
//   - http.handlers.llm_loadaware reads requests and watches responses,
//   - http.handlers.llm_loadaware_models lists the models of a fleet,
//   - http.handlers.llm_loadaware_status is a live page of a fleet,
//   - admin.api.llm_loadaware shows the state.
//
// The import stands here so that xcaddy can build with the module's root path.
// The packages below form one road: a request is read by prompts, placed by
// fleet with the help of picker, sessions and prefixes, sent to its upstream by
// Caddy, and watched by caddymodule, which reports its first output and its end
// back to the fleet.
package loadaware

import (
	// registers the modules
	_ "github.com/caddy-llm/loadaware/caddymodule"
)
