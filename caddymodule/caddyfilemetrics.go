// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// unmarshalCaddyfile sets up the questions to the engines from Caddyfile
// tokens, of which the option's name is the current one. Syntax:
//
//	metrics off | [<path>] {
//	    interval <duration>
//	    timeout  <duration>
//	    port     <port>
//	    header   <field> <value>
//	}
//
// header may be repeated. The block may be left out after a path. Everything
// has a default: see the fields of Metrics.
func (m *Metrics) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	args := 0
	for d.NextArg() {
		if args++; args > 1 {
			return d.Errf("metrics takes one argument, and '%s' is another", d.Val())
		}
		if d.Val() == "off" {
			m.Disabled = true
			continue
		}
		path, err := parsePath(d.Val())
		if err != nil {
			return d.Errf("invalid metrics '%s': %v, or be off", d.Val(), err)
		}
		m.Path = path
	}
	if m.Disabled {
		return refuseBlock(d, "metrics off")
	}
	block := false
	err := parseBlock(d, d.Nesting(), func(d *caddyfile.Dispenser) error {
		block = true
		return m.unmarshalOption(d)
	}, "header")
	if err != nil {
		return err
	}
	if args == 0 && !block {
		return d.Err("metrics takes a path, off or a block of options")
	}
	return nil
}

func (m *Metrics) unmarshalOption(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "interval":
		return parseValue(d, &m.Interval, parseInterval)
	case "timeout":
		return parseValue(d, &m.Timeout, parseDuration)
	case "port":
		return parseValue(d, &m.Port, parsePort)
	case "header":
		return m.unmarshalHeader(d)
	}
	return d.Errf("unrecognized metrics option '%s'", d.Val())
}

func (m *Metrics) unmarshalHeader(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 2 || args[0] == "" {
		return d.Errf("header takes a field and a value")
	}
	if m.Headers == nil {
		m.Headers = http.Header{}
	}
	m.Headers.Add(args[0], args[1])
	return refuseBlock(d, "header")
}

func parseInterval(s string) (caddy.Duration, error) {
	interval, err := parseDuration(s)
	if err == nil && time.Duration(interval) < leastInterval {
		err = errInterval
	}
	return interval, err
}

func parsePort(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < 1 || n > maxPort) {
		err = errNotPort
	}
	return n, err
}
