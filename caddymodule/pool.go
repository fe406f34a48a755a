// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"math/rand/v2"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/fleet"
)

// fleets holds every fleet in use, by name. A fleet stays while a loaded policy
// or a request that one placed refers to it, so its counts, pins and indexes
// outlive the configurations that come and go.
var fleets = caddy.NewUsagePool()

// pooledFleet is the value in fleets. It is state only: nothing in it belongs
// to the configuration that happened to make it.
type pooledFleet struct {
	*fleet.Fleet
	scrapeOwners *scrapeOwners
	storeWriters *storeWriters
	live         *livePolicies
	sharing      *sharing
}

// Destruct implements caddy.Destructor. A fleet is memory and nothing else.
func (pooledFleet) Destruct() error { return nil }

// lease is one policy's reference to its fleet: one for the policy while it is
// provisioned, and one for each request that it placed, because Caddy cleans a
// policy up while streams of it are still running.
type lease struct {
	name string

	mu    sync.Mutex
	refs  int
	value pooledFleet
}

// acquire returns the fleet and counts one reference. A policy may place a
// request after its cleanup; if it was the last one, the fleet begins anew.
func (l *lease) acquire() *fleet.Fleet {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refs == 0 {
		// the constructor cannot fail
		value, _, _ := fleets.LoadOrNew(l.name, func() (caddy.Destructor, error) {
			return pooledFleet{fleet.New(rand.Uint64), newScrapeOwners(), new(storeWriters), new(livePolicies), new(sharing)}, nil
		})
		l.value = value.(pooledFleet)
	}
	l.refs++
	return l.value.Fleet
}

// pooled is the fleet with what its policies share. The caller has acquired it.
func (l *lease) pooled() pooledFleet {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value
}

// release takes one reference back.
func (l *lease) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refs--
	if l.refs == 0 {
		l.value = pooledFleet{}
		// the destructor cannot fail
		_, _ = fleets.Delete(l.name)
	}
}

// namedFleet is a fleet in use.
type namedFleet struct {
	name string
	pooledFleet
}

// findFleet returns the named fleet if it is in use.
func findFleet(name string) (found namedFleet, inUse bool) {
	for _, f := range listFleets() {
		if f.name == name {
			return f, true
		}
	}
	return namedFleet{}, false
}

// listFleets returns the fleets in use, in no order.
func listFleets() []namedFleet {
	var list []namedFleet
	fleets.Range(func(key, value any) bool {
		list = append(list, namedFleet{key.(string), value.(pooledFleet)})
		return true
	})
	return list
}
