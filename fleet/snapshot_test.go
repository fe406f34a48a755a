// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/prefixes"
	"github.com/caddy-llm/loadaware/sessions"
)

// carry takes what a fleet remembers over to a new one, as a restart does.
func carry(t *testing.T, b *bed, after time.Duration) *bed {
	t.Helper()
	data, err := b.Snapshot(b.options.Sessions, b.now).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var s Snapshot
	if err := s.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	next := newBedAt(len(b.pool.Names()), 2)
	next.options, next.now = b.options, b.now.Add(after)
	next.Restore(&s, next.options.Sessions, next.now)
	return next
}

// story is one turn of a session with its prompt.
func story(session sessions.Key, tokens int) Request {
	return Request{Session: session, Tokens: tokens, Blocks: text(uint64(session), tokens, 0, 0), Head: 9, Prefills: true}
}

// After a restart each session goes on where it was, and is charged for what its
// prompt grew.
func TestSnapshotKeepsHomes(t *testing.T) {
	for _, indexed := range []bool{true, false} {
		b := newBed(4)
		b.options.PrefixIndex = indexed
		for key := sessions.Key(1); key <= 12; key++ {
			b.serve(story(key, 10*BlockTokens), int(key)%4)
		}
		next := carry(t, b, time.Minute)
		if n := next.View(next.now).Sessions; n != 12 {
			t.Errorf("index %v: %d sessions, want 12", indexed, n)
		}
		for key := sessions.Key(12); key >= 1; key-- {
			p, at := next.place(story(key, 11*BlockTokens))
			if at != int(key)%4 || p.Reason() != ReasonPinned || p.UncachedTokens() != BlockTokens {
				t.Errorf("index %v: session %d was placed on %d, %s, with %d tokens uncached, want it pinned on %d with %d",
					indexed, key, at, p.Reason(), p.UncachedTokens(), key%4, BlockTokens)
			}
			p.End(CauseEnd, next.now)
		}
	}
}

// A prompt that comes without a session, or under another's name, finds its
// cache too, and a sub-agent is still told from the conversation.
func TestSnapshotKeepsIndexes(t *testing.T) {
	b := newBed(3)
	b.serve(prompt(10*BlockTokens, text(1, 10*BlockTokens, 0, 0)), 2)
	b.serve(story(7, 10*BlockTokens), 1)
	next := carry(t, b, time.Minute)
	p, at := next.place(prompt(11*BlockTokens, text(1, 11*BlockTokens, 0, 0)))
	if at != 2 || p.Reason() != ReasonPrefix || p.UncachedTokens() != BlockTokens {
		t.Errorf("the prompt was placed on %d, %s, with %d tokens uncached, want 2", at, p.Reason(), p.UncachedTokens())
	}
	agent := story(8, 10*BlockTokens)
	agent.Session, agent.Head = 7, 5
	if p, _ := next.place(agent); p.Reason() != ReasonLoad {
		t.Errorf("a sub-agent was placed as %s, want load", p.Reason())
	}
	if u := next.view(t, 1); u.PrefixCapacity != DefaultKVTokens/BlockTokens {
		t.Errorf("capacity = %d, want %d", u.PrefixCapacity, DefaultKVTokens/BlockTokens)
	}
}

func TestSnapshotKeepsResponses(t *testing.T) {
	b := newBed(3)
	for key := ResponseKey(1); key <= 6; key++ {
		p, _ := b.place(prompt(10, nil), int(key)%3)
		p.Keeps(key)
		p.End(CauseEnd, b.now)
	}
	next := carry(t, b, time.Minute)
	if got, want := slices.Collect(next.responses.stored()), slices.Collect(b.responses.stored()); !reflect.DeepEqual(got, want) {
		t.Errorf("responses = %v, want %v", got, want)
	}
	for key := ResponseKey(1); key <= 6; key++ {
		if _, at := next.place(Request{Response: key}); at != int(key)%3 {
			t.Errorf("response %d was asked for at %d, want %d", key, at, key%3)
		}
	}
}

