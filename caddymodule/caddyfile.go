// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("llm_loadaware", parseHandler)
	// inside encode, so that the writer sees plain events, and around every
	// directive that may hold a reverse_proxy
	httpcaddyfile.RegisterDirectiveOrder("llm_loadaware", httpcaddyfile.Before, "invoke")
	httpcaddyfile.RegisterHandlerDirective("llm_loadaware_models", parseModelsHandler)
	// before every directive that may hold the reverse_proxy whose answer it
	// takes the place of, and after what may refuse the request
	httpcaddyfile.RegisterDirectiveOrder("llm_loadaware_models", httpcaddyfile.Before, "invoke")
	httpcaddyfile.RegisterHandlerDirective("llm_loadaware_status", parseStatusHandler)
	// the same, so that authentication at the site's level stands before it
	httpcaddyfile.RegisterDirectiveOrder("llm_loadaware_status", httpcaddyfile.Before, "invoke")
}

func parseHandler(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	err := handler.UnmarshalCaddyfile(h.Dispenser)
	return handler, err
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	llm_loadaware [<matcher>] {
//	    max_body          <size>
//	    max_buffered      <size>
//	    max_prompt_tokens <n>
//	    media_tokens      <n>
//	}
//
// Everything has a default: 32MiB, 1GiB, 262144 and 1024.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume directive name
	if d.NextArg() {
		return d.ArgErr()
	}
	return parseBlock(d, 0, h.unmarshalOption)
}

func (h *Handler) unmarshalOption(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "max_body":
		return parseValue(d, &h.MaxBody, parseSize)
	case "max_buffered":
		return parseValue(d, &h.MaxBuffered, parseSize)
	case "max_prompt_tokens":
		return parseValue(d, &h.MaxPromptTokens, parsePositive)
	case "media_tokens":
		return parseValue(d, &h.MediaTokens, parsePositive)
	}
	return d.Errf("unrecognized option '%s'", d.Val())
}

// UnmarshalCaddyfile sets up the policy from Caddyfile tokens. Syntax:
//
//	lb_policy llm_loadaware {
//	    fleet          <name>
//	    session_header <fields...>
//	    session_ttl    <duration>
//	    max_sessions   <n>
//	    stickiness     <tokens>
//	    request_cost   <tokens>
//	    congestion     <weight>
//	    eviction       <weight>
//	    prefix_index   off
//	    prefill_rate   off
//	    kv_tokens      <n>
//	    models         list | prefer | off
//	    prefill_ttl    <duration>
//	    metrics        off | [<path>] {
//	        interval <duration>
//	        timeout  <duration>
//	        port     <port>
//	        header   <field> <value>
//	    }
//	    queue {
//	        max_prefill_tokens <n>
//	        max_requests       <n>
//	        max_waiting        <n>
//	        max_wait           <duration>
//	        priority_header    <field>
//	    }
//	    shadow         <policy> [<args...>]
//	    share redis <addresses...> {
//	        username          <name>
//	        password          <secret>
//	        master            <name>
//	        sentinel_username <name>
//	        sentinel_password <secret>
//	        cluster
//	        db                <n>
//	        prefix            <text>
//	        timeout           <duration>
//	        tls {
//	            ca                   <files...>
//	            client_certificate   <certificate_file> <key_file>
//	            server_name          <name>
//	            insecure_skip_verify
//	        }
//	    }
//	}
//
// Everything has a default: see the fields of LoadAwareSelection, Metrics and
// Queue. A queue needs one of its first two options. The policy that shadow names
// takes its own arguments and block. It excludes a queue.
func (p *LoadAwareSelection) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume policy name
	if d.NextArg() {
		return d.ArgErr()
	}
	return parseBlock(d, 0, p.unmarshalOption)
}

