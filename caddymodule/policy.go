// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-llm/loadaware/fleet"
)

func init() {
	caddy.RegisterModule(new(LoadAwareSelection))
}

// defaultFleet is the name of the fleet of a policy that names none.
const defaultFleet = "default"

// LoadAwareSelection is a policy that places each request on the upstream where
// it costs the least prefill work, for the upstream and for everyone who waits
// there. It is made for LLM servers such as vLLM, whose work is measured in
// prompt tokens rather than connections.
//
// A session stays at its home, the upstream that holds its KV cache, unless
// that costs more than `stickiness` tokens over the best one. The policy counts
// what it placed itself, so a burst never sees stale load, and keeps the count
// when the configuration is reloaded.
//
// A session is named by a request header, else by the fields `session_id`,
// `prompt_cache_key`, `conversation` or `metadata.user_id` of the body. The last
// three may stand for many conversations, and bind only a prompt that extends the
// session's. Under a header's name, a request whose prompt neither extends the
// session's nor begins with the same tools and instructions, as a sub-agent's,
// is placed like one without a session.
//
// The policy needs the `llm_loadaware` handler in front of the proxy to know the
// size of a prompt and the moment of the first output. Without it, requests are
// charged by their Content-Length and hold that until they end, however they end.
//
// For each request it places, the policy sets these placeholders:
//
// Placeholder | Description
// ------------|-------------
// `{http.llm_loadaware.reason}` | Why the request was placed where it is: `new`, `pinned`, `moved_pressure`, `moved_unavailable`, `prefix`, `load`, or `shadow` where another policy has decided; empty for requests without a prompt
// `{http.llm_loadaware.upstream}` | The chosen upstream's address as given in the config
// `{http.llm_loadaware.model}` | The model that the request asks for
// `{http.llm_loadaware.prompt_tokens}` | The estimated tokens of the whole prompt
// `{http.llm_loadaware.uncached_tokens}` | How many of them the upstream is not believed to have cached
// `{http.llm_loadaware.session}` | Eight hexadecimal digits of the session's hash, empty without a session
// `{http.llm_loadaware.queue_ms}` | Milliseconds that the request has waited for room, set where `queue` is on
// `{http.llm_loadaware.shadow_upstream}` | Where the request would have been placed, set where `shadow` is on; empty for requests without a prompt
// `{http.llm_loadaware.shadow_reason}` | Why it would have been placed there, one of the other reasons; empty for requests without a prompt
// `{http.llm_loadaware.shadow_uncached_tokens}` | How many tokens of the prompt that upstream is not believed to have cached
// `{http.llm_loadaware.attempts}` | How often the request was placed so far
// `{http.llm_loadaware.first_output_ms}` | Milliseconds from the request's arrival to its first output, set when the response has ended
type LoadAwareSelection struct {
	// Fleet names the state to use: policies with the same fleet share counts,
	// sessions and the prefix index, across sites and across reloads.
	// Default: `default`.
	Fleet string `json:"fleet,omitempty"`

	// SessionHeader lists the request headers that name a session; the first
	// one present counts, before any field of the body. Default: `X-Session-ID`, `X-Claude-Code-Session-Id`,
	// `Session-Id`, `Thread-Id`, `X-Session-Affinity`, `X-OpenWebUI-Chat-Id`,
	// `X-Litellm-Session-Id`.
	SessionHeader []string `json:"session_header,omitempty"`

	// SessionTTL is how long a session without a request is remembered.
	// Default: 1h.
	SessionTTL caddy.Duration `json:"session_ttl,omitempty"`

	// MaxSessions is how many sessions are remembered; the least recently used
	// goes first. Default: 100000.
	MaxSessions int `json:"max_sessions,omitempty"`

	// Stickiness is how much more a session's home may cost than the best
	// upstream before the session moves, in tokens. 0 moves it for any gain.
	// Default: 32768.
	Stickiness *float64 `json:"stickiness,omitempty"`

	// RequestCost is what each request in flight costs, in tokens.
	// Default: 4096.
	RequestCost *float64 `json:"request_cost,omitempty"`

	// Congestion is what each request that waits for its first output adds to
	// the cost of an avoidable token, one that another upstream would not have
	// to compute. The waiting requests are those of an average upstream, but at
	// most one more than wait on the upstream at hand. 0 charges tokens alike
	// however many requests wait. Default: 2.
	Congestion *float64 `json:"congestion,omitempty"`

	// Eviction is what evicting a prompt block that was just used adds to the
	// cost of an uncached token; it halves for a block unused for a minute.
	// 0 ignores eviction. Default: 4.
	Eviction *float64 `json:"eviction,omitempty"`

	// DisablePrefixIndex turns off the index of prompt blocks: a session is
	// then charged at its home for what its prompt grew, and everything else
	// for the whole prompt. Default: false.
	DisablePrefixIndex bool `json:"disable_prefix_index,omitempty"`

	// DisablePrefillRate takes all upstreams for equally fast, however fast they
	// were measured to prefill. Default: false.
	DisablePrefillRate bool `json:"disable_prefill_rate,omitempty"`

	// KVTokens is how many tokens of prefix cache an upstream has, and the
	// index remembers. Set it where the cache is larger than what the engine
	// reports, as with KV in the memory of the CPU. vLLM logs it at its start
	// as "GPU KV cache size". Too small a value forgets what is cached, too
	// large a one trusts in what is evicted; both cost most when the cache is
	// full. Policies of the same fleet should agree on it. Default: 0, which is
	// what the engine reports, and 4000000 while it does not.
	KVTokens int `json:"kv_tokens,omitempty"`

	// Models says what becomes of upstreams that do not list the model which a
	// request asks for: with `list` they are no candidates unless no upstream
	// lists it, with `prefer` they are chosen after those that do, with `off`
	// models make no difference. An upstream whose models are not known is
	// taken to serve them all. Default: `list`.
	Models string `json:"models,omitempty"`

	// PrefillTTL is how long a request may hold prefill tokens without any
	// output. The request itself is counted until it ends. Default: 10m.
	PrefillTTL caddy.Duration `json:"prefill_ttl,omitempty"`

	// Metrics says how the engines are asked about themselves. By default they
	// are asked for `/metrics` every second.
	Metrics *Metrics `json:"metrics,omitempty"`

	// Queue limits what an upstream holds at once, and lets requests wait while
	// all of them are at the limit. Default: none, which places every request
	// at once.
	Queue *Queue `json:"queue,omitempty"`

	// ShadowRaw is another policy that decides in place of this one, which stays
	// in its shadow: it sees where requests go, keeps its counts, sessions and
	// index accordingly, and counts how often and by how many tokens it would have
	// chosen otherwise. Which upstream a request goes to, whether it is retried and
	// when it is refused is as with that policy alone. It cannot be combined with
	// `queue`, and has no `llm_loadaware` in it. Default: none, which lets this policy
	// decide.
	ShadowRaw json.RawMessage `json:"shadow,omitempty" caddy:"namespace=http.reverse_proxy.selection_policies inline_key=policy"`

	// Share lets several Caddys place as one does. Default: none, which counts
	// what passes through this Caddy.
	Share *Share `json:"share,omitempty"`

	logger  *zap.Logger
	options fleet.Options
	headers []string

	// proxy is the one that the policy chooses for, nil where it is none, and
	// listed are its upstreams as the configuration has them
	proxy  *reverseproxy.Handler
	listed []string

	// shadow is the policy that decides, nil where that is this one
	shadow reverseproxy.Selector

	lease lease
	state *fleet.Fleet

	// scraper asks the engines, store keeps the sessions for the next process,
	// and sharer tells other Caddys; nil where that is not done
	scraper *scraper
	store   *sessionStore
	sharer  *sharer

	// pool is the pool of the last request, and handler the one that has read
	// it; warned says that the missing handler was reported
	pool    atomic.Pointer[resolvedPool]
	handler atomic.Pointer[Handler]
	usable  sync.Pool
	warned  atomic.Bool
	cleanup sync.Once
}