// What has not succeeded, or not for too long, is not kept.
func TestSnapshotLeavesOut(t *testing.T) {
	b := newBed(2)
	b.serve(turn(1, 1000), 0)
	b.now = b.now.Add(b.options.Sessions.TTL)
	b.serve(turn(2, 1000), 0)
	long, _ := b.place(turn(3, 1000), 0)
	long.FirstOutput(b.now)
	failed, _ := b.place(turn(4, 1000), 0)
	failed.End(CauseError, b.now)
	b.place(turn(5, 1000), 0)
	b.serve(turn(6, 1000), 0)
	moved, _ := b.place(turn(6, 1200), 1)
	if moved.Reason() != ReasonMovedUnavailable {
		t.Fatalf("session 6 is %s", moved.Reason())
	}
	b.now = b.now.Add(time.Second)
	homes := map[sessions.Key]string{}
	for _, s := range b.Snapshot(b.options.Sessions, b.now).Sessions {
		homes[s.Key] = s.Home
	}
	// the one that moves has succeeded on the old home only
	want := map[sessions.Key]string{2: b.pool.Names()[0], 3: b.pool.Names()[0], 6: b.pool.Names()[0]}
	if !reflect.DeepEqual(homes, want) {
		t.Errorf("the snapshot has %v, want %v", homes, want)
	}

	b.now = b.now.Add(b.options.Sessions.TTL + time.Second)
	next := carry(t, b, 0)
	if n := next.View(next.now).Sessions; n != 2 {
		t.Errorf("%d sessions, want those two with a live request", n)
	}
}

func TestRestoreBounds(t *testing.T) {
	b := newBed(2)
	for key := sessions.Key(1); key <= 10; key++ {
		b.now = b.now.Add(time.Minute)
		b.serve(turn(key, 1000), 0)
	}
	b.options.Sessions.Max = 4
	next := carry(t, b, 0)
	for key := sessions.Key(1); key <= 10; key++ {
		if got := next.sessions.Find(key) != nil; got != (key > 6) {
			t.Errorf("session %d is there: %v; want the 4 that were used last", key, got)
		}
	}
	// the next one takes the place of the oldest
	next.serve(turn(11, 1000), 0)
	if next.sessions.Find(7) != nil || next.sessions.Find(8) == nil {
		t.Error("the session that was used least recently is still there, or another one is not")
	}

	b.options.Sessions = sessions.Bounds{Max: 100, TTL: 3 * time.Minute}
	if n := carry(t, b, time.Minute).View(b.now).Sessions; n != 3 {
		t.Errorf("%d sessions within the TTL, want 3", n)
	}
	early := carry(t, b, -time.Hour)
	early.now = early.now.Add(2 * time.Minute)
	if _, at := early.place(turn(10, 1000), 0, 1); at != 0 {
		t.Error("a session from the future has no home")
	}
}

// What came after the start is newer than what was stored before.
func TestRestoreLeavesWhatIsThere(t *testing.T) {
	b := newBed(2)
	b.serve(story(1, 10*BlockTokens), 0)
	b.serve(story(2, 10*BlockTokens), 0)
	p, _ := b.place(prompt(10, nil), 0)
	p.Keeps(5)
	stored := b.Snapshot(b.options.Sessions, b.now)

	next := newBed(2)
	next.serve(story(1, 12*BlockTokens), 1)
	live, _ := next.place(story(3, 1000), 1)
	q, _ := next.place(prompt(10, nil), 1)
	q.Keeps(5)
	held := next.view(t, 1).PrefixBlocks
	if n := next.Restore(stored, next.options.Sessions, next.now); n != 1 {
		t.Errorf("Restore() = %d, want 1", n)
	}
	if home := next.sessions.Find(1).Home(); home != next.pool.Names()[1] {
		t.Errorf("home of a session that is there = %s", home)
	}
	if home := next.sessions.Find(2).Home(); home != next.pool.Names()[0] {
		t.Errorf("home of a session that is not = %s", home)
	}
	if _, at := next.place(Request{Response: 5}); at != 1 {
		t.Errorf("a response that is known was asked for at %d, want 1", at)
	}
	if n := next.view(t, 1).PrefixBlocks; n != held {
		t.Errorf("%d blocks, want the %d that were there", n, held)
	}
	live.End(CauseEnd, next.now)
}

