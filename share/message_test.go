// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"runtime"
	"testing"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// example has everything that news may have.
func example() *fleet.News {
	return &fleet.News{
		Serial: 300,
		Loads: []fleet.Load{
			{Upstream: "vllm-0:8000", Load: picker.Load{Requests: 3, Prompts: 2, Waiting: 1, Prefill: 140_000}, Assigned: 1 << 40},
			{Upstream: "vllm-1:8000"},
		},
		Homes: []fleet.Home{
			{
				Session: 1 << 60, Upstream: "vllm-1:8000", Version: sessions.Version{Number: 3, Since: math.MaxInt64},
				Settled: true, Size: 70_000, Line: sessions.Line{Head: 9, Last: math.MaxUint64, Blocks: 270},
			},
			{Session: 5, Version: sessions.Version{Number: 2, Since: -1}},
			{Session: 6, Upstream: "vllm-2:8000", Version: sessions.Version{Number: 1}},
		},
		Blocks: []fleet.Blocks{
			{Upstream: "vllm-3:8000", Hashes: []uint64{1, 2, math.MaxUint64}},
			{Upstream: "vllm-0:8000", After: 7, Hashes: []uint64{}},
			{Upstream: "vllm-0:8000", After: 8, Hashes: []uint64{}, Gone: true},
		},
		Responses: []fleet.StoredResponse{{Key: 4, Upstream: "vllm-4:8000"}},
	}
}

func TestMessage(t *testing.T) {
	for name, news := range map[string]*fleet.News{
		"everything": example(),
		"nothing": {
			Serial: 1, Loads: []fleet.Load{}, Homes: []fleet.Home{}, Blocks: []fleet.Blocks{}, Responses: []fleet.StoredResponse{},
		},
	} {
		message := Encode([]byte("before"), 1<<63, news)[len("before"):]
		// what is there before goes
		got := fleet.News{
			Loads: make([]fleet.Load, 1, 9), Homes: make([]fleet.Home, 1), Blocks: make([]fleet.Blocks, 1), Responses: make([]fleet.StoredResponse, 1),
		}
		router, err := Decode(message, &got)
		if err != nil || router != 1<<63 || !reflect.DeepEqual(&got, news) {
			t.Errorf("%s: Decode(Encode()) = %v, %+v, %v, want %+v", name, router, got, err, news)
		}
		for n := range message {
			if _, err := Decode(message[:n], &got); err == nil {
				t.Errorf("%s: the first %d bytes of %d are read", name, n, len(message))
			}
		}
		for i := range message {
			message[i] ^= 0x10
			if _, err := Decode(message, &got); err == nil {
				t.Errorf("%s: a message with byte %d changed is read", name, i)
			}
			message[i] ^= 0x10
		}
	}
	if _, err := Decode(make([]byte, longest+1), new(fleet.News)); err == nil {
		t.Error("a message that is too long is read")
	}
}

// golden is the example as routers of this version have always told it.
const golden = "" +
	"6c6c6d6e657773010000000000000080ac02050b766c6c6d2d303a383030300b" +
	"766c6c6d2d313a383030300b766c6c6d2d323a383030300b766c6c6d2d333a38" +
	"3030300b766c6c6d2d343a383030300200030201e0c508808080808020010000" +
	"0000000300000000000000100503ffffffffffffff7ff0a20409000000000000" +
	"00ffffffffffffffff8e0205000000000000000002ffffffffffffffff000000" +
	"0000000000000000000000000000000600000000000000060100000000000000" +
	"0000000000000000000000000000000000000003060000000000000000030100" +
	"0000000000000200000000000000ffffffffffffffff00070000000000000000" +
	"0108000000000000000001040000000000000004b7c94ec5"

// A router understands those that are not updated yet.
func TestMessageStays(t *testing.T) {
	if message := hex.EncodeToString(Encode(nil, 1<<63, example())); message != golden {
		t.Errorf("a message is\n%s, want\n%s", message, golden)
	}
}

// signed makes the rest of a message one that only its parts can damage.
func signed(rest []byte) []byte {
	message := append([]byte(mark), rest...)
	return binary.LittleEndian.AppendUint32(message, crc32.Checksum(message, crc32.MakeTable(crc32.Castagnoli)))
}

// What is promised and not there takes no memory.
func TestDecodeTakesMemoryInProportion(t *testing.T) {
	promises := []byte{1, 2, 3, 4, 5, 6, 7, 8, 1, 0xff, 0xff, 0xff, 0xff, 0x0f}
	message := signed(append(promises, make([]byte, 4000)...))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := Decode(message, new(fleet.News)); err == nil {
			t.Fatal("it is read")
		}
	}
	runtime.ReadMemStats(&after)
	if taken := (after.TotalAlloc - before.TotalAlloc) / 100; taken > 64<<10 {
		t.Errorf("a message of 4 KB takes %d bytes", taken)
	}
}

// FuzzDecode reads what a medium may bring. Whatever is read is written as it
// was, and the fleet takes it.
func FuzzDecode(f *testing.F) {
	whole := Encode(nil, 7, example())
	f.Add(whole[len(mark) : len(whole)-4])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, rest []byte) {
		if _, err := Decode(rest, new(fleet.News)); err == nil && len(rest) < len(mark) {
			t.Fatal("a message without a mark is read")
		}
		var first, second fleet.News
		router, err := Decode(signed(rest), &first)
		if err != nil {
			return
		}
		again, err := Decode(Encode(nil, router, &first), &second)
		if err != nil || again != router || !reflect.DeepEqual(first, second) {
			t.Fatalf("%+v is read as %+v, %v", first, second, err)
		}
		fl := fleet.New(func() uint64 { return 1 })
		fl.Share(true)
		fl.Hear(router, &first, start)
		fl.Hear(router, &first, start)
		for _, u := range fl.View(start).Upstreams {
			if l := u.Peers; min(l.Requests, l.Prompts, l.Waiting, l.Prefill) < 0 {
				t.Fatalf("%s has %+v", u.Name, l)
			}
		}
	})
}

// BenchmarkMessage is a message of 20 turns on eight upstreams.
func BenchmarkMessage(b *testing.B) {
	news := new(fleet.News)
	for i := range 8 {
		news.Loads = append(news.Loads, fleet.Load{Upstream: fmt.Sprintf("10.0.0.%d:8000", i), Load: picker.Load{Requests: 9, Prompts: 9, Waiting: 1, Prefill: 9000}})
	}
	for i := range 20 {
		name := news.Loads[i%8].Upstream
		news.Homes = append(news.Homes, fleet.Home{Session: sessions.Key(i + 1), Upstream: name, Version: sessions.Version{Number: 1, Since: 1}, Size: 70_000})
		news.Blocks = append(news.Blocks, fleet.Blocks{Upstream: name, After: 7, Hashes: []uint64{1, 2, 3, 4}})
	}
	message := Encode(nil, 1, news)
	b.Run("encode", func(b *testing.B) {
		b.ReportMetric(float64(len(message)), "bytes")
		for b.Loop() {
			message = Encode(message[:0], 1, news)
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := Decode(message, news); err != nil {
				b.Fatal(err)
			}
		}
	})
}
