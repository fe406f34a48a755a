// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/caddy-llm/loadaware/internal/bed"
)

// loadAware is the policy that comes with a handler.
const loadAware = "llm_loadaware"

// caddyArgument is the first argument of the process that runs Caddy.
const caddyArgument = "run-caddy"

func isCaddy(args []string) bool { return len(args) > 1 && args[1] == caddyArgument }

// What the process that runs Caddy can be asked, a line each. It answers with a
// usage as a line of JSON, and ends when nobody can ask any more.
const (
	askUsage   = "usage"   // what was used so far
	askCollect = "collect" // the same after a garbage collection
	askTrim    = "trim"    // and after unused memory was given back
	askWatch   = "watch"   // the next answer has the heap's peak from here on
)

// usage is what Caddy has used.
type usage struct {
	CPU       time.Duration // of the whole process, since its start
	Allocated uint64        // bytes, since its start
	Mallocs   uint64        // since its start
	Objects   uint64        // bytes on the heap
	Heap      uint64        // the same and goroutine stacks
	Peak      uint64        // bytes of objects, at most since askWatch
	RSS       uint64        // resident bytes, 0 where the system does not tell
}

// serveCaddy runs Caddy: arguments are a file for its CPU profile or "", two
// policies and the upstreams. Its first line of output is the site's address.
func serveCaddy(args []string) (err error) {
	profile, policies, upstreams := args[0], args[1:3], args[3:]
	b, err := bed.Start(nil, "", func(site string, _ []string) string {
		_, port, _ := strings.Cut(site, ":")
		var file strings.Builder
		for side, policy := range policies {
			fmt.Fprintf(&file, "http://%s:%s {\n", hostOf(side), port)
			name, option, _ := strings.Cut(policy, " ")
			if name == loadAware {
				fmt.Fprintln(&file, loadAware)
			}
			if option != "" {
				// what one side shares is none of the other's
				policy = fmt.Sprintf("%s {\nfleet side%d\n%s\n}", name, side, option)
			}
			fmt.Fprintf(&file, "reverse_proxy %s {\nlb_policy %s\n}\n}\n", strings.Join(upstreams, " "), policy)
		}
		fmt.Fprintf(&file, "http://%s:%s {\nllm_loadaware_status {\nmax_viewers %d\n}\n}\n", pageHost, port, maxViewers)
		return file.String()
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if profile != "" {
		out, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Println(b.Site)
	return answerQuestions()
}

// hostOf is the host name of a side's site.
func hostOf(side int) string { return fmt.Sprintf("side%d.localhost", side) }

// answerQuestions answers on the standard output until the input ends.
func answerQuestions() error {
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	stopWatching := func() uint64 { return 0 }
	for lines.Scan() {
		peak := stopWatching()
		stopWatching = func() uint64 { return 0 }
		switch lines.Text() {
		case askCollect:
			runtime.GC()
		case askTrim:
			debug.FreeOSMemory()
		case askWatch:
			stopWatching = watchHeap()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if err := answers.Encode(usage{
			CPU: cpuTime(), Allocated: m.TotalAlloc, Mallocs: m.Mallocs,
			Objects: m.HeapAlloc, Heap: m.HeapAlloc + m.StackInuse, Peak: peak, RSS: residentBytes(),
		}); err != nil {
			return err
		}
	}
	return lines.Err()
}

// watchHeap looks at the size of the heap every other millisecond until the
// function that it returns is called, which returns the peak.
func watchHeap() (stop func() uint64) {
	done, result := make(chan struct{}), make(chan uint64)
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		var peak uint64
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-done:
				result <- peak
				return
			}
		}
	}()
	return func() uint64 {
		close(done)
		return <-result
	}
}

// residentBytes is the resident memory of this process, where Linux tells.
func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kilobytes uint64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}
