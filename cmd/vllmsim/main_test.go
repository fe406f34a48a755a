// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string // part of the error
	}{
		{"", ""},
		{"-listen :9 -speed 10 -model a,b -model c -kv-tokens 1000 -seed 4 -max-num-seqs 8", ""},
		{"-data-parallel-size 2 -bytes-per-token 3.5 -old-metric-names -api-key k -enable-prompt-tokens-details " +
			"-enable-force-include-usage", ""},
		{"-speed 0", "speed must be positive"},
		{"-data-parallel-size 0", "data-parallel-size must be positive"},
		{"-bytes-per-token 0.5", "bytes-per-token must be 1 to 100"},
		{"-bytes-per-token NaN", "bytes-per-token must be 1 to 100"},
		{"-model a,,b", "empty model name"},
		{"serve", `unexpected argument "serve"`},
		{"-nothing", "not defined"},
	} {
		listen, cfg, err := parse(strings.Fields(tc.args), io.Discard)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("parse(%s) = %v, want %q", tc.args, err, tc.want)
		}
		if strings.Contains(tc.args, "-listen") {
			if listen != ":9" || cfg.Speed != 10 || !slices.Equal(cfg.Models, []string{"a", "b", "c"}) ||
				cfg.Engine.KVTokens != 1000 || cfg.Engine.Seed != 4 || cfg.Engine.MaxSeqs != 8 {
				t.Errorf("parse(%s) = %s, %+v", tc.args, listen, cfg)
			}
		}
		if strings.Contains(tc.args, "-api-key") {
			if cfg.DataParallel != 2 || cfg.BytesPerToken != 3.5 || !cfg.OldMetricNames || cfg.APIKey != "k" ||
				!cfg.PromptTokensDetails || !cfg.ForceIncludeUsage {
				t.Errorf("parse(%s) = %+v", tc.args, cfg)
			}
		}
	}
	if _, _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("parse(-h) = %v, want %v", err, flag.ErrHelp)
	}
}

// TestRun starts the command, asks it and ends it as a signal would.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-listen", "127.0.0.1:0", "-model", "mine"}, in, io.Discard)
	}()
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	_, url, found := strings.Cut(strings.TrimSpace(string(line[:n])), "listening on ")
	if !found || bytes.Count(line[:n], []byte("\n")) != 1 {
		t.Fatalf("printed %q, want one line with the address", line[:n])
	}
	resp, err := http.Get(url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.Contains(string(body), `"mine"`) {
		t.Errorf("models %s, want mine", body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run() = %v after its context ended", err)
	}
	if _, err := http.Get(url + "/health"); err == nil {
		t.Error("the server answers after its end")
	}
	if err := run(t.Context(), []string{"-listen", "nowhere:x"}, io.Discard, io.Discard); err == nil {
		t.Error("run() on a bad address succeeds")
	}
}
