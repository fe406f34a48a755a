// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-llm/loadaware/fleet"
)

// livePolicies are the policies of a fleet whose configuration runs. Each belongs
// to them from its start to its cleanup, and may be used after that: it only
// becomes wrong about what is configured.
//
// They are in the order of their upstreams and options, since the servers of a
// configuration start in any.
type livePolicies struct {
	mu   sync.Mutex
	list []livePolicy
}

// livePolicy is a policy with what it is put in order by.
type livePolicy struct {
	*LoadAwareSelection
	order string
}

func (l *livePolicies) add(p *LoadAwareSelection) {
	options, _ := json.Marshal(p.effective()) // numbers and text always encode
	live := livePolicy{p, strings.Join(p.listed, " ") + string(options)}
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearchFunc(l.list, live, func(a, b livePolicy) int { return cmp.Compare(a.order, b.order) })
	l.list = slices.Insert(l.list, at, live)
}

// remove does nothing for a policy that was never added.
func (l *livePolicies) remove(p *LoadAwareSelection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(q livePolicy) bool { return q.LoadAwareSelection == p })
}

func (l *livePolicies) all() []livePolicy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// upstreams are those that the last request could have gone to, and before the
// first one those of the configuration. The policy's configuration must have
// started: until then the proxy is not done with them.
func (p *LoadAwareSelection) upstreams() reverseproxy.UpstreamPool {
	if last := p.pool.Load(); last != nil {
		return last.upstreams
	}
	return p.proxy.Upstreams
}

// explain tells how p would place the request now. That reserves nothing and
// changes nothing.
func (p *LoadAwareSelection) explain(request *fleet.Request, now time.Time) fleet.Decision {
	upstreams := p.upstreams()
	pool := fleet.NewPool(nil)
	if len(upstreams) > 0 {
		pool = p.resolve(p.state, upstreams)
	}
	return p.state.Explain(request, pool, available(nil, upstreams), &p.options, now)
}

// policyStatus is the JSON form of a policy whose configuration runs.
type policyStatus struct {
	// Options are those of the configuration, with what they are where they are
	// not set.
	Options *LoadAwareSelection `json:"options"`

	// ColdPrompt is what a prompt of so many tokens that is cached nowhere would
	// cost on each upstream, in the policy's order.
	ColdPrompt coldPromptStatus `json:"cold_prompt"`
}

// coldPromptStatus is the JSON form of what a prompt would cost.
type coldPromptStatus struct {
	PromptTokens int               `json:"prompt_tokens"`
	Upstreams    []appraisalStatus `json:"upstreams"`
}

// coldPromptTokens is long enough for its price to show, and short enough to
// leave the other terms in view.
const coldPromptTokens = 1000

func describePolicy(p livePolicy, now time.Time) policyStatus {
	d := p.explain(&fleet.Request{Tokens: coldPromptTokens, Prefills: true}, now)
	return policyStatus{
		Options: p.effective(),
		ColdPrompt: coldPromptStatus{
			PromptTokens: coldPromptTokens,
			Upstreams:    describeAppraisals(d.Appraisals),
		},
	}
}

// effective returns the policy's options as they are in force. The values of
// headers, passwords and the options of another policy are left out: they may be
// secret.
func (p *LoadAwareSelection) effective() *LoadAwareSelection {
	metrics, weights := *p.Metrics, p.options.Weights
	metrics.Headers = make(http.Header, len(p.Metrics.Headers))
	for field := range p.Metrics.Headers {
		metrics.Headers[field] = []string{"redacted"}
	}
	return &LoadAwareSelection{
		Fleet:              p.Fleet,
		SessionHeader:      p.SessionHeader,
		SessionTTL:         p.SessionTTL,
		MaxSessions:        p.MaxSessions,
		Stickiness:         &weights.Stickiness,
		RequestCost:        &weights.RequestCost,
		Congestion:         &weights.Congestion,
		Eviction:           &weights.Eviction,
		DisablePrefixIndex: p.DisablePrefixIndex,
		DisablePrefillRate: p.DisablePrefillRate,
		KVTokens:           p.KVTokens,
		Models:             p.Models,
		PrefillTTL:         p.PrefillTTL,
		Metrics:            &metrics,
		Queue:              p.Queue,
		ShadowRaw:          p.shadowName(),
		Share:              p.Share.withoutSecrets(),
	}
}
