// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package bed runs simulated vLLM servers behind a real Caddy in one process,
// for commands that show or measure what the modules do. Everything listens on
// loopback. There is one Caddy in a process, so there is one bed at a time.
package bed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	// the Caddyfile adapter and everything a Caddyfile may name
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-llm/loadaware" // the modules
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// Bed is a running Caddy with the servers behind it.
type Bed struct {
	// Site is the address of Caddy's site as host:port, and Admin that of its
	// admin endpoint.
	Site, Admin string

	// Hosts are the servers.
	Hosts []*vllmsim.Host

	// storage is a directory of its own for what Caddy stores, so that no run
	// knows of an earlier one
	storage string
}

// Config writes a Caddyfile for a site, given as host:port, and the addresses
// of its upstreams. It has no global options.
type Config func(site string, upstreams []string) string

// Start runs the servers and Caddy. site is the address to listen on if it is
// free; otherwise, and if it is empty, the kernel chooses a port.
func Start(servers []vllmsim.ServerConfig, site string, config Config) (*Bed, error) {
	b := &Bed{Site: site}
	if err := b.start(servers, config); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

func (b *Bed) start(servers []vllmsim.ServerConfig, config Config) error {
	var upstreams []string
	for _, server := range servers {
		host, err := vllmsim.NewHost(vllmsim.NewServer(server))
		if err != nil {
			return fmt.Errorf("starting simulated server: %w", err)
		}
		b.Hosts = append(b.Hosts, host)
		upstreams = append(upstreams, host.Addr())
	}
	for _, address := range []*string{&b.Site, &b.Admin} {
		if *address != "" && free(*address) {
			continue
		}
		var err error
		if *address, err = freeAddress(); err != nil {
			return err
		}
	}
	var err error
	if b.storage, err = os.MkdirTemp("", "loadaware"); err != nil {
		return fmt.Errorf("making storage: %w", err)
	}
	global := []string{"{", "admin " + b.Admin, "storage file_system `" + b.storage + "`", "default_bind 127.0.0.1", "persist_config off", "grace_period 1s", "log {", "level ERROR", "}", "}", ""}
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(
		[]byte(strings.Join(global, "\n")+config(b.Site, upstreams)), nil)
	if err != nil {
		return fmt.Errorf("adapting Caddyfile: %w", err)
	}
	if err := caddy.Load(adapted, true); err != nil {
		return fmt.Errorf("starting Caddy: %w", err)
	}
	return nil
}

// Stop ends Caddy and the servers.
func (b *Bed) Stop() error {
	err := caddy.Stop()
	for _, host := range b.Hosts {
		host.Close()
	}
	if err != nil {
		return fmt.Errorf("stopping Caddy: %w", err)
	}
	if b.storage == "" {
		return nil
	}
	return os.RemoveAll(b.storage)
}

func free(address string) bool {
	ln, err := net.Listen("tcp", address)
	return err == nil && ln.Close() == nil
}

func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
