// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package prompts finds out what a request body asks of an engine: whether
// there is a prompt to prefill, for which model, about how many tokens, of which
// session, and how the prompt begins.
//
// [Lookup] tells the endpoint from the path, [Endpoint.Read] reads the body, and
// [BySize] stands in where nobody could. Everything here is a pure function and
// safe for concurrent use.
//
// # Canonical text
//
// A prompt is written as canonical text: tools, documents, system and
// instructions, then the messages or prompts in their order, whatever the order
// of the keys in the body. Only what becomes prompt is in it: decoded text and
// the compact JSON of tools and arguments, but no sampling options, metadata,
// ids of calls or cache_control. Text is charged a token for every four bytes,
// token ids are charged one each, and an image, sound, video or file a fixed
// cost, whatever its size. Marks between the pieces and roles are hashed, and
// charged nothing.
//
// The text is cut into blocks of 1 KiB, and
//
//	hash(k) = xxhash64(hash(k-1) + block(k)), hash(-1) = xxhash64(model + 0xff + cache salt)
//
// so that a hash names everything before it. An id takes four bytes of
// canonical text and a media item four for every token it is charged, filled
// with its digest: one block is 256 tokens of any kind of prompt. A conversation
// that grows keeps its blocks, because nothing is written after a message but
// the next one. Two prompts with the same blocks are one prompt to the engine
// but for what is left out: options of the chat template are not looked at.
//
// # JSON
//
// Bodies are read in place by a scanner of this package's own. It bounds the
// nesting, reads a body that was cut off, lets the last of several members with
// one name win, and copies no text. gjson.Valid recurses without a bound, so
// that a few megabytes of brackets overflow the stack and end the process; the
// standard decoder copies every string; neither reads a body that was cut off.
//
// Measured on two cores of a shared virtual machine (EPYC Turin) in a quiet
// moment, chat bodies of a coding agent with an escape every 25 bytes,
// validation and hashing included; with busy neighbours all take up to twice as
// long:
//
//	               5 KB             500 KB
//	this package   15 us, 3 allocs  1.2 ms, 3 allocs
//	gjson          23 us, 10        2.8 ms, 302 (1.4 MB)
//	encoding/json  26 us, 32        2.7 ms, 900 (1.0 MB)
//
// A body with an image of 5 MB takes 2.2 ms. The time is linear in the size of
// the body: for 32 MiB made to be slow it is under two seconds. The benchmarks
// beside the tests repeat all of this.
package prompts
