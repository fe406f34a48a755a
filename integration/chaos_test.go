// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

var chaosFor = flag.Duration("chaos", 0, "how long TestChaos goes on; 0 is one round")

const (
	chaosWorkers = 24
	chaosPhase   = 40 // requests that end before a phase does
	chaosRest    = 15 // requests that end before the next server is in trouble

	// chaosPhase500 is chaosPhase where a server says 500. The requests that
	// meet it are about as many in a phase ten times as long, so in a long one
	// they are few.
	chaosPhase500 = 160
)

// excuse is a way for a request to fail that no proxy can help.
type excuse int

const (
	noExcuse excuse = iota
	breaks          // the response breaks after its header
	hangs           // the request is taken, and nothing comes
	says500         // the engine has failed, which production passes on
	excuses
)

// trouble is what happens to one server while the others are sound.
type trouble struct {
	name       string
	excuse     excuse
	begin, end func(*testing.T, *chaosHost)
}

// chaosHost is a server that gets into trouble.
type chaosHost struct {
	*vllmsim.Host

	// last is the phase in which it last had troubles with that excuse
	last [excuses]atomic.Int64
}

var troubles = []trouble{
	{"killed", breaks, func(_ *testing.T, h *chaosHost) { h.Stop() }, func(t *testing.T, h *chaosHost) {
		h.Server().Restart()
		// a connection of the test may have the port for a moment
		var err error
		eventually(t, func() bool { err = h.Start(); return err == nil }, func() string { return err.Error() })
	}},
	{"restarted", breaks, func(_ *testing.T, h *chaosHost) { h.Restart() }, func(*testing.T, *chaosHost) {}},
	faulty("stalled", hangs, vllmsim.Fault{Stall: true}),
	faulty("silent after headers", hangs, vllmsim.Fault{Request: vllmsim.FaultHangAfterHeaders}),
	faulty("slow", noExcuse, vllmsim.Fault{Slow: 10}),
	faulty("503", noExcuse, vllmsim.Fault{Request: vllmsim.FaultStatus, Status: http.StatusServiceUnavailable, DelayMillis: 1}),
	faulty("500", says500, vllmsim.Fault{Request: vllmsim.FaultStatus, Status: http.StatusInternalServerError, DelayMillis: 1}),
	faulty("reset", breaks, vllmsim.Fault{Request: vllmsim.FaultResetMidStream, AfterEvents: 3}),
}

// faulty is the trouble of a fault that is set and cleared.
func faulty(name string, e excuse, f vllmsim.Fault) trouble {
	return trouble{
		name, e,
		func(_ *testing.T, h *chaosHost) { h.Server().SetFault(f) },
		func(_ *testing.T, h *chaosHost) { h.Server().SetFault(vllmsim.Fault{}) },
	}
}

// chaos is a crowd of agents, and the servers they talk to.
type chaos struct {
	t      *testing.T
	s      *server
	hosts  []*chaosHost
	config string

	phase    atomic.Int64
	reloaded atomic.Int64 // the phase of the last reload
	ids      atomic.Int64
	stop     chan struct{}
	workers  sync.WaitGroup

	mu       sync.Mutex
	outcomes [outcomes]int
	failures int
}

func newChaos(t *testing.T) *chaos {
	c := &chaos{t: t, stop: make(chan struct{})}
	var list []string
	for i := range 3 {
		host, err := vllmsim.NewHost(vllmsim.NewServer(vllmsim.ServerConfig{
			Models: []string{"m"}, Speed: 10, OutputTokens: 12,
			Engine: vllmsim.Config{Seed: uint64(i), KVTokens: 100_000},
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(host.Close)
		c.hosts = append(c.hosts, &chaosHost{Host: host})
		list = append(list, host.Addr())
	}
	c.config = productionConfig(t, strings.Join(list, " "))
	c.s = start(t, c.config)
	return c
}

// await waits until n more requests have ended, and gaveUp more of them because
// a client gave up.
func (c *chaos) await(when string, n, gaveUp int) {
	c.t.Helper()
	before := c.counted()
	var now [outcomes]int
	eventually(c.t, func() bool {
		now = c.counted()
		return total(now[:])-total(before[:]) >= n && now[leftSilence]-before[leftSilence] >= gaveUp
	}, func() string { return fmt.Sprintf("%s: requests do not end: %v, before %v", when, now, before) })
}

// suffer lets a server have its trouble while requests go on, with or without a
// reload in the middle.
func (c *chaos) suffer(h *chaosHost, trouble trouble, reload bool) {
	c.t.Helper()
	phase := c.phase.Add(1)
	h.last[trouble.excuse].Store(phase)
	trouble.begin(c.t, h)
	if reload {
		c.reloaded.Store(phase)
		if err := c.s.reload(c.config, "Cache-Control", "must-revalidate"); err != nil {
			c.t.Error(err)
		}
	}
	// a hang that ends before anybody has noticed is none
	gaveUp := 0
	if trouble.excuse == hangs {
		gaveUp = 1
	}
	n := chaosPhase
	if trouble.excuse == says500 {
		n = chaosPhase500
	}
	c.await(trouble.name, n, gaveUp)
	trouble.end(c.t, h)
	c.phase.Add(1)
	c.await("after "+trouble.name, chaosRest, 0)
}

// quiet waits for the end of everything that requests have left, and returns
// how many goroutines there are.
func (c *chaos) quiet() int {
	c.t.Helper()
	c.s.settled()
	adminClient.CloseIdleConnections()
	for _, h := range c.hosts {
		h.Restart() // resets the connections that Caddy keeps
	}
	return runtime.NumGoroutine()
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// work lets the agents loose until end.
func (c *chaos) work() (end func()) {
	c.stop = make(chan struct{})
	for i := range chaosWorkers {
		c.workers.Go(func() { c.agent(i) })
	}
	end = sync.OnceFunc(func() {
		close(c.stop)
		c.workers.Wait()
	})
	c.t.Cleanup(end)
	return end
}

// Whatever happens to one server at a time, every request ends, none fails that
// a sound server could have answered, and nothing is left. Phases are as long
// as it takes so many requests to end, however fast the machine is.
func TestChaos(t *testing.T) {
	c := newChaos(t)
	end := c.work()
	c.await("before", 4*chaosWorkers, 0)
	end()
	goroutines, bytes := c.quiet(), heap()

	end = c.work()
	begun := time.Now()
	rounds, n := 0, 0
	for rounds == 0 || time.Since(begun) < *chaosFor {
		for _, trouble := range troubles {
			for _, h := range c.hosts {
				// coprime to the servers and the troubles, so that each pair gets its reload
				c.suffer(h, trouble, n%5 == 0)
				n++
			}
		}
		rounds++
	}
	end()
	c.check(rounds)

	const tolerance = 10
	eventually(t, func() bool { return c.quiet() <= goroutines+tolerance }, func() string {
		stacks := make([]byte, 1<<20)
		return fmt.Sprintf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), goroutines, stacks[:runtime.Stack(stacks, true)])
	})
	// the simulated servers keep their last requests, and the fleet its sessions
	// and prompts: all of it is bounded, for long runs too
	const growth = 96 << 20
	if grown := heap() - bytes; grown > growth {
		t.Errorf("the heap has grown by %d bytes in %d rounds, want no more than %d", grown, rounds, growth)
	}
}
