// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// ErrDamaged says that bytes are not what a [Writer] has written.
var ErrDamaged = errors.New("it is damaged")

// Reader takes parts off bytes. After the first that is not there it gives zeros,
// and [Reader.End] says so.
type Reader struct {
	b      []byte
	most   uint64
	names  []string
	failed bool
}

// Marked reports that data begins with a mark, and is long enough to end with a
// checksum.
func Marked(data []byte, mark string) bool {
	return len(data) >= len(mark)+crc32.Size && string(data[:len(mark)]) == mark
}

// Open returns a reader of what follows the mark. No number may be greater than
// most. The error is [ErrDamaged] if the mark or the checksum is not the one of
// the data. The data must not change while it is read.
func Open(data []byte, mark string, most uint64) (Reader, error) {
	if !Marked(data, mark) {
		return Reader{}, ErrDamaged
	}
	end := len(data) - crc32.Size
	if crc32.Checksum(data[:end], checksum) != binary.LittleEndian.Uint32(data[end:]) {
		return Reader{}, ErrDamaged
	}
	return Reader{b: data[len(mark):end], most: most}, nil
}

// End is [ErrDamaged] after a part that is not there, or if there is more to read.
func (r *Reader) End() error {
	if r.failed || len(r.b) > 0 {
		return ErrDamaged
	}
	return nil
}

// Left is how many bytes are left to read.
func (r *Reader) Left() int { return len(r.b) }

// Number takes a number.
func (r *Reader) Number() uint64 { return r.AtMost(r.most) }

// AtMost takes a number that is no greater than most.
func (r *Reader) AtMost(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > min(most, r.most) {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

// Int takes a number, of which it gives 2³¹-1 at most.
func (r *Reader) Int() int { return int(min(r.Number(), math.MaxInt32)) }

// Count takes how many items follow, no more than most, each of which takes so many
// bytes or more. So what is made for them is in proportion to the data.
func (r *Reader) Count(least int, most uint64) uint64 {
	n := r.AtMost(most)
	if n > uint64(len(r.b)/least) {
		r.fail()
		return 0
	}
	return n
}

// Hash takes a hash, or what else takes eight bytes.
func (r *Reader) Hash() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Names takes the list of names: no more than most, and none longer than longest.
func (r *Reader) Names(most, longest uint64) {
	for range r.Count(1, most) {
		r.names = append(r.names, string(r.take(r.AtMost(longest))))
	}
}

// Name gives the name at a place of the list. One that is not there is damage.
func (r *Reader) Name(at uint64) string {
	if at < uint64(len(r.names)) {
		return r.names[at]
	}
	r.fail()
	return ""
}

func (r *Reader) take(n uint64) (taken []byte) {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	taken, r.b = r.b[:n], r.b[n:]
	return taken
}

func (r *Reader) fail() { r.b, r.failed = nil, true }
