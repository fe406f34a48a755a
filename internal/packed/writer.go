// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/binary"
	"hash/crc32"
)

var checksum = crc32.MakeTable(crc32.Castagnoli)

// Writer appends parts to bytes. Equal calls give equal bytes.
type Writer struct {
	b      []byte
	first  int
	names  []string
	places map[string]uint64
}

// NewWriter returns a writer that appends to b, beginning with a mark.
func NewWriter(b []byte, mark string) Writer {
	return Writer{b: append(b, mark...), first: len(b), places: map[string]uint64{}}
}

// Name gives a name its place in the list. It does not write it.
func (w *Writer) Name(name string) {
	if _, ok := w.places[name]; !ok {
		w.places[name] = uint64(len(w.names))
		w.names = append(w.names, name)
	}
}

// Names appends the list of all names that have a place.
func (w *Writer) Names() {
	w.Count(len(w.names))
	for _, name := range w.names {
		w.Count(len(name))
		w.b = append(w.b, name...)
	}
}

// Place returns the place of a name in the list, 0 if it has none.
func (w *Writer) Place(name string) uint64 { return w.places[name] }

// Number appends a number.
func (w *Writer) Number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

// Count appends a number of items. One below 0 is 0.
func (w *Writer) Count(n int) { w.Number(uint64(max(n, 0))) }

// Hash appends a hash, or what else takes eight bytes.
func (w *Writer) Hash(h uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, h) }

// End appends the checksum and returns all bytes.
func (w *Writer) End() []byte {
	return binary.LittleEndian.AppendUint32(w.b, crc32.Checksum(w.b[w.first:], checksum))
}

// Bit returns 1 for true.
func Bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
