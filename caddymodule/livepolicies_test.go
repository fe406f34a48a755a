// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// Every option that a policy has is among those that are shown as in force, and
// no value of a header and no password is.
func TestEffectiveOptions(t *testing.T) {
	weight := 1.5
	p := &LoadAwareSelection{
		Fleet: "f", SessionHeader: []string{"X-A"}, SessionTTL: caddy.Duration(time.Minute), MaxSessions: 7,
		Stickiness: &weight, RequestCost: &weight, Congestion: &weight, Eviction: &weight,
		DisablePrefixIndex: true, DisablePrefillRate: true, KVTokens: 999, Models: "off", PrefillTTL: caddy.Duration(time.Second),
		Metrics: &Metrics{Headers: http.Header{"Authorization": {"Bearer hidden"}}}, Queue: &Queue{MaxRequests: 3},
		ShadowRaw: json.RawMessage(`{"policy":"cookie"}`), shadow: reverseproxy.CookieHashSelection{Secret: "hidden"},
		Share: &Share{Redis: &RedisShare{Addresses: []string{"redis:1"}, Password: "hidden one", SentinelPassword: "hidden two"}},
	}
	p.setDefaults()
	shown := reflect.ValueOf(p.effective()).Elem()
	for i, set := 0, reflect.ValueOf(p).Elem(); i < set.NumField(); i++ {
		field := set.Type().Field(i)
		if !field.IsExported() || field.Name == "Metrics" || field.Name == "Share" {
			continue
		}
		if set.Field(i).IsZero() {
			t.Errorf("%s is not set by this test", field.Name)
		}
		if got, want := shown.Field(i).Interface(), set.Field(i).Interface(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is shown as %v, want %v", field.Name, got, want)
		}
	}
	text, err := json.Marshal(p.effective())
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); strings.Contains(s, "hidden") || !strings.Contains(s, "Authorization") || !strings.Contains(s, "redis:1") {
		t.Errorf("options = %s, want the name of the header and the address, and not the values and passwords", s)
	}
	if got := p.Share.Redis.Password; got != "hidden one" {
		t.Errorf("the policy's own password is %q after that", got)
	}
	if got := p.Metrics.Headers.Get("Authorization"); got != "Bearer hidden" {
		t.Errorf("the policy's own header is %q after that", got)
	}
}

// What is not set is shown with its default.
func TestEffectiveDefaults(t *testing.T) {
	p := new(LoadAwareSelection)
	p.setDefaults()
	text, err := json.Marshal(p.effective())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"fleet":"default"`, `"stickiness":32768`, `"request_cost":4096`, `"congestion":2`, `"eviction":4`,
		`"models":"list"`, `"max_sessions":100000`, `"path":"/metrics"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("options = %s, want %s in them", text, want)
		}
	}
}

func TestLivePolicies(t *testing.T) {
	var live livePolicies
	policy := func(listed ...string) *LoadAwareSelection {
		p := &LoadAwareSelection{listed: listed}
		p.setDefaults()
		return p
	}
	b, a, c := policy("b"), policy("a"), policy("c")
	live.remove(c)
	for _, p := range []*LoadAwareSelection{b, a, c} {
		live.add(p)
	}
	if got := live.all(); len(got) != 3 || got[0].LoadAwareSelection != a || got[1].LoadAwareSelection != b || got[2].LoadAwareSelection != c {
		t.Errorf("live policies are not in the order of their upstreams: %v", got)
	}
	live.remove(b)
	if got := live.all(); len(got) != 2 || got[1].LoadAwareSelection != c {
		t.Errorf("live policies without the second one: %v", got)
	}
}
