// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package redis carries what the Caddys of one fleet tell each other over a
// stream in Redis or Valkey.
//
// All of a fleet write to one stream, so everybody hears the same in the same
// order, and who begins reads what was said before. The stream is bounded in
// bytes. Nothing else is kept in Redis, and nothing has to outlive it: a stream
// that was lost begins anew.
package redis
