// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package crew runs several Caddys with this module, each in a process of its own
// that is another run of the same program. They are for commands that show or
// measure what Caddys share.
package crew

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	// the Caddyfile adapter and everything a Caddyfile may name
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-llm/loadaware" // the modules
)

// caddyfileVar names the Caddyfile of a process that is to be a Caddy.
const caddyfileVar = "LOADAWARE_CREW_CADDYFILE"

// patience is how long a Caddy may take to start, and to end.
const patience = 30 * time.Second

// Main makes this process a Caddy, until it is told to end, if it was started as
// one. A program that calls [Start] calls it before anything else.
func Main() {
	file := os.Getenv(caddyfileVar)
	if file == "" {
		return
	}
	caddy.TrapSignals()
	if err := load(file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func load(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading Caddyfile: %w", err)
	}
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(text, map[string]any{"filename": file})
	if err != nil {
		return fmt.Errorf("adapting Caddyfile: %w", err)
	}
	return caddy.Load(config, true)
}

// Caddy is a Caddy in a process of its own.
type Caddy struct {
	command *exec.Cmd
	ended   chan struct{}
}

// Start runs a Caddyfile, with some variables added to the environment, and waits
// until something listens at a site's address.
func Start(caddyfile, site string, environment ...string) (*Caddy, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	c := &Caddy{command: exec.Command(self), ended: make(chan struct{})}
	c.command.Env = append(append(os.Environ(), environment...), caddyfileVar+"="+caddyfile)
	c.command.Stderr = os.Stderr
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("starting Caddy: %w", err)
	}
	go func() {
		defer close(c.ended)
		_ = c.command.Wait()
	}()
	if err := c.await(site); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// await waits until something listens.
func (c *Caddy) await(site string) error {
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if conn, err := net.DialTimeout("tcp", site, time.Second); err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-c.ended:
			return errors.New("caddy has ended")
		case <-deadline:
			return fmt.Errorf("caddy does not listen at %s", site)
		}
	}
}

// Stop ends the Caddy and waits for that.
func (c *Caddy) Stop() error {
	// it fails where the process has ended
	_ = c.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
		return nil
	case <-time.After(patience):
		_ = c.command.Process.Kill()
		<-c.ended
		return errors.New("caddy did not end by itself")
	}
}

// FreeAddresses returns different addresses on loopback that nobody listens on.
func FreeAddresses(n int) ([]string, error) {
	var free []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		// all stay open until the last is known: the kernel may give a closed
		// one out again
		defer ln.Close()
		free = append(free, ln.Addr().String())
	}
	return free, nil
}
