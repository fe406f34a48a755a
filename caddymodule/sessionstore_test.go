// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/sessions"
)

// memory is a storage for one value.
type memory struct {
	certmagic.Storage

	mu      sync.Mutex
	data    []byte
	err     error
	panics  bool
	hangs   bool
	stored  int
	loaded  int
	lastKey string
}

// Store implements certmagic.Storage.
func (m *memory) Store(ctx context.Context, key string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.panics {
		panic("storage")
	}
	if m.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if m.err != nil {
		return m.err
	}
	m.stored++
	m.data, m.lastKey = data, key
	return nil
}

// stores is how often something was stored.
func (m *memory) stores() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stored
}

// set changes how the storage fails.
func (m *memory) set(err error, panics bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err, m.panics = err, panics
}

// Load implements certmagic.Storage.
func (m *memory) Load(ctx context.Context, _ string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded++
	switch {
	case m.hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case m.err != nil:
		return nil, m.err
	case m.data == nil:
		return nil, fs.ErrNotExist
	}
	return m.data, nil
}

// storing is a fleet whose sessions are stored.
type storing struct {
	*memory
	fleet   *fleet.Fleet
	writers *storeWriters
	logger  *zap.Logger
	logs    *observer.ObservedLogs
}

func newStoring() *storing {
	core, logs := observer.New(zapcore.DebugLevel)
	return &storing{new(memory), fleet.New(func() uint64 { return 0 }), new(storeWriters), zap.New(core), logs}
}

// store is the session store of a policy in a configuration.
func (s *storing) store(life context.Context) *sessionStore {
	return &sessionStore{
		storage: s.memory, key: "k", bounds: fleet.DefaultOptions().Sessions, logger: s.logger,
		fleet: s.fleet, writers: s.writers, tasks: tasks{life: life},
	}
}

// turn lets a session have a turn.
func (s *storing) turn(key sessions.Key) {
	var p fleet.Placement
	o := fleet.DefaultOptions()
	s.fleet.Place(&p, &fleet.Request{Session: key, Tokens: 100, Prefills: true}, fleet.NewPool([]string{"a:1"}), []int{0}, &o, time.Now())
	p.End(fleet.CauseEnd, time.Now())
}

// kept is how many sessions the storage has.
func (s *storing) kept(t *testing.T) int {
	t.Helper()
	var snapshot fleet.Snapshot
	if err := snapshot.UnmarshalBinary(s.data); err != nil {
		t.Fatal(err)
	}
	return len(snapshot.Sessions)
}

// messages are the levels and messages that were logged.
func messages(logs *observer.ObservedLogs) (list []string) {
	for _, e := range logs.TakeAll() {
		list = append(list, e.Level.String()+" "+e.Message)
	}
	return list
}

// Every minute in which something has changed is written, and the end.
func TestStoreEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoring()
		store := s.store(t.Context())
		store.restore()
		store.start()
		store.start()
		step := func(when string, stored int) {
			t.Helper()
			synctest.Wait()
			if s.stores() != stored {
				t.Errorf("%s: stored %d times, want %d", when, s.stores(), stored)
			}
		}
		time.Sleep(3 * time.Minute)
		step("with nothing to store", 0)
		s.turn(1)
		step("at once", 0)
		time.Sleep(time.Minute)
		step("after a minute", 1)
		time.Sleep(10 * time.Minute)
		step("while nothing changes", 1)
		s.turn(2)
		store.stop()
		step("at the end", 2)
		if n := s.kept(t); n != 2 || s.lastKey != "k" {
			t.Errorf("%d sessions are stored at %s, want 2", n, s.lastKey)
		}
		s.turn(3)
		store.start()
		store.stop()
		time.Sleep(time.Hour)
		step("after the end", 2)
		if got := messages(s.logs); len(got) != 0 {
			t.Errorf("logged %q", got)
		}
	})
}

// A storage that fails is reported once, and once when it works again.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoring()
		store := s.store(t.Context())
		store.start()
		s.turn(1)
		s.set(errors.New("no space"), false)
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		s.set(nil, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.set(nil, false)
		time.Sleep(5 * time.Minute)
		store.stop()
		want := []string{"warn sessions are not stored", "error storing sessions panicked", "info sessions are stored again"}
		if got := messages(s.logs); !slices.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
		if s.stores() != 1 {
			t.Errorf("stored %d times, want once", s.stores())
		}
	})
}

