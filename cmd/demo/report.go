// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// progress shows how much of a step is done until the returned function is
// called: in place on a terminal, as one line elsewhere.
func progress(out io.Writer, label string, done *atomic.Int32, all int) (finish func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	if terminal(out) {
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					fmt.Fprintf(out, "\r%s: %d of %d", label, done.Load(), all)
				case <-stop:
					return
				}
			}
		})
	}
	return func() {
		close(stop)
		wg.Wait()
		if terminal(out) {
			fmt.Fprint(out, "\r")
		}
		fmt.Fprintf(out, "%s: %d of %d\n", label, done.Load(), all)
	}
}

func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// report prints the results side by side.
func report(out io.Writer, results []result) {
	fmt.Fprintf(out, "\nTime to first token in seconds of the simulated servers; tokens to prefill in thousands.\n\n")
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(label string, value func(result) string) {
		fmt.Fprint(table, label)
		for _, r := range results {
			fmt.Fprint(table, "\t", value(r))
		}
		fmt.Fprintln(table)
	}
	row("", func(r result) string { return r.policy })
	row("burst: requests per server", func(r result) string { return join(r.burstRequests) })
	row("burst: tokens per server", func(r result) string { return thousands(r.burstTokens) })
	row("burst: median", func(r result) string { return seconds(quantile(r.burst, 0.5)) })
	row("burst: 95 % within", func(r result) string { return seconds(quantile(r.burst, 0.95)) })
	row("burst: last", func(r result) string { return seconds(quantile(r.burst, 1)) })
	row("conversation: turns per server", func(r result) string { return join(r.sessionRequests) })
	row("conversation: tokens per server", func(r result) string { return thousands(r.sessionTokens) })
	row("conversation: first turn", func(r result) string { return seconds(r.session[0]) })
	row("conversation: slowest later turn", func(r result) string { return seconds(slowest(r.session[1:])) })
	// a write to the terminal that fails has nobody to be told
	_ = table.Flush()
}

func join[T any](values []T) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, " / ")
}

func thousands(tokens []int64) string {
	rounded := make([]int64, len(tokens))
	for i, n := range tokens {
		rounded[i] = (n + 500) / 1000
	}
	return join(rounded)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

// quantile of sorted times.
func quantile(times []time.Duration, q float64) time.Duration {
	return times[min(int(q*float64(len(times))), len(times)-1)]
}

func slowest(times []time.Duration) (most time.Duration) {
	for _, t := range times {
		most = max(most, t)
	}
	return most
}
