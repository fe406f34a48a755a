// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/internal/crew"
	"github.com/caddy-llm/loadaware/internal/redisserver/redistest"
)

func TestMain(m *testing.M) {
	crew.Main()
	os.Exit(m.Run())
}

// The command shows what it says. How much moves is that of the machine, which makes
// one of such fast servers look faster than another.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("runs Redis and Caddy in processes of their own")
	}
	var out bytes.Buffer
	err := run(t.Context(), &out, "", 200, true)
	if err != nil {
		t.Log(out.String())
	}
	redistest.Check(t, err)
	for _, want := range []string{"2 Caddys, Redis and 3 servers", "burst of 120", "turn 4 of 30", " of 90 turns"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
