// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"bytes"
	"encoding/hex"
	"math"
	"testing"
)

const mark = "mark\x01"

// written has every kind of part, after bytes that are not its own.
func written() []byte {
	w := NewWriter([]byte("before"), mark)
	w.Hash(1 << 63)
	w.Name("a:1")
	w.Name("b:2")
	w.Name("a:1")
	w.Names()
	w.Number(w.Place("b:2"))
	w.Number(math.MaxUint64)
	w.Number(300)
	w.Count(-1)
	w.Number(math.MaxUint32)
	w.Number(Bit(true))
	w.Number(Bit(false))
	return w.End()
}

// What was written once can be read by every later version.
func TestWriterStays(t *testing.T) {
	const want = "6265666f7265" + "6d61726b01" + "0000000000000080" + "02" + "03613a31" + "03623a32" + "01" +
		"ffffffffffffffffff01" + "ac02" + "00" + "ffffffff0f" + "01" + "00" + "51e114ce"
	if got := hex.EncodeToString(written()); got != want {
		t.Errorf("written:\n%s, want\n%s", got, want)
	}
}

func TestReader(t *testing.T) {
	data := written()[len("before"):]
	if !Marked(data, mark) || Marked(data, "other") || Marked([]byte(mark+"123"), mark) {
		t.Error("the mark is not recognized")
	}
	r, err := Open(data, mark, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	if h := r.Hash(); h != 1<<63 {
		t.Errorf("Hash() = %d", h)
	}
	r.Names(2, 3)
	if a, b := r.Name(0), r.Name(r.Number()); a != "a:1" || b != "b:2" {
		t.Errorf("Name() = %q, %q", a, b)
	}
	if n := r.Number(); n != math.MaxUint64 {
		t.Errorf("Number() = %d", n)
	}
	if n := r.AtMost(300); n != 300 {
		t.Errorf("AtMost(300) = %d", n)
	}
	if n := r.Count(1, 9); n != 0 {
		t.Errorf("Count() = %d", n)
	}
	if n := r.Int(); n != math.MaxInt32 {
		t.Errorf("Int() = %d, want the greatest of 32 bits", n)
	}
	if r.End() == nil || r.Left() != 2 {
		t.Errorf("End() = nil with %d bytes left", r.Left())
	}
	if a, b := r.Number(), r.Number(); a != 1 || b != 0 || r.End() != nil {
		t.Errorf("bits = %d, %d, then %v", a, b, r.End())
	}
}

// Whatever is cut off or changed is not opened.
func TestOpenDamaged(t *testing.T) {
	data := written()[len("before"):]
	for n := range data {
		if _, err := Open(data[:n], mark, 1); err == nil {
			t.Errorf("the first %d bytes are opened", n)
		}
		damaged := bytes.Clone(data)
		damaged[n] ^= 0x10
		if _, err := Open(damaged, mark, 1); err == nil {
			t.Errorf("byte %d is another one, and that is opened", n)
		}
	}
}

// A part that is not there or is out of bounds is damage, and nothing is read after it.
func TestReaderFails(t *testing.T) {
	for name, test := range map[string]struct {
		parts []byte
		read  func(r *Reader)
	}{
		"nothing":            {nil, func(r *Reader) { r.Number() }},
		"varint without end": {[]byte{0x80}, func(r *Reader) { r.Number() }},
		"varint too long":    {bytes.Repeat([]byte{0xff}, 11), func(r *Reader) { r.Number() }},
		"more than any":      {[]byte{101}, func(r *Reader) { r.Number() }},
		"more than most":     {[]byte{6}, func(r *Reader) { r.AtMost(5) }},
		"most of any":        {[]byte{101}, func(r *Reader) { r.AtMost(1000) }},
		"short hash":         {make([]byte, 7), func(r *Reader) { r.Hash() }},
		"items not there":    {[]byte{2, 1, 1, 1}, func(r *Reader) { r.Count(2, 9) }},
		"too many items":     {[]byte{3, 1, 1, 1}, func(r *Reader) { r.Count(1, 2) }},
		"short name":         {[]byte{1, 2, 'a'}, func(r *Reader) { r.Names(9, 9) }},
		"long name":          {[]byte{1, 2, 'a', 'b'}, func(r *Reader) { r.Names(9, 1) }},
		"too many names":     {[]byte{2, 0, 0}, func(r *Reader) { r.Names(1, 9) }},
		"no such name":       {[]byte{1, 1, 'a'}, func(r *Reader) { r.Names(9, 9); r.Name(1) }},
	} {
		w := NewWriter(nil, mark)
		w.b = append(w.b, test.parts...)
		r, err := Open(w.End(), mark, 100)
		if err != nil {
			t.Fatal(err)
		}
		test.read(&r)
		if r.End() == nil {
			t.Errorf("%s: it is read", name)
		}
		if h, n, c := r.Hash(), r.Number(), r.Count(1, 9); h+n+c != 0 || r.Left() != 0 || r.End() == nil {
			t.Errorf("%s: then %d, %d and %d are read, and %d bytes are left", name, h, n, c, r.Left())
		}
	}
}
