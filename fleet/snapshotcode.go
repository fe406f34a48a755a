// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding"
	"errors"
	"math"
	"time"

	"github.com/caddy-llm/loadaware/internal/packed"
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

var errNoSnapshot = errors.New("it is no snapshot of this version")

// mostNumber is more than any count or time.
const mostNumber = math.MaxInt32 * 16

// The least bytes that the items of a snapshot take.
const (
	leastSession  = 3*8 + 5
	leastIndex    = 3
	leastBlock    = 8 + 1
	leastResponse = 8 + 1
)

// MarshalBinary implements encoding.BinaryMarshaler. Equal snapshots give equal
// bytes. It never fails.
func (s *Snapshot) MarshalBinary() ([]byte, error) {
	blocks := 0
	for i := range s.Indexes {
		blocks += len(s.Indexes[i].Blocks)
	}
	room := 1024 + 40*len(s.Sessions) + 10*blocks + 10*len(s.Responses)
	w := snapshotWriter{packed.NewWriter(make([]byte, 0, room), snapshotMark)}
	w.upstreams(s)
	w.Count(len(s.Sessions))
	for i := range s.Sessions {
		w.session(&s.Sessions[i])
	}
	w.Count(len(s.Indexes))
	for i := range s.Indexes {
		w.index(&s.Indexes[i])
	}
	w.Count(len(s.Responses))
	for i := range s.Responses {
		w.Hash(uint64(s.Responses[i].Key))
		w.Number(w.Place(s.Responses[i].Upstream))
	}
	return w.End(), nil
}

// snapshotWriter appends the parts of a snapshot.
type snapshotWriter struct{ packed.Writer }

// upstreams writes the list of all upstreams that the snapshot names.
func (w *snapshotWriter) upstreams(s *Snapshot) {
	for i := range s.Sessions {
		w.Name(s.Sessions[i].Home)
	}
	for i := range s.Indexes {
		w.Name(s.Indexes[i].Upstream)
	}
	for i := range s.Responses {
		w.Name(s.Responses[i].Upstream)
	}
	w.Names()
}

func (w *snapshotWriter) session(s *sessions.Stored) {
	w.Hash(uint64(s.Key))
	w.Hash(s.Head)
	w.Hash(s.Last)
	w.Number(w.Place(s.Home))
	w.Count(s.Size)
	w.Count(s.Blocks)
	w.Number(packed.Bit(s.Indexed))
	w.Number(uint64(max(s.LastUse.Unix(), 0)))
}

// index writes the times of blocks as what each is later than the one before,
// which for most is nothing.
func (w *snapshotWriter) index(s *StoredIndex) {
	w.Number(w.Place(s.Upstream))
	w.Count(s.Capacity)
	w.Count(len(s.Blocks))
	last := int64(0)
	for _, b := range s.Blocks {
		used := max(b.Used/int64(time.Second), last)
		w.Hash(b.Hash)
		w.Number(uint64(used - last))
		last = used
	}
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. It takes a whole
// snapshot of its own version or nothing.
func (s *Snapshot) UnmarshalBinary(data []byte) error {
	if !packed.Marked(data, snapshotMark) {
		return errNoSnapshot
	}
	opened, err := packed.Open(data, snapshotMark, mostNumber)
	if err != nil {
		return err
	}
	r := snapshotReader{opened}
	r.Names(mostNumber, mostNumber)
	var read Snapshot
	for range r.Count(leastSession, mostNumber) {
		read.Sessions = append(read.Sessions, r.session())
	}
	for range r.Count(leastIndex, mostNumber) {
		read.Indexes = append(read.Indexes, r.index())
	}
	for range r.Count(leastResponse, mostNumber) {
		read.Responses = append(read.Responses, StoredResponse{Key: ResponseKey(r.Hash()), Upstream: r.Name(r.Number())})
	}
	if err := r.End(); err != nil {
		return err
	}
	*s = read
	return nil
}

// snapshotReader takes the parts of a snapshot.
type snapshotReader struct{ packed.Reader }

func (r *snapshotReader) session() sessions.Stored {
	return sessions.Stored{
		Key: sessions.Key(r.Hash()), Head: r.Hash(), Last: r.Hash(),
		Home: r.Name(r.Number()), Size: r.Int(), Blocks: r.Int(), Indexed: r.Number() != 0,
		LastUse: time.Unix(int64(r.Number()), 0),
	}
}

func (r *snapshotReader) index() StoredIndex {
	s := StoredIndex{Upstream: r.Name(r.Number()), Capacity: r.Int()}
	last := int64(0)
	for range r.Count(leastBlock, mostNumber) {
		hash := r.Hash()
		last += int64(r.Number())
		s.Blocks = append(s.Blocks, prefixes.Block{Hash: hash, Used: last * int64(time.Second)})
	}
	return s
}

// Interface guards
var (
	_ encoding.BinaryMarshaler   = (*Snapshot)(nil)
	_ encoding.BinaryUnmarshaler = (*Snapshot)(nil)
)
