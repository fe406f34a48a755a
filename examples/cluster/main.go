// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Command cluster shows two Caddys that place as one: it starts Redis, three
// simulated vLLM servers and two Caddys with the Caddyfile beside it, and sends
// bursts and conversations through both. Then it keeps serving.
//
//	go run ./examples/cluster
//
// Everything listens on loopback. It needs redis-server or valkey-server, unless
// -redis names one that runs.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caddy-llm/loadaware/internal/crew"
	"github.com/caddy-llm/loadaware/internal/redisserver"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

//go:embed Caddyfile
var caddyfile string

const (
	caddys  = 2
	servers = 3
)

func main() {
	crew.Main()
	redis := flag.String("redis", "", "address of a Redis that runs; empty starts one")
	speed := flag.Float64("speed", 10, "how many times faster than real time the simulated servers run")
	once := flag.Bool("once", false, "exit after the show instead of serving on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *redis, *speed, *once); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run starts everything, shows it, serves until ctx ends unless once is set, and
// ends everything.
func run(ctx context.Context, out io.Writer, redis string, speed float64, once bool) (err error) {
	if !(speed > 0) {
		return errors.New("speed must be positive")
	}
	c := new(cluster)
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := c.start(redis, speed); err != nil {
		return err
	}
	if err := c.show(ctx, out); err != nil || once {
		return err
	}
	c.invite(ctx, out)
	return nil
}

// cluster is what runs.
type cluster struct {
	// sites and admins are the addresses of the Caddys
	sites, admins []string

	hosts []*vllmsim.Host

	// stops are the ways to end what was started, the first one last
	stops []func() error
}

func (c *cluster) start(redis string, speed float64) error {
	folder, err := os.MkdirTemp("", "loadaware-cluster")
	if err != nil {
		return fmt.Errorf("making folder: %w", err)
	}
	c.stops = append(c.stops, func() error { return os.RemoveAll(folder) })
	if redis == "" {
		server, err := redisserver.Start("")
		if err != nil {
			return err
		}
		c.stops = append(c.stops, server.Stop)
		redis = server.Addr
	}
	upstreams, err := c.startServers(speed)
	if err != nil {
		return err
	}
	file := filepath.Join(folder, "Caddyfile")
	if err := os.WriteFile(file, []byte(caddyfile), 0o600); err != nil {
		return fmt.Errorf("writing Caddyfile: %w", err)
	}
	for i := range caddys {
		addresses, err := crew.FreeAddresses(2)
		if err != nil {
			return err
		}
		caddy, err := crew.Start(file, addresses[0],
			"SITE="+addresses[0], "ADMIN="+addresses[1], "REDIS="+redis, "UPSTREAMS="+strings.Join(upstreams, " "),
			"STORAGE="+filepath.Join(folder, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		c.stops = append(c.stops, caddy.Stop)
		c.sites, c.admins = append(c.sites, addresses[0]), append(c.admins, addresses[1])
	}
	return nil
}

// startServers starts the simulated servers and returns their addresses.
func (c *cluster) startServers(speed float64) (addresses []string, err error) {
	for i := range servers {
		host, err := vllmsim.NewHost(vllmsim.NewServer(vllmsim.ServerConfig{
			Engine: vllmsim.Config{KVTokens: 2_000_000, Seed: uint64(i + 1)},
			Speed:  speed,
		}))
		if err != nil {
			return nil, fmt.Errorf("starting simulated server: %w", err)
		}
		c.stops = append(c.stops, func() error { host.Close(); return nil })
		c.hosts = append(c.hosts, host)
		addresses = append(addresses, host.Addr())
	}
	return addresses, nil
}

func (c *cluster) stop() (err error) {
	for len(c.stops) > 0 {
		last := len(c.stops) - 1
		err = errors.Join(err, c.stops[last]())
		c.stops = c.stops[:last]
	}
	return err
}

// invite tells what to try, and waits for the end of ctx.
func (c *cluster) invite(ctx context.Context, out io.Writer) {
	fmt.Fprintf(out, `
Still serving. Try one Caddy and then the other:

  curl -sD- http://%s/v1/chat/completions -H 'Content-Type: application/json' -H 'X-Session-ID: me' \
    -d '{"model":"sim-model","messages":[{"role":"user","content":"Hello"}]}'
  curl -sD- http://%s/v1/chat/completions -H 'Content-Type: application/json' -H 'X-Session-ID: me' \
    -d '{"model":"sim-model","messages":[{"role":"user","content":"Hello"},{"role":"user","content":"again"}]}'
  curl -s http://%s/llm_loadaware/fleets/cluster

Stop with Ctrl-C.
`, c.sites[0], c.sites[1], c.admins[0])
	<-ctx.Done()
}
