// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Lab compares placement rules on modelled engines, in virtual time.
//
//	go run ./bench/lab -workload agents -rule all
//	go run ./bench/lab -workload agents -rule all -capacity
//	go run ./bench/lab -workload documents -rule load-aware,least-conn -rates 1,2,3 -plot out.svg
//	go run ./bench/lab -trace sessions.jsonl.gz -capacity -json out.json
//	go run ./bench/lab -workload agents -scene join
//
// Without -capacity and -rates, each rule runs at one rate. With -rates it
// runs at each of them, and with -capacity at those that lead to the highest
// rate at which the 95 % quantile of the time to the first output is under
// -limit. All numbers are means over -seeds runs, which are the same for every
// rule. Equal flags give equal results.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	err := run(os.Args[1:])
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "lab:", err)
	os.Exit(1)
}

func run(args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	p := newProgress(os.Stderr)
	var report Report
	if s.capacity {
		report = findCapacities(s, p)
	} else {
		report = sweep(s, p)
	}
	p.done()
	if err := report.print(os.Stdout); err != nil {
		return err
	}
	if s.jsonFile != "" {
		if err := report.writeJSON(s.jsonFile); err != nil {
			return fmt.Errorf("writing results: %w", err)
		}
	}
	if s.plotFile != "" {
		if err := report.plot(s.plotFile); err != nil {
			return fmt.Errorf("plotting: %w", err)
		}
	}
	return nil
}
