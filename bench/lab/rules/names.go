// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// LoadAware is the name of the shipped rule.
const LoadAware = "load-aware"

// builders makes the rules, in the order in which they are shown.
var builders = []struct {
	name  string
	build func(Config) Rule
}{
	{"random", newRandom},
	{"round-robin", newRoundRobin},
	{"least-conn", newLeastConn},
	{"session-hash", newSessionHash},
	{"sticky-tokens", newStickyTokens},
	{"share-1.0", func(c Config) Rule { return newMatchedShare(c, 1) }},
	{"share-0.3", func(c Config) Rule { return newMatchedShare(c, 0.3) }},
	{"affinity-18s", func(c Config) Rule { return newAffinity(c, 18*time.Second) }},
	{"affinity-4s", func(c Config) Rule { return newAffinity(c, 4*time.Second) }},
	{LoadAware, newLoadAware},
	{"all-knowing", newAllKnowing},
}

// Names are the names of all rules.
func Names() []string {
	names := make([]string, len(builders))
	for i := range builders {
		names[i] = builders[i].name
	}
	return names
}

// Parse returns the names in a list that is separated by commas, in which "all"
// stands for every rule.
func Parse(list string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		switch {
		case name == "all":
			names = append(names, Names()...)
		case slices.Contains(Names(), name):
			names = append(names, name)
		default:
			return nil, fmt.Errorf("unrecognized rule '%s': it is none of %s", name, strings.Join(Names(), ", "))
		}
	}
	return names, nil
}

// New returns the rule of that name with nothing placed, nil if there is none.
func New(name string, c Config) Rule {
	for i := range builders {
		if builders[i].name == name {
			return builders[i].build(c)
		}
	}
	return nil
}