// A storage that hangs holds neither the start nor the end up for long.
func TestStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoring()
		s.hangs = true
		store := s.store(t.Context())
		begin := time.Now()
		store.restore()
		if d := time.Since(begin); d != storeTimeout {
			t.Errorf("the start has taken %v, want %v", d, storeTimeout)
		}
		store.start()
		s.turn(1)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		begin = time.Now()
		store.stop()
		// the end of what is under way, and one more try
		if d := time.Since(begin); d != storeTimeout {
			t.Errorf("the end has taken %v, want %v", d, storeTimeout)
		}
		want := []string{"warn stored sessions are not restored", "warn sessions are not stored"}
		if got := messages(s.logs); !slices.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}

// Of several policies the one that has started last writes. A configuration that
// ends writes unless another one goes on with the fleet.
func TestStoreWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, endFirst := context.WithCancel(t.Context())
		second, endSecond := context.WithCancel(t.Context())
		s := newStoring()
		a, b, c := s.store(first), s.store(first), s.store(second)
		for _, store := range []*sessionStore{a, b, c} {
			store.restore()
		}
		if s.loaded != 1 {
			t.Errorf("read %d times, want once for a fleet", s.loaded)
		}
		a.start()
		b.start()
		s.turn(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.stores() != 1 {
			t.Errorf("stored %d times, want once for two policies", s.stores())
		}
		c.start()
		s.turn(2)
		b.flush()
		endFirst()
		a.stop()
		b.stop()
		if s.stores() != 1 {
			t.Errorf("stored %d times, want nothing of a configuration that another one follows", s.stores())
		}
		c.flush()
		if s.stores() != 2 {
			t.Errorf("stored %d times, want once more before the end", s.stores())
		}
		s.turn(3)
		endSecond()
		c.stop()
		if s.stores() != 3 || s.kept(t) != 3 {
			t.Errorf("stored %d times, %d sessions, want once more at the end, and 3", s.stores(), s.kept(t))
		}
	})
}

func TestStoreRestores(t *testing.T) {
	before := newStoring()
	store := before.store(t.Context())
	before.turn(1)
	before.turn(2)
	store.start()
	store.stop()

	for _, test := range []struct {
		name     string
		change   func(m *memory)
		sessions int
		logged   string
	}{
		{"what was stored", func(*memory) {}, 2, "info restored sessions"},
		{"nothing", func(m *memory) { m.data = nil }, 0, ""},
		{"nonsense", func(m *memory) { m.data = []byte("nonsense") }, 0, "warn stored sessions are not restored"},
		{"cut off", func(m *memory) { m.data = m.data[:len(m.data)-1] }, 0, "warn stored sessions are not restored"},
		{"an error", func(m *memory) { m.err = errors.New("no storage") }, 0, "warn stored sessions are not restored"},
	} {
		after := newStoring()
		after.data = before.data
		test.change(after.memory)
		store := after.store(t.Context())
		store.restore()
		store.restore()
		if n := after.fleet.View(time.Now()).Sessions; n != test.sessions {
			t.Errorf("%s: %d sessions, want %d", test.name, n, test.sessions)
		}
		if got := strings.Join(messages(after.logs), ", "); got != test.logged {
			t.Errorf("%s: logged %q, want %q", test.name, got, test.logged)
		}
		after.err = nil
		if test.sessions > 0 {
			store.start()
			store.stop()
			if after.stores() != 0 {
				t.Errorf("%s: what was just read is written", test.name)
			}
		}
	}
}

func TestStoreOfNothing(t *testing.T) {
	var store *sessionStore
	store.restore()
	store.start()
	store.flush()
	store.stop()
}

func TestStoreKey(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"default", "Default", "a/b", "a.b", "../..", "ab", " ab", "a b", "a_b", "\u00e4", "\u00f6"} {
		key := storeKey(name)
		parts := strings.Split(key, "/")
		if len(parts) != 3 || parts[0] != "llm_loadaware" || parts[1] == "" || parts[2] != "sessions" || strings.Contains(key, "..") {
			t.Errorf("key of %q = %q", name, key)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have the key %q", name, other, key)
		}
		seen[key] = name
	}
	if key := storeKey("default"); key != "llm_loadaware/default/sessions" {
		t.Errorf("key of the default fleet = %q", key)
	}
}