// Stored upstreams that nobody lists are neither in view nor kept for long.
func TestRestoredUpstreamsDepart(t *testing.T) {
	b := newBed(4)
	for at := range 4 {
		b.serve(prompt(1000, text(uint64(at), 1000, 0, 0)), at)
	}
	next := carry(t, b, time.Minute)
	if got := viewed(next.View(next.now)); len(got) != 0 {
		t.Errorf("View() shows %q, want nothing before the first request", got)
	}
	next.pool = NewPool(b.pool.Names()[:1])
	next.serve(prompt(10, nil), 0)
	if n := len(next.upstreams); n != 4 {
		t.Errorf("%d upstreams after the first request, want 4", n)
	}
	next.now = next.now.Add(departed)
	next.serve(prompt(10, nil), 0)
	if n := len(next.upstreams); n != 1 {
		t.Errorf("%d upstreams later, want 1", n)
	}
}

// Requests go on while a snapshot is taken and another one restored.
func TestSnapshotConcurrently(t *testing.T) {
	b := newBed(4)
	for key := sessions.Key(1); key <= 4*copiedAtOnce; key++ {
		b.serve(turn(key, 1000))
	}
	other := b.Snapshot(b.options.Sessions, b.now)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			pool, options := NewPool(b.pool.Names()), b.options
			for i := range 2000 {
				var p Placement
				req := story(sessions.Key(worker*100_000+i+10_000), 1000)
				b.Place(&p, &req, pool, b.usable, &options, b.now)
				p.Keeps(ResponseKey(i + 1))
				p.End(CauseEnd, b.now)
			}
		})
	}
	for range 20 {
		if n := len(b.Snapshot(b.options.Sessions, b.now).Sessions); n < 4*copiedAtOnce {
			t.Errorf("%d sessions in the snapshot, want those that are there all the time", n)
		}
		b.Restore(other, b.options.Sessions, b.now)
	}
	wg.Wait()
	atRest(t, b.View(b.now))
}

// sampleBytes is a snapshot of everything.
func sampleBytes() []byte {
	b := newBed(3)
	for key := sessions.Key(1); key <= 5; key++ {
		b.now = b.now.Add(time.Second)
		b.serve(story(key, 2000), int(key)%3)
	}
	p, _ := b.place(prompt(10, nil), 0)
	p.Keeps(5)
	data, _ := b.Snapshot(b.options.Sessions, b.now).MarshalBinary()
	return data
}

func TestSnapshotRoundTrip(t *testing.T) {
	data := sampleBytes()
	var s Snapshot
	if err := s.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	if len(s.Sessions) != 5 || len(s.Indexes) != 3 || len(s.Responses) != 1 || len(s.Indexes[0].Blocks) != 7 {
		t.Errorf("snapshot = %+v", s)
	}
	again, _ := s.MarshalBinary()
	if !bytes.Equal(again, data) || !bytes.Equal(sampleBytes(), data) {
		t.Error("equal snapshots are different bytes")
	}
	empty, _ := new(Snapshot).MarshalBinary()
	if err := s.UnmarshalBinary(empty); err != nil || len(s.Sessions)+len(s.Indexes)+len(s.Responses) != 0 {
		t.Errorf("nothing = %+v, %v", s, err)
	}
}

// A snapshot is read by later versions, and by the one that it is rolled back to.
func TestSnapshotStays(t *testing.T) {
	s := Snapshot{
		Sessions: []sessions.Stored{
			{Key: 1 << 60, Head: 9, Last: math.MaxUint64, Home: "b:2", Size: 70_000, Blocks: 270, Indexed: true, LastUse: time.Unix(1_800_000_000, 5)},
			{Key: 5, Home: "c:3", Size: -1, LastUse: time.Unix(-1, 0)},
		},
		Indexes: []StoredIndex{
			{Upstream: "a:1", Capacity: 37_500, Blocks: []prefixes.Block{{Hash: 1, Used: 3e9}, {Hash: 2, Used: 2e9}, {Hash: 3, Used: 303e9}}},
			{Upstream: "b:2"},
		},
		Responses: []StoredResponse{{Key: 4, Upstream: "d:4"}},
	}
	const want = "" +
		"6c6c6d6c6f6164010403623a3203633a3303613a3103643a3402000000000000" +
		"00100900000000000000ffffffffffffffff00f0a2048e020180a4a7da060500" +
		"0000000000000000000000000000000000000000000001000000000202fca402" +
		"030100000000000000030200000000000000000300000000000000ac02000000" +
		"01040000000000000003e2088c2f"
	if data, err := s.MarshalBinary(); err != nil || hex.EncodeToString(data) != want {
		t.Errorf("a snapshot is\n%x, %v, want\n%s", data, err, want)
	}
}

