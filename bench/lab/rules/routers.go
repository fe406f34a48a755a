// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/share"
)

// transport is how long a message is under way from one router to the others.
const transport = time.Millisecond

// Shared is what routers share with one another. The zero value is nothing.
type Shared struct {
	Load, Sessions, Blocks bool
}

// ParseShared returns what is in a list that is separated by commas, in which
// "everything" and "nothing" stand for themselves.
func ParseShared(list string) (s Shared, err error) {
	for name := range strings.SplitSeq(list, ",") {
		switch name {
		case "nothing":
		case "everything":
			s = Shared{true, true, true}
		case "load":
			s.Load = true
		case "sessions":
			s.Sessions = true
		case "blocks":
			s.Blocks = true
		default:
			return s, fmt.Errorf("unrecognized share '%s': it is none of load, sessions, blocks, everything, nothing", name)
		}
	}
	return s, nil
}

func (s Shared) String() string {
	var names []string
	for name, on := range map[string]bool{"load": s.Load, "sessions": s.Sessions, "blocks": s.Blocks} {
		if on {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return "nothing"
	case 3:
		return "everything"
	}
	return strings.Join(names, ",")
}

// keep drops from news what is not shared.
func (s Shared) keep(n *fleet.News) {
	if !s.Load {
		n.Loads = nil
	}
	if !s.Sessions {
		n.Homes, n.Responses = nil, nil
	}
	if !s.Blocks {
		n.Blocks = nil
	}
}

// routers are several routers with the shipped rule in front of the same engines.
// Each request comes to one of them by chance.
type routers struct {
	list   []*router
	random *rand.Rand
	shared Shared
	at     func(at time.Duration, do func())
}

// router is one of them, with when it tells next, 0 while it has nothing to tell.
type router struct {
	*loadAware
	name uint64
	tell time.Duration
	news fleet.News
}

func newRouters(c Config) Rule {
	r := &routers{random: c.Random, shared: c.Shared}
	for i := range c.Routers {
		p := &router{loadAware: newOneLoadAware(c), name: uint64(i + 1)}
		p.fleet.Share(true)
		r.list = append(r.list, p)
	}
	return r
}

// Schedule implements Scheduled.
func (r *routers) Schedule(at func(at time.Duration, do func())) {
	r.at = at
	if r.shared == (Shared{}) {
		return
	}
	for _, p := range r.list {
		r.heartbeat(p, time.Duration(r.random.Int64N(int64(share.Heartbeat))))
	}
}

// heartbeat lets p tell what it holds each second.
func (r *routers) heartbeat(p *router, at time.Duration) {
	r.at(at, func() {
		r.tell(p, at, true)
		r.heartbeat(p, at+share.Heartbeat)
	})
}

// touched lets p look for something to tell as soon as a link would, at a time of
// its own.
func (r *routers) touched(p *router, now time.Duration) {
	if r.shared == (Shared{}) {
		return
	}
	every := share.Unhurried
	if p.fleet.Pressing() {
		every = share.Every
	}
	phase := every * time.Duration(p.name) / time.Duration(len(r.list)+1)
	at := (now - phase).Truncate(every) + every + phase
	if p.tell != 0 && p.tell <= at {
		return
	}
	p.tell = at
	r.at(at, func() {
		if p.tell == at {
			r.tell(p, at, false)
			p.tell = 0
		}
	})
}

// tell sends what is new at p to the others.
func (r *routers) tell(p *router, now time.Duration, always bool) {
	if !p.fleet.News(&p.news, clock(now)) && !always {
		return
	}
	r.shared.keep(&p.news)
	message := share.Encode(nil, p.name, &p.news)
	r.at(now+transport, func() {
		var news fleet.News
		if _, err := share.Decode(message, &news); err != nil {
			panic(err)
		}
		for _, other := range r.list {
			if other != p {
				other.fleet.Hear(p.name, &news, clock(now+transport))
			}
		}
	})
}

func (r *routers) Place(q *Request, now time.Duration, v View) int {
	q.router = r.list[r.random.IntN(len(r.list))]
	defer r.touched(q.router, now)
	return q.router.Place(q, now, v)
}

func (r *routers) FirstOutput(q *Request, now time.Duration) {
	q.router.FirstOutput(q, now)
	r.touched(q.router, now)
}

// Progress implements Watcher.
func (r *routers) Progress(q *Request, now time.Duration) { q.router.Progress(q, now) }

func (r *routers) End(q *Request, now time.Duration, o Outcome) {
	q.router.End(q, now, o)
	r.touched(q.router, now)
}

// Interface guards
var (
	_ Scheduled = (*routers)(nil)
	_ Watcher   = (*routers)(nil)
)
