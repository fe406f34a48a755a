// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-llm/loadaware/fleet"
)

// What is wrong with the policy that another one is to be the shadow of.
var (
	errShadowQueue = errors.New("shadow and queue exclude each other: another policy decides, and nobody waits")
	errShadowSelf  = errors.New("shadow must name another policy, with no llm_loadaware in it")
)

// unmarshalShadow reads the policy that is to decide, as Caddy reads fallback
// policies.
func (p *LoadAwareSelection) unmarshalShadow(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	name := d.Val()
	id := "http.reverse_proxy.selection_policies." + name
	module, err := caddyfile.UnmarshalModule(d, id)
	if err != nil {
		return fmt.Errorf("parsing shadow: %w", err)
	}
	selector, ok := module.(reverseproxy.Selector)
	if !ok {
		return d.Errf("shadow: module %s (%T) is not a reverseproxy.Selector", id, module)
	}
	if _, ok := selector.(*LoadAwareSelection); ok {
		return d.WrapErr(errShadowSelf)
	}
	p.ShadowRaw = caddyconfig.JSONModuleObject(selector, "policy", name, nil)
	return nil
}

// excludeQueue fails where there is a queue and a shadow.
func (p *LoadAwareSelection) excludeQueue(d *caddyfile.Dispenser) error {
	if p.Queue != nil && p.ShadowRaw != nil {
		return d.WrapErr(errShadowQueue)
	}
	return nil
}

// loadShadow provisions the policy that decides, if there is one. It fails for a
// policy that is itself part of what another one is the shadow of: a request is
// placed once.
func (p *LoadAwareSelection) loadShadow(ctx caddy.Context) error {
	for _, module := range ctx.Modules() {
		if outer, ok := module.(*LoadAwareSelection); ok && outer != p {
			return errShadowSelf
		}
	}
	if p.ShadowRaw == nil {
		return nil
	}
	module, err := ctx.LoadModule(p, "ShadowRaw")
	if err != nil {
		return fmt.Errorf("loading shadow policy: %w", err)
	}
	selector, ok := module.(reverseproxy.Selector)
	if !ok {
		return fmt.Errorf("loading shadow policy: %T is not a reverseproxy.Selector", module)
	}
	p.shadow = selector
	return nil
}

// shadowName is the option without those of the policy that it names, nil where
// there is none.
func (p *LoadAwareSelection) shadowName() json.RawMessage {
	module, ok := p.shadow.(caddy.Module)
	if !ok {
		return nil
	}
	text, _ := json.Marshal(map[string]string{"policy": module.CaddyModule().ID.Name()}) // text always encodes
	return text
}

// follow reserves r on the upstream that the other policy has chosen, and returns
// that. Where it has chosen none, r holds nothing.
func (p *LoadAwareSelection) follow(
	chosen *reverseproxy.Upstream, upstreams reverseproxy.UpstreamPool, r *http.Request,
) *reverseproxy.Upstream {
	a := p.arrive(r)
	at := slices.Index(upstreams, chosen)
	if at < 0 {
		return chosen
	}
	usable := p.takeUsable()
	defer p.usable.Put(usable)
	*usable = available((*usable)[:0], upstreams)
	request := p.request(a, r.Header)
	res := a.newPlaced(&p.lease)
	state := p.lease.acquire()
	state.PlaceAt(&res.Placement, at, &request, p.resolve(state, upstreams), *usable, &p.options, time.Now())
	p.dispatch(a, res, r, request.Session)
	return chosen
}

// reasonOf is the reason of a choice that would have been made, "" where nothing
// was compared.
func reasonOf(c fleet.Choice) string {
	if c.Upstream == "" {
		return ""
	}
	return c.Reason.String()
}

// collectShadow writes the series of what would be otherwise.
func collectShadow(ch chan<- prometheus.Metric, name string, s *fleet.ShadowTotals) {
	counter := func(desc *prometheus.Desc, value float64, label string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, name, label)
	}
	for choice, n := range choicesOf(s) {
		counter(shadowPlacements, float64(n), choice)
	}
	for difference, tokens := range differencesOf(&s.Prefill) {
		counter(shadowPrefillTokens, tokens, difference)
	}
	for difference, tokens := range differencesOf(&s.Cost) {
		counter(shadowCostTokens, tokens, difference)
	}
}

// choicesOf are the requests by the label `choice`.
func choicesOf(s *fleet.ShadowTotals) map[string]uint64 {
	return map[string]uint64{"same": s.Same, "other": s.Other}
}

// differencesOf are the tokens by the label `difference`.
func differencesOf(d *fleet.Differences) map[string]float64 {
	return map[string]float64{"saved": d.Saved, "lost": d.Lost}
}
