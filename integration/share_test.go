// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/internal/redisserver"
	"github.com/caddy-llm/loadaware/internal/redisserver/redistest"
)

// sharedSite is a site of a fleet that is shared, and tells where and why it has
// placed a request.
const sharedSite = `
{site0} {
	llm_loadaware
	header >X-Upstream {http.llm_loadaware.upstream}
	header >X-Reason {http.llm_loadaware.reason}
	reverse_proxy %s {
		lb_policy llm_loadaware {
			metrics off
			share redis %s {
				%s
			}
		}
	}
}
`

// startRedis runs Redis until the end of the test. addr is where, "" wherever
// there is a free port.
func startRedis(t testing.TB, addr string, options ...string) *redisserver.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("runs Redis and Caddy in processes of their own")
	}
	return redistest.Start(t, addr, options...)
}

// crew is some Caddys in processes of their own, with one fleet.
type crew struct {
	t         *testing.T
	servers   []*server
	processes []*process
	sites     []string
}

// newCrew starts n Caddys, and waits until they have heard of each other. redis is
// the address to share over, with options if there are any.
func newCrew(t *testing.T, n int, upstreams, redis, options string) *crew {
	t.Helper()
	c := &crew{t: t}
	for range n {
		c.add(newServer(t), fmt.Sprintf(sharedSite, upstreams, redis, options))
	}
	c.meet()
	return c
}

// add starts a Caddy with a Caddyfile.
func (c *crew) add(s *server, caddyfile string) {
	c.t.Helper()
	c.servers = append(c.servers, s)
	c.processes = append(c.processes, s.spawn(c.t, caddyfile))
	c.sites = append(c.sites, s.sites[0])
}

// part waits until no Caddy is connected.
func (c *crew) part() {
	c.t.Helper()
	for _, s := range c.servers {
		eventually(c.t, func() bool { return !s.fleet().Share.Connected }, func() string { return s.sites[0] + " is still connected" })
	}
}

// meet waits until every Caddy hears all others.
func (c *crew) meet() {
	c.t.Helper()
	for _, s := range c.servers {
		var last *shareStatus
		eventually(c.t, func() bool {
			last = s.fleet().Share
			return last != nil && last.Connected && last.Peers == len(c.servers)-1
		}, func() string { return fmt.Sprintf("%s shares %+v, want %d peers", s.sites[0], last, len(c.servers)-1) })
	}
}

// A burst that comes through several Caddys at once is placed as one would: what
// the others have placed is known some milliseconds later.
func TestBurstOverSeveralCaddys(t *testing.T) {
	for _, n := range []int{2, 4} {
		redis := startRedis(t, "")
		upstreams := newUpstreams(t, 3, answerAtOnce)
		c := newCrew(t, n, addresses(upstreams), redis.Addr, "")
		bodies := repeated(128, func(i int) string { return chat(words(fmt.Sprint("cold ", i), 32_000)) })
		got := burst(t, c.sites, upstreams, bodies)
		t.Logf("%d Caddys: %v", n, got)
		if got[2] > 50 {
			t.Errorf("a burst of 128 through %d Caddys went %v, want at most 50 on each upstream", n, got)
		}
	}
}

// turns lets sessions have turns through one site after the other, all of them one
// before any the next, and returns how many turns were not at the upstream of the
// one before.
func turns(t *testing.T, sites []string, sessions, turns int) int {
	t.Helper()
	homes := make([]string, sessions)
	texts := make([][]string, sessions)
	const atOnce = 8
	var moves [atOnce]int
	for turn := range turns {
		var wg sync.WaitGroup
		for worker := range atOnce {
			wg.Go(func() {
				for i := worker; i < sessions; i += atOnce {
					texts[i] = append(texts[i], words(fmt.Sprint("session ", i, " turn ", turn), 400))
					res, err := send(t.Context(), sites[(i+turn)%len(sites)], chatPath, conversation(texts[i]...), "X-Session-ID", fmt.Sprint(i))
					if err != nil {
						t.Error(err)
						return
					}
					rest(t, res)
					res.Body.Close()
					if at := res.Header.Get("X-Upstream"); at != homes[i] {
						moves[worker]++
						homes[i] = at
					}
					texts[i] = append(texts[i], "an answer")
				}
			})
		}
		wg.Wait()
	}
	// each has begun somewhere
	return total(moves[:]) - sessions
}

// Sessions whose turns come through one Caddy and the other stay where one would
// have kept them.
func TestSessionsOverSeveralCaddys(t *testing.T) {
	const sessions, each = 1000, 3
	redis := startRedis(t, "")
	alone := 0
	for _, n := range []int{1, 2, 4} {
		upstreams := newUpstreams(t, 3, answerAtOnce)
		c := newCrew(t, n, addresses(upstreams), redis.Addr, fmt.Sprint("prefix test", n, ":"))
		moves := turns(t, c.sites, sessions, each)
		t.Logf("%d Caddys: %d moves", n, moves)
		if n == 1 {
			alone = moves
		}
		if more := moves - alone; more*100 >= sessions*(each-1) {
			t.Errorf("%d turns of %d moved with %d Caddys and %d with one, want less than 1 %% more", moves, sessions*(each-1), n, alone)
		}
	}
}

// What a Caddy that is killed has held is gone from the others when its last word
// is three seconds old, and its sessions keep their homes.
func TestCaddyIsKilled(t *testing.T) {
	const lifetime = 3 * time.Second
	redis := startRedis(t, "")
	upstreams := newUpstreams(t, 3, answerAtOnce)
	c := newCrew(t, 2, addresses(upstreams), redis.Addr, "")
	homes := map[int]string{}
	for session := range 30 {
		res := begin(t, c.sites[0], chatPath, chat(words(fmt.Sprint("session ", session), 2000)), "X-Session-ID", fmt.Sprint(session))
		rest(t, res)
		homes[session] = res.Header.Get("X-Upstream")
	}
	held := newStage()
	for _, u := range upstreams {
		u.setAnswer(held.answer)
	}
	for i := range 30 {
		go func() {
			if res, err := send(t.Context(), c.sites[0], chatPath, chat(words(fmt.Sprint("held ", i), 8000))); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}()
	}
	elsewhere := func() (requests int) {
		for _, u := range c.servers[1].fleet().Upstreams {
			requests += u.OfPeers
		}
		return requests
	}
	eventually(t, func() bool { return elsewhere() == 30 }, func() string {
		return fmt.Sprintf("the other Caddy knows of %d requests, want 30", elsewhere())
	})
	c.processes[0].end(syscall.SIGKILL)
	killed := time.Now()
	var took time.Duration
	eventually(t, func() bool { asked := time.Since(killed); took = asked; return elsewhere() == 0 }, func() string {
		return fmt.Sprintf("the other Caddy still knows of %d requests", elsewhere())
	})
	t.Logf("gone after %s", took)
	// the last word may have come up to a moment after the kill, as it was on its way
	if took > lifetime+500*time.Millisecond {
		t.Errorf("what the killed Caddy held was gone after %s, want %s", took, lifetime)
	}
	for _, u := range upstreams {
		u.setAnswer(answerAtOnce)
	}
	for session, home := range homes {
		body := conversation(words(fmt.Sprint("session ", session), 2000), "an answer", "another question")
		res := begin(t, c.sites[1], chatPath, body, "X-Session-ID", fmt.Sprint(session))
		rest(t, res)
		if got := res.Header.Get("X-Upstream"); got != home {
			t.Errorf("session %d was placed on %s, want its home %s", session, got, home)
		}
	}
}