// CaddyModule returns the Caddy module information.
func (*LoadAwareSelection) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.llm_loadaware",
		New: func() caddy.Module { return new(LoadAwareSelection) },
	}
}

// Provision sets the policy up. The fleet is acquired last, so that a failed
// provision leaves nothing behind. A fleet that is new in this process takes in
// what is stored of its sessions before there is any traffic, which is the one
// thing that is waited for; nothing is written.
func (p *LoadAwareSelection) Provision(ctx caddy.Context) error {
	if err := registerMetrics(ctx); err != nil {
		return err
	}
	p.logger = ctx.Logger()
	p.setDefaults()
	p.headers = canonicalHeaders(p.SessionHeader)
	p.proxy = proxyOf(ctx)
	p.listed = staticUpstreams(p.proxy)
	if err := p.loadShadow(ctx); err != nil {
		return err
	}
	if err := p.prepareTasks(ctx); err != nil {
		return err
	}
	p.lease.name = p.Fleet
	p.state = p.lease.acquire()
	p.state.List(p.listed)
	if p.scraper != nil {
		p.scraper.fleet, p.scraper.owners = p.state, p.lease.pooled().scrapeOwners
	}
	if p.store != nil {
		p.store.fleet, p.store.writers = p.state, p.lease.pooled().storeWriters
		p.store.restore()
	}
	p.sharer.prepare(p.state, p.lease.pooled().sharing)
	return nil
}

