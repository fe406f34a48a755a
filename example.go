// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package loadaware

import _ "embed" // for Example

// Example is the smallest useful config, Caddyfile.example. The demo runs it.
//
//go:embed Caddyfile.example
var Example string
