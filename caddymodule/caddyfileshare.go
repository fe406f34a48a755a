// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"errors"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// unmarshalCaddyfile sets up the sharing from Caddyfile tokens, of which the
// option's name is the current one. Syntax:
//
//	share redis <addresses...> {
//	    username          <name>
//	    password          <secret>
//	    master            <name>
//	    sentinel_username <name>
//	    sentinel_password <secret>
//	    cluster
//	    db                <n>
//	    prefix            <text>
//	    timeout           <duration>
//	    tls {
//	        ca                   <files...>
//	        client_certificate   <certificate_file> <key_file>
//	        server_name          <name>
//	        insecure_skip_verify
//	    }
//	}
//
// The blocks may be left out. Everything has a default: see the fields of
// RedisShare and RedisTLS.
func (s *Share) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	if mayHaveSecret(d.Val()) {
		return d.Errf("share takes redis before its addresses: %v", errAddressURL)
	}
	if d.Val() != "redis" {
		return d.Errf("invalid share '%s': must be redis", d.Val())
	}
	s.Redis = &RedisShare{Addresses: d.RemainingArgs()}
	if err := parseBlock(d, d.Nesting(), s.Redis.unmarshalOption); err != nil {
		return err
	}
	if err := s.validate(); err != nil {
		return d.Errf("%v", err)
	}
	return nil
}

func (r *RedisShare) unmarshalOption(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "username":
		return parseValue(d, &r.Username, parseName)
	case "password":
		return parseSecret(d, &r.Password)
	case "master":
		return parseValue(d, &r.Master, parseName)
	case "sentinel_username":
		return parseValue(d, &r.SentinelUsername, parseName)
	case "sentinel_password":
		return parseSecret(d, &r.SentinelPassword)
	case "cluster":
		return parseFlag(d, &r.Cluster)
	case "db":
		return parseValue(d, &r.DB, parseNotNegative)
	case "prefix":
		return parseValue(d, &r.Prefix, parseName)
	case "timeout":
		return parseValue(d, &r.Timeout, parseShareTimeout)
	case "tls":
		if d.NextArg() {
			return d.Errf("tls takes no argument, and '%s' is one", d.Val())
		}
		r.TLS = new(RedisTLS)
		return parseBlock(d, d.Nesting(), r.TLS.unmarshalOption)
	}
	return d.Errf("unrecognized share redis option '%s'", d.Val())
}

func (t *RedisTLS) unmarshalOption(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "ca":
		if t.CA = d.RemainingArgs(); len(t.CA) == 0 {
			return d.ArgErr()
		}
		return refuseBlock(d, "ca")
	case "client_certificate":
		if !d.AllArgs(&t.ClientCertificate, &t.ClientKey) {
			return d.Errf("client_certificate takes two files, of the certificate and of its key")
		}
		return refuseBlock(d, "client_certificate")
	case "server_name":
		return parseValue(d, &t.ServerName, parseName)
	case "insecure_skip_verify":
		return parseFlag(d, &t.InsecureSkipVerify)
	}
	return d.Errf("unrecognized share redis tls option '%s'", d.Val())
}

// parseSecret sets an option from its one argument, which no error shows.
func parseSecret(d *caddyfile.Dispenser, option *string) error {
	name := d.Val()
	args := d.RemainingArgs()
	if len(args) != 1 || args[0] == "" {
		return d.Errf("%s takes one argument", name)
	}
	*option = args[0]
	return refuseBlock(d, name)
}

// parseFlag sets an option that has no argument.
func parseFlag(d *caddyfile.Dispenser, option *bool) error {
	name := d.Val()
	if d.NextArg() {
		return d.Errf("%s takes no argument, and '%s' is one", name, d.Val())
	}
	*option = true
	return refuseBlock(d, name)
}

// What is wrong with a value that is well formed.
var (
	errNegative     = errors.New("must not be negative")
	errShareTimeout = errors.New("must be at least 1ms")
)

func parseNotNegative(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && n < 0 {
		err = errNegative
	}
	return n, err
}

func parseShareTimeout(s string) (caddy.Duration, error) {
	timeout, err := parseDuration(s)
	if err == nil && time.Duration(timeout) < time.Millisecond {
		err = errShareTimeout
	}
	return timeout, err
}
