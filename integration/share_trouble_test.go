// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/internal/redisserver"
)

// pressure is requests of some sessions through all sites, one after the other.
type pressure struct {
	t       *testing.T
	sites   []string
	stop    chan struct{}
	workers sync.WaitGroup

	mu   sync.Mutex
	took map[string][]time.Duration // by the request's site, since the last look
}

func newPressure(t *testing.T, sites ...string) *pressure {
	p := &pressure{t: t, sites: sites, stop: make(chan struct{}), took: map[string][]time.Duration{}}
	for i := range 4 {
		p.workers.Go(func() { p.work(i) })
	}
	return p
}

func (p *pressure) end() {
	close(p.stop)
	p.workers.Wait()
}

// work lets a session have turns.
func (p *pressure) work(session int) {
	text := words(fmt.Sprint("under pressure ", session), 500)
	for turn := 0; ; turn++ {
		select {
		case <-p.stop:
			return
		default:
		}
		site := p.sites[turn%len(p.sites)]
		begun := time.Now()
		res, err := send(p.t.Context(), site, chatPath, conversation(text, "an answer", fmt.Sprint(turn)), "X-Session-ID", fmt.Sprint(session))
		if err != nil {
			p.t.Errorf("a request failed: %v", err)
			return
		}
		if rest(p.t, res); res.StatusCode != http.StatusOK {
			p.t.Errorf("a request was answered with status %d", res.StatusCode)
		}
		res.Body.Close()
		p.mu.Lock()
		p.took[site] = append(p.took[site], time.Since(begun))
		p.mu.Unlock()
	}
}

// times are how long half of some requests have taken at most, and all but one in a
// hundred.
type times struct{ p50, p99 time.Duration }

// times waits until n more requests have ended at each site, and returns how long
// they have taken at the first site and at the last.
func (p *pressure) times(n int) (first, last times) {
	p.t.Helper()
	p.mu.Lock()
	clear(p.took)
	p.mu.Unlock()
	eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, site := range p.sites {
			if len(p.took[site]) < n {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("%d requests do not end at each site", n) })
	p.mu.Lock()
	defer p.mu.Unlock()
	at := func(site string) times {
		took := slices.Sorted(slices.Values(p.took[site]))
		return times{took[len(took)/2], took[len(took)*99/100]}
	}
	return at(p.sites[0]), at(p.sites[len(p.sites)-1])
}

// stricken is a Redis that gets into trouble, and the way to it.
type stricken struct {
	t      *testing.T // the trouble's
	whole  *testing.T
	server *redisserver.Server
	link   *slowLink
}

func (r *stricken) do(commands ...string) {
	r.t.Helper()
	if _, err := r.server.Do(commands...); err != nil {
		r.t.Error(err)
	}
}

func (r *stricken) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.server.Process.Signal(s); err != nil {
		r.t.Error(err)
	}
}

// redisTroubles are what may become of Redis, and how that ends.
var redisTroubles = []struct {
	name       string
	begin, end func(*stricken)
}{
	{"paused", func(r *stricken) { r.signal(syscall.SIGSTOP) }, func(r *stricken) { r.signal(syscall.SIGCONT) }},
	{"killed and started empty", func(r *stricken) {
		if err := r.server.Stop(); err != nil {
			r.t.Error(err)
		}
	}, func(r *stricken) { r.server = startRedis(r.whole, r.server.Addr) }},
	{"answering after a second", func(r *stricken) { r.link.delay.Store(int64(time.Second)) }, func(r *stricken) { r.link.delay.Store(0) }},
	{"out of reach", func(r *stricken) { r.link.held.Store(true) }, func(r *stricken) { r.link.held.Store(false) }},
	{"full", func(r *stricken) { r.do("CONFIG SET maxmemory 1") }, func(r *stricken) { r.do("CONFIG SET maxmemory 0") }},
	{
		"asking for another password",
		func(r *stricken) { r.do("CONFIG SET requirepass other", "CLIENT KILL TYPE normal SKIPME yes") },
		func(r *stricken) { r.do("AUTH other", `CONFIG SET requirepass ""`) },
	},
}

// Whatever becomes of Redis, no request fails or waits for it, each Caddy says once
// that it is so and once that it is over, and then they place as one again. A Caddy
// beside them, which shares nothing, has its requests at the same time: what they
// take longer than those is the sharing's.
func TestRedisInTrouble(t *testing.T) {
	r := &stricken{t: t, whole: t, server: startRedis(t, "")}
	r.link = newSlowLink(t, r.server.Addr)
	upstreams := newUpstreams(t, 3, answerAtOnce)
	c := &crew{t: t}
	for i := range 2 {
		s := newServer(t)
		s.log = "file " + filepath.Join(t.TempDir(), fmt.Sprint(i, ".log"))
		// a machine under load may keep a sound Redis from answering for 20 ms
		c.add(s, fmt.Sprintf(sharedSite, addresses(upstreams), r.link.addr, "timeout 300ms"))
	}
	c.meet()
	beside := newServer(t)
	beside.spawn(t, fmt.Sprintf(lasting, addresses(upstreams), "metrics off"))
	for _, trouble := range redisTroubles {
		t.Run(trouble.name, func(t *testing.T) {
			c.t, r.t = t, t
			p := newPressure(t, append(slices.Clone(c.sites), beside.sites[0])...)
			trouble.begin(r)
			c.part()
			took, without := p.times(300)
			trouble.end(r)
			over := time.Now()
			c.meet()
			recovered := time.Since(over)
			p.end()
			t.Logf("requests took %v, without sharing %v; together again after %s", took, without, recovered)
			// if requests waited for Redis, half of them would take the timeout longer; the
			// p99 is the machine's as well
			if added := took.p50 - without.p50; added > 100*time.Millisecond {
				t.Errorf("requests took %v, and %v without sharing", took, without)
			}
			if recovered > 5*time.Second {
				t.Errorf("the Caddys were together again after %s", recovered)
			}
			got := burst(t, c.sites, upstreams, repeated(128, func(i int) string { return chat(words(fmt.Sprint(trouble.name, i), 32_000)) }))
			if got[2] > 50 {
				t.Errorf("a burst of 128 then went %v, want at most 50 on each upstream", got)
			}
			for _, u := range upstreams {
				u.setAnswer(answerAtOnce)
			}
		})
	}
	for _, s := range c.servers {
		log := strings.TrimPrefix(s.log, "file ")
		eventually(t, func() bool { return !checkSaid(t, readFile(t, log)) }, func() string { return "the last trouble is not over" })
	}
}

// checkSaid holds a log to one line for each change: nothing is said twice in a row,
// and each trouble is. Where the machine has no time for Redis there are more of them.
// It reports whether the last one lasts.
func checkSaid(t *testing.T, log string) (failing bool) {
	t.Helper()
	troubles := 0
	for line := range strings.Lines(log) {
		fails := strings.Contains(line, "fleet is not shared")
		if !fails && !strings.Contains(line, "fleet is shared again") {
			continue
		}
		if fails == failing {
			t.Errorf("was said again without a change in between: %s", line)
		}
		failing = fails
		if fails {
			troubles++
		}
	}
	if troubles < len(redisTroubles) {
		t.Errorf("%d troubles were said of %d", troubles, len(redisTroubles))
	}
	return failing
}
