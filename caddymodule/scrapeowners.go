// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"slices"
	"sync"
	"sync/atomic"
)

// scrapeOwners says which policy scrapes which upstream of a fleet. Several
// policies claim the same one when sites share a fleet, and while a new
// configuration takes over from an old one. The policy that started last owns
// it; when that gives its claim back, the one before does again.
//
// It knows nothing of the policies but their claims.
type scrapeOwners struct {
	mu       sync.Mutex
	lastTurn uint64
	byName   map[string]*scrapeOwner
}

// scrapeOwner is who claims one upstream, in the order of their starts.
type scrapeOwner struct {
	claims []*scrapeClaim

	// turn is another number each time that the owner changes
	turn uint64
}

// scrapeClaim is a policy's wish to scrape an upstream.
type scrapeClaim struct {
	owners  *scrapeOwners
	name    string
	started uint64
}

// starts counts the scrapers that were started in this process.
var starts atomic.Uint64

func newScrapeOwners() *scrapeOwners {
	return &scrapeOwners{byName: map[string]*scrapeOwner{}}
}

// claim enters a claim on the named upstream. started is the number of the
// scraper's start. Each claim needs one release.
func (o *scrapeOwners) claim(name string, started uint64) *scrapeClaim {
	c := &scrapeClaim{o, name, started}
	o.mu.Lock()
	defer o.mu.Unlock()
	owner := o.byName[name]
	if owner == nil {
		owner = new(scrapeOwner)
		o.byName[name] = owner
	}
	at := len(owner.claims)
	for at > 0 && owner.claims[at-1].started > started {
		at--
	}
	if at == len(owner.claims) {
		owner.turn = o.nextTurn()
	}
	owner.claims = slices.Insert(owner.claims, at, c)
	return c
}

// nextTurn returns a number that no turn has had. The caller holds the lock.
func (o *scrapeOwners) nextTurn() uint64 {
	o.lastTurn++
	return o.lastTurn
}

// release takes the claim back.
func (c *scrapeClaim) release() {
	c.owners.mu.Lock()
	defer c.owners.mu.Unlock()
	owner := c.owners.byName[c.name]
	at := slices.Index(owner.claims, c)
	if at == len(owner.claims)-1 {
		owner.turn = c.owners.nextTurn()
	}
	owner.claims = slices.Delete(owner.claims, at, at+1)
	if len(owner.claims) == 0 {
		delete(c.owners.byName, c.name)
	}
}

// turn returns the current turn of the upstream, and whether it is the claim's.
func (c *scrapeClaim) turn() (turn uint64, own bool) {
	c.owners.mu.Lock()
	defer c.owners.mu.Unlock()
	owner := c.owners.byName[c.name]
	return owner.turn, owner.claims[len(owner.claims)-1] == c
}

// deliver calls f if the upstream's turn is still the same, and no turn ends
// while f runs. A page that was asked for in an earlier turn may be older than
// one that was delivered since: its counters would seem to run backwards, as
// those of an engine do that was started anew.
func (c *scrapeClaim) deliver(turn uint64, f func()) {
	c.owners.mu.Lock()
	defer c.owners.mu.Unlock()
	if owner := c.owners.byName[c.name]; owner != nil && owner.turn == turn {
		f()
	}
}
