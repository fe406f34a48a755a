// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package vllmsim imitates a vLLM server without a model or a GPU.
//
// It has two layers. [Engine] is the model of vLLM's scheduler: a step loop with a token budget, chunked prefill, a
// prefix cache of reference-counted blocks with LRU eviction, KV capacity and preemption. It is pure arithmetic: no
// HTTP, no goroutine, no clock, so a laboratory can drive it in virtual time. [Server] puts the HTTP interface of
// vLLM around one engine, or several data-parallel ones, and drives them in real time, and [Host] gives a server a
// loopback address that can refuse connections.
//
// # What is modelled
//
// One step computes at most BatchTokens tokens and takes
//
//	StepTime + prefill tokens / PrefillRate + context of the decoding requests / DecodeContextRate
//
// Decoding requests take one token each of the budget, then prefills share what is left in order of arrival. A prompt
// is a chain of block hashes, where hash k names the first k+1 blocks together; only whole blocks are shared, and the
// last token of a prompt is always computed, so a prompt that is cached completely still costs its last block.
//
// # What is not modelled
//
// Attention cost that grows within a long prefill, speculative decoding, CPU overhead between steps,
// the cost of LoRA adapters, KV offloading, how the steps of data-parallel ranks wait for each other, and what a model would say: output is a deterministic string of four-letter tokens.
package vllmsim