// What is cut off, changed or from elsewhere gives an error and nothing else.
func TestSnapshotDamaged(t *testing.T) {
	data := sampleBytes()
	for n := range data {
		s := Snapshot{Responses: []StoredResponse{{1, "a"}}}
		if err := s.UnmarshalBinary(data[:n]); err == nil || len(s.Responses) != 1 {
			t.Fatalf("the first %d bytes give %+v, %v, want an error", n, s, err)
		}
		damaged := bytes.Clone(data)
		damaged[n] ^= 0x10
		if err := new(Snapshot).UnmarshalBinary(damaged); err == nil {
			t.Fatalf("byte %d is another one and there is no error", n)
		}
		if err := new(Snapshot).UnmarshalBinary(append(bytes.Clone(data), data[n])); err == nil {
			t.Fatal("a byte more gives no error")
		}
	}
	version := bytes.Clone(data)
	version[len(snapshotMark)-1]++
	if err := new(Snapshot).UnmarshalBinary(version); !errors.Is(err, errNoSnapshot) {
		t.Errorf("another version gives %v", err)
	}
}

// Whatever stands between the mark and a good checksum, reading it ends.
func FuzzSnapshot(f *testing.F) {
	data := sampleBytes()
	f.Add(data[len(snapshotMark) : len(data)-4])
	f.Add([]byte{1, 1, 'a', 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, body []byte) {
		whole := append([]byte(snapshotMark), body...)
		whole = binary.LittleEndian.AppendUint32(whole, crc32.Checksum(whole, crc32.MakeTable(crc32.Castagnoli)))
		var s Snapshot
		if s.UnmarshalBinary(whole) == nil {
			New(func() uint64 { return 0 }).Restore(&s, DefaultOptions().Sessions, start)
		}
	})
}

// brimful is a fleet that remembers as much as it can.
func brimful(upstreams int) *bed {
	b := newBed(upstreams)
	for key := range sessions.Key(b.options.Sessions.Max) {
		b.serve(story(key+1, 1000), int(key)%upstreams)
	}
	p, _ := b.place(prompt(10, nil), 0)
	for key := range ResponseKey(maxResponses) {
		p.Keeps(key + 1)
	}
	return b
}

// No lock is held for longer than a portion or the copy of one index takes.
func BenchmarkSnapshot(b *testing.B) {
	bed := brimful(8)
	b.Run(fmt.Sprintf("%d sessions under one lock", copiedAtOnce), func(b *testing.B) {
		for b.Loop() {
			n := 0
			for range bed.sessions.Stored(bed.now, bed.options.Sessions) {
				if n++; n == copiedAtOnce {
					break
				}
			}
		}
	})
	b.Run("index under one lock", func(b *testing.B) {
		for b.Loop() {
			bed.upstreams[bed.pool.Names()[0]].index.Blocks()
		}
	})
	b.Run("whole", func(b *testing.B) {
		var data []byte
		for b.Loop() {
			data, _ = bed.Snapshot(bed.options.Sessions, bed.now).MarshalBinary()
		}
		b.ReportMetric(float64(len(data)), "bytes")
	})
	b.Run("restore", func(b *testing.B) {
		data, _ := bed.Snapshot(bed.options.Sessions, bed.now).MarshalBinary()
		for b.Loop() {
			var s Snapshot
			if err := s.UnmarshalBinary(data); err != nil {
				b.Fatal(err)
			}
			newBed(8).Restore(&s, bed.options.Sessions, bed.now)
		}
	})
}

func TestSnapshotNamesNobody(t *testing.T) {
	if data := string(sampleBytes()); !strings.Contains(data, "vllm-1:8000") {
		t.Errorf("the upstreams are not in %q", data)
	}
}