func (p *LoadAwareSelection) unmarshalOption(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "fleet":
		return parseValue(d, &p.Fleet, parseName)
	case "session_header":
		p.SessionHeader = d.RemainingArgs()
		if len(p.SessionHeader) == 0 {
			return d.ArgErr()
		}
		return refuseBlock(d, "session_header")
	case "session_ttl":
		return parseValue(d, &p.SessionTTL, parseDuration)
	case "max_sessions":
		return parseValue(d, &p.MaxSessions, parsePositive)
	case "stickiness":
		return parseValue(d, &p.Stickiness, parseWeight)
	case "request_cost":
		return parseValue(d, &p.RequestCost, parseWeight)
	case "congestion":
		return parseValue(d, &p.Congestion, parseWeight)
	case "eviction":
		return parseValue(d, &p.Eviction, parseWeight)
	case "prefix_index":
		return parseValue(d, &p.DisablePrefixIndex, parseOff)
	case "prefill_rate":
		return parseValue(d, &p.DisablePrefillRate, parseOff)
	case "kv_tokens":
		return parseValue(d, &p.KVTokens, parsePositive)
	case "models":
		return parseValue(d, &p.Models, parseModels)
	case "prefill_ttl":
		return parseValue(d, &p.PrefillTTL, parseDuration)
	case "metrics":
		p.Metrics = new(Metrics)
		return p.Metrics.unmarshalCaddyfile(d)
	case "queue":
		p.Queue = new(Queue)
		if err := p.Queue.unmarshalCaddyfile(d); err != nil {
			return err
		}
		return p.excludeQueue(d)
	case "shadow":
		if err := p.unmarshalShadow(d); err != nil {
			return err
		}
		return p.excludeQueue(d)
	case "share":
		p.Share = new(Share)
		return p.Share.unmarshalCaddyfile(d)
	}
	return d.Errf("unrecognized option '%s'", d.Val())
}

// parseBlock calls option for each option of the block that follows, if one does:
// the current token is the option's name. It fails where one is given twice that
// is not among repeatable.
func parseBlock(d *caddyfile.Dispenser, nesting int, option func(*caddyfile.Dispenser) error, repeatable ...string) error {
	seen := make(map[string]struct{})
	for d.NextBlock(nesting) {
		name := d.Val()
		if _, ok := seen[name]; ok {
			return d.Errf("%s already specified", name)
		}
		if !slices.Contains(repeatable, name) {
			seen[name] = struct{}{}
		}
		if err := option(d); err != nil {
			return err
		}
	}
	return nil
}

// parseValue sets an option from its one argument.
func parseValue[T any](d *caddyfile.Dispenser, option *T, parse func(string) (T, error)) error {
	name := d.Val()
	if !d.NextArg() {
		return d.ArgErr()
	}
	value, err := parse(d.Val())
	if err != nil {
		return d.Errf("invalid %s '%s': %v", name, d.Val(), err)
	}
	*option = value
	if d.NextArg() {
		return d.Errf("%s takes one argument, and '%s' is another", name, d.Val())
	}
	return refuseBlock(d, name)
}

// refuseBlock fails if a block is opened on the option's line, even an empty
// one, which the dispenser would pass over in silence.
func refuseBlock(d *caddyfile.Dispenser, option string) error {
	line := d.Line()
	if !d.Next() {
		return nil
	}
	if d.Val() == "{" && d.Line() == line {
		return d.Errf("%s takes no block", option)
	}
	d.Prev()
	return nil
}

// What is wrong with a value that is well formed.
var (
	errEmpty       = errors.New("must not be empty")
	errNotPositive = errors.New("must be positive")
	errTooLarge    = errors.New("must be less")
	errWeight      = errors.New("must be a number that is not negative")
	errNotOff      = errors.New("must be off")

	errStatusInterval = errors.New("must be from 100ms to 1m")
)

func parseName(s string) (string, error) {
	if s == "" {
		return "", errEmpty
	}
	return s, nil
}

func parsePositive(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && n < 1 {
		err = errNotPositive
	}
	return n, err
}

func parseWeight(s string) (*float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err == nil && !(n >= 0 && n <= math.MaxFloat64) {
		err = errWeight
	}
	return &n, err
}

func parseDuration(s string) (caddy.Duration, error) {
	d, err := caddy.ParseDuration(s)
	if err == nil && d <= 0 {
		err = errNotPositive
	}
	return caddy.Duration(d), err
}

func parseSize(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	switch {
	case err == nil && n < 1:
		err = errNotPositive
	case err == nil && n > maxSize:
		err = errTooLarge
	}
	return int64(n), err
}

func parseOff(s string) (bool, error) {
	if s != "off" {
		return false, errNotOff
	}
	return true, nil
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ caddyfile.Unmarshaler = (*LoadAwareSelection)(nil)
)
