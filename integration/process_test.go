// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// configVar names the file with the JSON config of a Caddy in a process of its
// own, which this test binary is then.
const configVar = "LOADAWARE_TEST_CONFIG"

// commandVar makes this test binary the caddy command.
const commandVar = "LOADAWARE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVar) != "" {
		caddycmd.Main()
		os.Exit(0)
	}
	file := os.Getenv(configVar)
	if file == "" {
		os.Exit(m.Run())
	}
	config, err := os.ReadFile(file)
	if err == nil {
		caddy.TrapSignals()
		err = caddy.Load(config, true)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// process is a Caddy in a process of its own.
type process struct {
	t       *testing.T
	command *exec.Cmd
}

// spawn runs a Caddyfile in another process and waits until the site answers. The process ends with the test.
func (s *server) spawn(t *testing.T, caddyfile string) *process {
	t.Helper()
	return s.spawnJSON(t, s.adapt(caddyfile))
}

// spawnJSON does the same with a JSON config.
func (s *server) spawnJSON(t *testing.T, config []byte) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, command: exec.Command(self)}
	p.command.Env = append(os.Environ(), configVar+"="+file)
	p.command.Stderr = os.Stderr
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.command.Process.Kill() })
	s.accepts()
	return p
}

// end sends a signal and waits for the end of the process.
func (p *process) end(signal os.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	_ = p.command.Wait()
}
