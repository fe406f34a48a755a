// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	// the Caddyfile adapter and the reverse proxy
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/caddy-llm/loadaware"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// The addresses that Caddyfile.example uses, and that the demo puts its own in
// place of.
const exampleSite = "http://localhost:8080"

var exampleUpstreams = []string{"localhost:8001", "localhost:8002", "localhost:8003"}

// bed is three simulated servers behind a running Caddy.
type bed struct {
	policy  string
	speed   float64
	site    string
	admin   string
	engines []*vllmsim.Host
}

// startBed starts servers with empty caches and Caddy with the example config,
// in which policy takes the place of llm_loadaware.
func startBed(policy string, speed float64) (*bed, error) {
	b := &bed{policy: policy, speed: speed, site: exampleSite}
	config := strings.Replace(loadaware.Example, "lb_policy llm_loadaware", "lb_policy "+policy, 1)
	for i, address := range exampleUpstreams {
		host, err := vllmsim.NewHost(vllmsim.NewServer(vllmsim.ServerConfig{
			Engine: vllmsim.Config{KVTokens: 2_000_000, Seed: uint64(i + 1)},
			Speed:  speed,
		}))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting simulated server: %w", err), b.stop())
		}
		b.engines = append(b.engines, host)
		config = strings.Replace(config, address, host.Addr(), 1)
	}
	if err := b.startCaddy(config); err != nil {
		return nil, errors.Join(err, b.stop())
	}
	return b, nil
}

func (b *bed) startCaddy(config string) (err error) {
	if !free("localhost:8080") {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		b.site = "http://" + address
		config = strings.Replace(config, exampleSite, b.site, 1)
	}
	if b.admin, err = freeAddress(); err != nil {
		return err
	}
	global := fmt.Sprintf("{\n\tadmin %s\n\tpersist_config off\n\tgrace_period 1s\n\tlog {\n\t\tlevel ERROR\n\t}\n}\n", b.admin)
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(global+config), nil)
	if err != nil {
		return fmt.Errorf("adapting Caddyfile.example: %w", err)
	}
	if err := caddy.Load(adapted, true); err != nil {
		return fmt.Errorf("starting Caddy: %w", err)
	}
	return nil
}

// stop ends Caddy and the servers.
func (b *bed) stop() error {
	err := caddy.Stop()
	for _, e := range b.engines {
		e.Close()
	}
	if err != nil {
		return fmt.Errorf("stopping Caddy: %w", err)
	}
	return nil
}

func free(address string) bool {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
