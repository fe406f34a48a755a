// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Command vllmsim serves the HTTP interface of vLLM with a simulated engine, and prints one line with its address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// grace is how long running requests may take to end after a signal.
const grace = 2 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "vllmsim:", err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	listen, cfg, err := parse(args, stderr)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := vllmsim.NewServer(cfg)
	defer server.Close()
	web := vllmsim.NewHTTPServer(server)
	fmt.Fprintf(stdout, "vllmsim listening on http://%s\n", listener.Addr())

	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	deadline, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := web.Shutdown(deadline); err != nil {
		_ = web.Close()
	}
	<-failed // http.ErrServerClosed
	return nil
}

// models collects the values of -model.
type models []string

func (m *models) String() string { return strings.Join(*m, ",") }

func (m *models) Set(value string) error {
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name == "" {
			return errors.New("empty model name")
		}
		*m = append(*m, name)
	}
	return nil
}

// parse reads the command line.
func parse(args []string, output io.Writer) (listen string, cfg vllmsim.ServerConfig, err error) {
	flags := flag.NewFlagSet("vllmsim", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&listen, "listen", "127.0.0.1:8000", "`address` to listen on; port 0 lets the kernel choose")
	flags.Var((*models)(&cfg.Models), "model", "served model `name`; repeat or separate by commas (default sim-model)")
	flags.Float64Var(&cfg.Speed, "speed", 1, "how many times faster than real time the engine runs")
	flags.Uint64Var(&cfg.Engine.Seed, "seed", 0, "selects the words of the answers, ids and jitter")
	flags.IntVar(&cfg.Engine.KVTokens, "kv-tokens", 600_000, "capacity of the KV cache in tokens")
	flags.IntVar(&cfg.Engine.BlockTokens, "block-size", 16, "tokens in a KV block")
	flags.IntVar(&cfg.Engine.MaxSeqs, "max-num-seqs", 256, "requests that run at once")
	flags.IntVar(&cfg.Engine.BatchTokens, "max-num-batched-tokens", 8192, "tokens that one step computes at most")
	flags.Float64Var(&cfg.Engine.PrefillRate, "prefill-rate", 12_000, "prefill tokens per second")
	flags.Float64Var(&cfg.Engine.Jitter, "jitter", 0, "share by which step times vary, 0 to 1")
	flags.IntVar(&cfg.DataParallel, "data-parallel-size", 1, "engines behind the address")
	flags.IntVar(&cfg.MaxModelTokens, "max-model-len", 262_144, "context length in tokens")
	flags.IntVar(&cfg.OutputTokens, "output-tokens", 64, "length of an answer without a limit")
	flags.IntVar(&cfg.MaxOutputTokens, "max-output-tokens", 1024, "length of the longest answer")
	flags.Float64Var(&cfg.BytesPerToken, "bytes-per-token", 4, "bytes of text in a token, 1 to 100")
	flags.BoolVar(&cfg.PromptTokensDetails, "enable-prompt-tokens-details", false, "tell in usage what was cached")
	flags.BoolVar(&cfg.ForceIncludeUsage, "enable-force-include-usage", false, "end every stream with its usage")
	flags.BoolVar(&cfg.OldMetricNames, "old-metric-names", false, "name the metrics as vLLM 0.9 does")
	flags.StringVar(&cfg.APIKey, "api-key", "", "`key` that requests to /v1 must bear")
	if err := flags.Parse(args); err != nil {
		return "", cfg, fmt.Errorf("parsing flags: %w", err)
	}
	if flags.NArg() > 0 {
		return "", cfg, fmt.Errorf("parsing flags: unexpected argument %q", flags.Arg(0))
	}
	if cfg.Speed <= 0 {
		return "", cfg, errors.New("speed must be positive")
	}
	if cfg.DataParallel < 1 {
		return "", cfg, errors.New("data-parallel-size must be positive")
	}
	// not a number compares false
	if !(cfg.BytesPerToken >= 1 && cfg.BytesPerToken <= 100) {
		return "", cfg, errors.New("bytes-per-token must be 1 to 100")
	}
	return listen, cfg, nil
}

// Interface guard
var _ flag.Value = (*models)(nil)
