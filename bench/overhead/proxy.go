// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// proxy is a Caddy that runs in a process of its own, and clients of it.
type proxy struct {
	process   *exec.Cmd
	questions io.WriteCloser
	answers   *json.Decoder
	site      string
	transport *http.Transport
}

// startProxy starts Caddy in front of the upstreams.
func (s settings) startProxy(ctx context.Context, servers *upstreams, profile string) (*proxy, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	args := append([]string{caddyArgument, profile, s.configured(0), s.configured(1)}, servers.addresses...)
	p := &proxy{process: exec.CommandContext(ctx, program, args...)}
	p.process.Stderr = os.Stderr
	if p.questions, err = p.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.process.Start(); err != nil {
		return nil, fmt.Errorf("starting Caddy: %w", err)
	}
	lines := bufio.NewReader(out)
	site, err := lines.ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting Caddy: %w", err), p.stop())
	}
	p.site = strings.TrimSpace(site)
	p.answers = json.NewDecoder(lines)
	p.transport = &http.Transport{
		// the sites' names lead to one address
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, p.site)
		},
		MaxIdleConnsPerHost: s.streams + s.clients,
		DisableCompression:  true,
	}
	return p, nil
}

// configured is a side's policy with the address of the Redis that it shares over.
func (s settings) configured(side int) string {
	if s.redis != nil && strings.HasSuffix(s.policies[side], shareOption) {
		return s.policies[side] + " redis " + s.redis.Addr
	}
	return s.policies[side]
}

// stop ends Caddy and waits for it.
func (p *proxy) stop() error {
	if p.transport != nil {
		p.transport.CloseIdleConnections()
	}
	p.questions.Close()
	if err := p.process.Wait(); err != nil {
		return fmt.Errorf("running Caddy: %w", err)
	}
	return nil
}

// ask asks the process what it has used.
func (p *proxy) ask(question string) (u usage, err error) {
	if _, err := fmt.Fprintln(p.questions, question); err != nil {
		return u, fmt.Errorf("asking Caddy: %w", err)
	}
	if err := p.answers.Decode(&u); err != nil {
		return u, fmt.Errorf("asking Caddy: %w", err)
	}
	return u, nil
}
