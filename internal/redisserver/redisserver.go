// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package redisserver runs Redis or Valkey on loopback, for tests and for commands
// that show or measure what Caddys share over it. Nothing of it is kept.
package redisserver

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"time"
)

// ErrMissing says that no server is installed.
var ErrMissing = errors.New("neither redis-server nor valkey-server is installed")

// patience is how long a server may take to start.
const patience = 10 * time.Second

// Server is a running server.
type Server struct {
	// Addr is where it listens, as host:port.
	Addr string

	// Process is the server's.
	Process *os.Process

	folder string
	ended  chan struct{}
}

// Start runs a server with options as on its command line, and waits until it
// answers. addr is where it listens, with TLS if a certificate is among the options;
// if it is empty, the kernel chooses a port. The error is [ErrMissing] where there is
// none to run.
func Start(addr string, options ...string) (*Server, error) {
	return run(addr, func(folder string) []string {
		return append([]string{"--save", "", "--appendonly", "no", "--dir", folder}, options...)
	})
}

// StartSentinel runs a Sentinel with a config, which it may change, as Start does.
func StartSentinel(config string) (*Server, error) {
	return run("", func(folder string) []string {
		file := folder + "/sentinel.conf"
		// the Sentinel says so itself where there is no file
		_ = os.WriteFile(file, []byte(config), 0o600)
		return []string{file, "--sentinel"}
	})
}

// find returns the path of the server.
func find() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

func run(addr string, options func(folder string) []string) (*Server, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	if addr == "" {
		if addr, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("reading address of redis: %w", err)
	}
	s := &Server{Addr: addr, ended: make(chan struct{})}
	if s.folder, err = os.MkdirTemp("", "loadaware-redis"); err != nil {
		return nil, fmt.Errorf("making folder of redis: %w", err)
	}
	args := append(options(s.folder), "--bind", host)
	if slices.Contains(args, "--tls-cert-file") {
		args = append(args, "--port", "0", "--tls-port", port)
	} else {
		args = append(args, "--port", port)
	}
	command := exec.Command(path, args...)
	if err := command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting redis: %w", err), os.RemoveAll(s.folder))
	}
	s.Process = command.Process
	go func() {
		defer close(s.ended)
		_ = command.Wait()
	}()
	if err := s.await(); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// await waits until the server answers.
func (s *Server) await() error {
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !s.answers() {
		select {
		case <-tick.C:
		case <-s.ended:
			return fmt.Errorf("redis at %s has ended", s.Addr)
		case <-deadline:
			return fmt.Errorf("redis at %s does not answer", s.Addr)
		}
	}
	return nil
}

// answers reports that the server takes connections, and says something if it has
// any to say before TLS.
func (s *Server) answers() bool {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	// one that speaks TLS hangs up
	return err != nil || line[0] == '+' || line[:4] == "-NOA"
}

// Stop kills the server and waits for its end.
func (s *Server) Stop() error {
	// it fails where the server has ended
	_ = s.Process.Kill()
	<-s.ended
	return os.RemoveAll(s.folder)
}

func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}
