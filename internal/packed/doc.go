// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package packed writes and reads the bytes in which a fleet's state is kept and
// told: a mark, whose last byte is the version of the form, the parts, and a
// checksum of all before.
//
// A hash takes eight bytes and the checksum four, little endian. All else is a
// varint: a name stands once in a list, as its length and its bytes, and is meant
// by its place there.
package packed
