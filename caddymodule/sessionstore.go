// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/sessions"
)

const (
	// storeEvery is how often the sessions are written: what a process that is
	// killed loses.
	storeEvery = time.Minute

	// storeTimeout is how long the storage may take. The start of a
	// configuration waits for it once, and the end of a process.
	storeTimeout = 5 * time.Second
)

// sessionStore writes what a fleet remembers of its sessions to Caddy's storage,
// for one policy, so that a restart of Caddy does not send them away from their
// caches. Of all the policies of a fleet the one that has started last writes.
// No request waits for it.
type sessionStore struct {
	tasks

	// read-only from the start on
	storage certmagic.Storage
	key     string
	bounds  sessions.Bounds
	logger  *zap.Logger
	fleet   *fleet.Fleet
	writers *storeWriters
}

// newSessionStore returns the store of the named fleet, nil where the
// configuration has no storage.
func newSessionStore(ctx caddy.Context, name string, b sessions.Bounds, logger *zap.Logger) *sessionStore {
	storage := ctx.Storage()
	if storage == nil {
		return nil
	}
	return &sessionStore{
		tasks:   tasks{life: ctx},
		storage: storage,
		key:     storeKey(name),
		bounds:  b,
		logger:  logger.With(zap.String("fleet", name)),
	}
}

// storeKey is where the sessions of the named fleet are in the storage. A name
// that is not fit for a key gets its hash, so that no two share one.
func storeKey(name string) string {
	safe := certmagic.StorageKeys.Safe(name)
	if safe != name {
		safe += "-" + shortSession(hashSession(name))
	}
	return path.Join("llm_loadaware", safe, "sessions")
}

// restore reads the sessions, once in the life of the fleet: a configuration that
// takes it over from another one finds them there. Whatever is wrong with what is
// stored, the fleet begins with nothing.
func (s *sessionStore) restore() {
	if s == nil {
		return
	}
	s.writers.restored.Do(func() {
		ctx, cancel := context.WithTimeout(s.life, storeTimeout)
		defer cancel()
		data, err := s.storage.Load(ctx, s.key)
		var snapshot fleet.Snapshot
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// an empty fleet need not be written
			data, _ = snapshot.MarshalBinary()
			s.writers.wrote(data)
			return
		case err == nil:
			err = snapshot.UnmarshalBinary(data)
		}
		if err != nil {
			s.logger.Warn("stored sessions are not restored", zap.String("key", s.key), zap.Error(err))
			return
		}
		s.writers.wrote(data)
		n := s.fleet.Restore(&snapshot, s.bounds, time.Now())
		s.logger.Info("restored sessions", zap.Int("sessions", n))
	})
}

// start begins to write. It is a no-op after the first call and after stop.
func (s *sessionStore) start() {
	if s == nil {
		return
	}
	s.begin(func(ctx context.Context) {
		s.writers.enter(s)
		s.running.Go(func() { s.run(ctx) })
	})
}

// run writes until ctx ends.
func (s *sessionStore) run(ctx context.Context) {
	tick := time.NewTicker(storeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.writers.owner() == s {
				s.write(ctx)
			}
		}
	}
}

// flush writes at once if no other configuration is going to. When Caddy ends, it does
// so before any module is cleaned up, for the storage is one too, and again in
// stop, for there were requests in flight.
func (s *sessionStore) flush() {
	if s != nil && s.writers.last(s) {
		s.write(context.Background())
	}
}

// stop ends the writing and waits for that.
func (s *sessionStore) stop() {
	if s != nil && s.end() {
		s.flush()
		s.writers.leave(s)
	}
}

// write stores the sessions if they have changed since they were stored last. It
// recovers from a panic, as what runs beside the requests must not end Caddy.
func (s *sessionStore) write(ctx context.Context) {
	defer logPanic(s.logger, "storing sessions")
	w := s.writers
	w.writing.Lock()
	defer w.writing.Unlock()
	// a snapshot can always be written
	data, _ := s.fleet.Snapshot(s.bounds, time.Now()).MarshalBinary()
	sum := xxhash.Sum64(data)
	if sum == w.written {
		return
	}
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := s.storage.Store(limited, s.key, data)
	switch {
	case err != nil && ctx.Err() != nil:
		// the configuration has ended, and whatever comes next writes again
	case err != nil && !w.failing:
		w.failing = true
		s.logger.Warn("sessions are not stored", zap.String("key", s.key), zap.Error(err))
	case err == nil:
		if w.failing {
			s.logger.Info("sessions are stored again")
		}
		w.failing, w.written = false, sum
	}
}
