// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
)

// print writes the tables.
func (r *results) print(out io.Writer) error {
	fmt.Fprintf(out, "\n%s/%s, %d cores, %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	if r.Page != nil {
		return r.printPage(out)
	}
	if err := r.printRequests(out); err != nil {
		return err
	}
	if r.RedisCommands > 0 {
		fmt.Fprintf(out, "\n%.3f commands of Redis for each request\n", r.RedisCommands)
	}
	if r.Memory == nil {
		return nil
	}
	fmt.Fprintln(out)
	return r.printMemory(out)
}

func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func (r *results) printRequests(out io.Writer) error {
	table := newTable(out)
	fmt.Fprintln(table, "request\tclients\tpolicy\trequests\tper second\tp50 µs\tp99 µs\tCPU µs\tallocated KB\tallocations\t")
	for _, c := range r.Requests {
		for side, f := range c.Sides {
			fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\t\n", c.Kind, c.Clients, r.Policies[side],
				f.Requests, f.Rate, f.P50, f.P99, f.CPU, f.Allocated/1e3, f.Mallocs)
		}
		a, b := c.Sides[0], c.Sides[1]
		fmt.Fprintf(table, "%s\t%d\t%s\t\t%.3f\t%+.0f\t%+.0f\t%+.0f, %.3f\t%+.1f\t%+.0f\t\n", c.Kind, c.Clients, "ratio or more",
			c.RateRatio, c.P50More, c.P99More, c.CPUMore, c.CPURatio, (b.Allocated-a.Allocated)/1e3, b.Mallocs-a.Mallocs)
	}
	return table.Flush()
}

func (r *results) printMemory(out io.Writer) error {
	fmt.Fprintf(out, "memory of Caddy: %d open streams, then a response and an upload of %d MB\n\n", r.Streams, r.Transfer/1e6)
	table := newTable(out)
	fmt.Fprintln(table, "policy\tresident MB\tresident KB/stream\theap KB/stream\tresponse: heap +MB\tupload: heap +MB\t")
	for side, m := range r.Memory {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n", r.Policies[side],
			m.RSS/1e6, m.StreamRSS/1e3, m.StreamHeap/1e3, m.Response/1e6, m.Upload/1e6)
	}
	a, b := r.Memory[0], r.Memory[1]
	fmt.Fprintf(table, "ratio\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", b.RSS/a.RSS, b.StreamRSS/a.StreamRSS,
		b.StreamHeap/a.StreamHeap, b.Response/a.Response, b.Upload/a.Upload)
	return table.Flush()
}