func (p *LoadAwareSelection) setDefaults() {
	o := fleet.DefaultOptions()
	if p.Fleet == "" {
		p.Fleet = defaultFleet
	}
	if p.SessionHeader == nil {
		p.SessionHeader = defaultSessionHeaders
	}
	if p.Metrics == nil {
		p.Metrics = new(Metrics)
	}
	p.Metrics.setDefaults()
	set(&p.Models, "list")
	set(&p.SessionTTL, caddy.Duration(o.Sessions.TTL))
	set(&p.MaxSessions, o.Sessions.Max)
	set(&p.PrefillTTL, caddy.Duration(o.PrefillTTL))
	override(&o.Stickiness, p.Stickiness)
	override(&o.RequestCost, p.RequestCost)
	override(&o.Congestion, p.Congestion)
	override(&o.Eviction, p.Eviction)
	o.Sessions.TTL = time.Duration(p.SessionTTL)
	o.Sessions.Max = p.MaxSessions
	o.PrefillTTL = time.Duration(p.PrefillTTL)
	o.PrefixIndex = !p.DisablePrefixIndex
	o.EqualSpeed = p.DisablePrefillRate
	o.KVTokens = p.KVTokens
	o.Models = modelsModes[p.Models]
	if p.Queue != nil {
		p.Queue.setDefaults()
		o.Queue = p.Queue.options()
	}
	p.options = o
}

// set gives an option that is not set its default.
func set[T comparable](option *T, fallback T) {
	var zero T
	if *option == zero {
		*option = fallback
	}
}

// override replaces a default by an option for which zero means something.
func override(fallback, option *float64) {
	if option != nil {
		*fallback = *option
	}
}

// Validate checks the ranges of the options.
func (p *LoadAwareSelection) Validate() error {
	for _, option := range []struct {
		name  string
		value float64
	}{
		{"stickiness", p.options.Stickiness},
		{"request_cost", p.options.RequestCost},
		{"congestion", p.options.Congestion},
		{"eviction", p.options.Eviction},
		{"kv_tokens", float64(p.KVTokens)},
	} {
		// written so that NaN is refused too
		if !(option.value >= 0) {
			return fmt.Errorf("%s must not be negative", option.name)
		}
	}
	if p.KVTokens > 0 && p.KVTokens < fleet.BlockTokens {
		return fmt.Errorf("kv_tokens must be at least %d, the tokens of one block", fleet.BlockTokens)
	}
	if p.MaxSessions < 1 {
		return fmt.Errorf("max_sessions must be at least 1")
	}
	if p.SessionTTL <= 0 {
		return fmt.Errorf("session_ttl must be positive")
	}
	if p.PrefillTTL <= 0 {
		return fmt.Errorf("prefill_ttl must be positive")
	}
	if _, err := parseModels(p.Models); err != nil {
		return fmt.Errorf("models %w", err)
	}
	if p.shadow != nil && p.Queue != nil {
		return errShadowQueue
	}
	if err := p.Queue.validate(); err != nil {
		return err
	}
	return p.Metrics.validate()
}

// proxyOf returns the reverse proxy that a policy is provisioned for, nil if it
// is none.
func proxyOf(ctx caddy.Context) (proxy *reverseproxy.Handler) {
	for _, module := range ctx.Modules() {
		if h, ok := module.(*reverseproxy.Handler); ok {
			proxy = h
		}
	}
	return proxy
}

// staticUpstreams returns the addresses that a reverse proxy lists.
func staticUpstreams(proxy *reverseproxy.Handler) []string {
	if proxy == nil {
		return nil
	}
	names := make([]string, 0, len(proxy.Upstreams))
	for _, u := range proxy.Upstreams {
		names = append(names, u.Dial)
	}
	return names
}

// Cleanup ends what the policy does in the background, waits for that, stores the
// sessions if no other policy does, and gives its reference to the fleet back. Requests that it placed keep theirs until
// they end.
func (p *LoadAwareSelection) Cleanup() error {
	if p.state == nil {
		return nil
	}
	p.cleanup.Do(func() {
		p.stopTasks()
		p.state.Unlist(p.listed)
		p.lease.release()
	})
	return nil
}

// Interface guards
var (
	_ caddy.Module          = (*LoadAwareSelection)(nil)
	_ caddy.Provisioner     = (*LoadAwareSelection)(nil)
	_ caddy.Validator       = (*LoadAwareSelection)(nil)
	_ caddy.CleanerUpper    = (*LoadAwareSelection)(nil)
	_ reverseproxy.Selector = (*LoadAwareSelection)(nil)
)
