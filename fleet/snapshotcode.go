// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"

	"github.com/caddy-llm/loadaware/prefixes"
	"github.com/caddy-llm/loadaware/sessions"
)

// snapshotMark begins every snapshot. Its last byte is the version of the form:
//
//	mark
//	n, then n upstreams: length, name
//	n, then n sessions: key, head, last block, home, size, blocks, indexed, last use
//	n, then n indexes: upstream, capacity, m, then m blocks: hash, time since the last one
//	n, then n responses: key, upstream
//	checksum of all before
//
// Keys and hashes take eight bytes and the checksum four, little endian; all else
// is a varint: upstreams by their place in the list, the last use in seconds of
// Unix time. A session takes about 36 bytes, a block 9.
const snapshotMark = "llmload\x01"

// What is wrong with bytes that should be a snapshot.
var (
	errNoSnapshot = errors.New("it is no snapshot of this version")
	errDamaged    = errors.New("it is damaged")
)

var checksum = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary implements encoding.BinaryMarshaler. Equal snapshots give equal
// bytes. It never fails.
func (s *Snapshot) MarshalBinary() ([]byte, error) {
	w := snapshotWriter{places: map[string]uint64{}}
	for i := range s.Sessions {
		w.place(s.Sessions[i].Home)
	}
	blocks := 0
	for i := range s.Indexes {
		w.place(s.Indexes[i].Upstream)
		blocks += len(s.Indexes[i].Blocks)
	}
	for i := range s.Responses {
		w.place(s.Responses[i].Upstream)
	}
	w.b = append(make([]byte, 0, 1024+40*len(s.Sessions)+10*blocks+10*len(s.Responses)), snapshotMark...)
	w.number(uint64(len(w.names)))
	for _, name := range w.names {
		w.number(uint64(len(name)))
		w.b = append(w.b, name...)
	}
	w.number(uint64(len(s.Sessions)))
	for i := range s.Sessions {
		w.session(&s.Sessions[i])
	}
	w.number(uint64(len(s.Indexes)))
	for i := range s.Indexes {
		w.index(&s.Indexes[i])
	}
	w.number(uint64(len(s.Responses)))
	for i := range s.Responses {
		w.hash(uint64(s.Responses[i].Key))
		w.number(w.places[s.Responses[i].Upstream])
	}
	return binary.LittleEndian.AppendUint32(w.b, crc32.Checksum(w.b, checksum)), nil
}

// snapshotWriter appends the parts of a snapshot.
type snapshotWriter struct {
	b      []byte
	names  []string
	places map[string]uint64
}

// place gives an upstream its place in the list.
func (w *snapshotWriter) place(name string) {
	if _, ok := w.places[name]; !ok {
		w.places[name] = uint64(len(w.names))
		w.names = append(w.names, name)
	}
}

func (w *snapshotWriter) session(s *sessions.Stored) {
	w.hash(uint64(s.Key))
	w.hash(s.Head)
	w.hash(s.Last)
	w.number(w.places[s.Home])
	w.number(uint64(max(s.Size, 0)))
	w.number(uint64(max(s.Blocks, 0)))
	indexed := uint64(0)
	if s.Indexed {
		indexed = 1
	}
	w.number(indexed)
	w.number(uint64(max(s.LastUse.Unix(), 0)))
}

// index writes the times of blocks as what each is later than the one before,
// which for most is nothing.
func (w *snapshotWriter) index(s *StoredIndex) {
	w.number(w.places[s.Upstream])
	w.number(uint64(max(s.Capacity, 0)))
	w.number(uint64(len(s.Blocks)))
	last := int64(0)
	for _, b := range s.Blocks {
		used := max(b.Used/int64(time.Second), last)
		w.hash(b.Hash)
		w.number(uint64(used - last))
		last = used
	}
}

func (w *snapshotWriter) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }
func (w *snapshotWriter) hash(h uint64)   { w.b = binary.LittleEndian.AppendUint64(w.b, h) }

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It takes a whole
// snapshot of its own version or nothing.
func (s *Snapshot) UnmarshalBinary(data []byte) error {
	end := len(data) - crc32.Size
	switch {
	case end < len(snapshotMark) || string(data[:len(snapshotMark)]) != snapshotMark:
		return errNoSnapshot
	case crc32.Checksum(data[:end], checksum) != binary.LittleEndian.Uint32(data[end:]):
		return errDamaged
	}
	r := snapshotReader{b: data[len(snapshotMark):end]}
	var read Snapshot
	for left := r.count(); left > 0 && !r.failed; left-- {
		r.names = append(r.names, string(r.take(r.number())))
	}
	for left := r.count(); left > 0 && !r.failed; left-- {
		read.Sessions = append(read.Sessions, sessions.Stored{
			Key: sessions.Key(r.hash()), Head: r.hash(), Last: r.hash(),
			Home: r.name(), Size: r.integer(), Blocks: r.integer(), Indexed: r.number() != 0,
			LastUse: time.Unix(int64(r.number()), 0),
		})
	}
	for left := r.count(); left > 0 && !r.failed; left-- {
		read.Indexes = append(read.Indexes, r.index())
	}
	for left := r.count(); left > 0 && !r.failed; left-- {
		read.Responses = append(read.Responses, StoredResponse{Key: ResponseKey(r.hash()), Upstream: r.name()})
	}
	if r.failed || len(r.b) > 0 {
		return errDamaged
	}
	*s = read
	return nil
}

// snapshotReader takes the parts of a snapshot off b. After the first that is
// not there it gives zeros.
type snapshotReader struct {
	b      []byte
	names  []string
	failed bool
}

func (r *snapshotReader) fail() { r.b, r.failed = nil, true }

func (r *snapshotReader) take(n uint64) (taken []byte) {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	taken, r.b = r.b[:n], r.b[n:]
	return taken
}

// number reads a varint that is no more than any count or time.
func (r *snapshotReader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > math.MaxInt32*16 {
		r.fail()
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *snapshotReader) index() StoredIndex {
	s := StoredIndex{Upstream: r.name(), Capacity: r.integer()}
	last := int64(0)
	for left := r.count(); left > 0 && !r.failed; left-- {
		hash := r.hash()
		last += int64(r.number())
		s.Blocks = append(s.Blocks, prefixes.Block{Hash: hash, Used: last * int64(time.Second)})
	}
	return s
}

func (r *snapshotReader) integer() int { return int(min(r.number(), math.MaxInt32)) }

// count reads how many items follow, each of which takes a byte or more.
func (r *snapshotReader) count() uint64 {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return n
}

func (r *snapshotReader) hash() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *snapshotReader) name() string {
	if at := r.number(); at < uint64(len(r.names)) {
		return r.names[at]
	}
	r.fail()
	return ""
}

// Interface guards
var (
	_ encoding.BinaryMarshaler   = (*Snapshot)(nil)
	_ encoding.BinaryUnmarshaler = (*Snapshot)(nil)
)
