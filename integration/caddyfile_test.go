// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// option is an option of a grammar with what it takes and what it refuses.
type option struct {
	name string
	good string
	bad  []string

	// list says that it takes any number of arguments, block that it takes a
	// block, and repeats that it may be given again
	list, block, repeats bool
}

var handlerOptions = []option{
	{name: "max_body", good: "1MiB", bad: []string{"0", "-1", "x", "1XB", "99999999999EB", "9EiB", `""`}},
	{name: "max_buffered", good: "2GB", bad: []string{"0", "-1", "x", "1XB", "99999999999EB", `""`}},
	{name: "max_prompt_tokens", good: "1000", bad: []string{"0", "-1", "x", "1.5", "99999999999999999999", `""`}},
	{name: "media_tokens", good: "500", bad: []string{"0", "-1", "x", "1.5", "99999999999999999999", `""`}},
}

var policyOptions = []option{
	{name: "fleet", good: "blue", bad: []string{`""`}},
	{name: "session_header", good: "X-One X-Two", list: true},
	{name: "session_ttl", good: "2h", bad: []string{"0", "0s", "-1s", "x", "5", `""`}},
	{name: "max_sessions", good: "10", bad: []string{"0", "-1", "x", "1.5", "99999999999999999999", `""`}},
	{name: "stickiness", good: "0", bad: []string{"-1", "x", "nan", "inf", "-inf", "1e999", `""`}},
	{name: "request_cost", good: "100.5", bad: []string{"-1", "x", "NaN", "Infinity", "1e999", `""`}},
	{name: "congestion", good: "0.5", bad: []string{"-0.1", "x", "nan", "+Inf", "1e999", `""`}},
	{name: "eviction", good: "1e3", bad: []string{"-1", "x", "nan", "infinity", "1e999", `""`}},
	{name: "prefix_index", good: "off", bad: []string{"on", "OFF", `""`}},
	{name: "prefill_rate", good: "off", bad: []string{"on", "OFF", `""`}},
	{name: "kv_tokens", good: "100000", bad: []string{"0", "-1", "x", "1.5", "99999999999999999999", `""`}},
	{name: "models", good: "prefer", bad: []string{"on", "LIST", "none", `""`}},
	{name: "prefill_ttl", good: "5m", bad: []string{"0", "-1m", "x", "5", `""`}},
	{name: "metrics", good: "/metrics?engine=1", bad: []string{"on", "OFF", "metrics", "http://a/metrics", "off off", "/%", `""`}, block: true},
	{name: "shadow", good: "header X-Session-ID", bad: []string{"nonsense", "test_no_selector", "llm_loadaware", "header", "round_robin extra", `""`}, list: true, block: true},
}

var metricsOptions = []option{
	{name: "interval", good: "100ms", bad: []string{"0", "-1s", "99ms", "x", "5", `""`}},
	{name: "timeout", good: "1ms", bad: []string{"0", "0s", "-1s", "x", "5", `""`}},
	{name: "port", good: "65535", bad: []string{"0", "-1", "65536", "x", "80-90", `""`}},
	{name: "header", good: "Authorization {env.KEY}", bad: []string{"Authorization", `"" x`}, repeats: true},
}

var queueOptions = []option{
	{name: "max_prefill_tokens", good: "100000", bad: []string{"0", "-1", "x", "1.5", "99999999999999999999", `""`}},
	{name: "max_waiting", good: "10", bad: []string{"0", "-1", "x", "1.5", "99999999999999999999", `""`}},
	{name: "max_wait", good: "10s", bad: []string{"0", "0s", "-1s", "x", "5", `""`}},
	{name: "priority_header", good: "X-Class", bad: []string{`""`}},
}

var statusOptions = []option{
	{name: "interval", good: "250ms", bad: []string{"0", "-1s", "99ms", "61s", "x", "5", `""`}},
	{name: "max_viewers", good: "5", bad: []string{"0", "-1", "x", "1.5", "99999999999999999999", `""`}},
}

// grammar is a directive or policy: what comes before its options and after.
type grammar struct {
	name, before, after string
	options             []option
}

var grammars = []grammar{
	{"handler", ":80 {\n\tllm_loadaware%s {\n", "\t}\n}\n", handlerOptions},
	{"policy", ":80 {\n\treverse_proxy a:1 {\n\t\tlb_policy llm_loadaware%s {\n", "\t\t}\n\t}\n}\n", policyOptions},
	{
		"metrics", ":80 {\n\treverse_proxy a:1 {\n\t\tlb_policy llm_loadaware {\n\t\t\tmetrics /metrics%s {\n",
		"\t\t\t}\n\t\t}\n\t}\n}\n", metricsOptions,
	},
	{
		"queue", ":80 {\n\treverse_proxy a:1 {\n\t\tlb_policy llm_loadaware {\n\t\t\tqueue%s {\n",
		"\t\t\t\tmax_requests 1\n\t\t\t}\n\t\t}\n\t}\n}\n", queueOptions,
	},
	{"status", ":80 {\n\tllm_loadaware_status blue%s {\n", "\t}\n}\n", statusOptions},
}

func adapt(text string) (string, error) {
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	if err == nil && len(warnings) > 0 {
		for _, w := range warnings {
			if !strings.Contains(w.Message, "not formatted") {
				err = fmt.Errorf("warning: %v", w)
			}
		}
	}
	return string(config), err
}

var lineOf = regexp.MustCompile(`Caddyfile:(\d+)`)

// refused fails unless a Caddyfile is refused with the option's name and one of
// the lines.
func refused(t *testing.T, text, name string, lines ...int) {
	t.Helper()
	config, err := adapt(text)
	if err == nil {
		t.Errorf("adapted to %s\nwant an error, of:\n%s", config, text)
		return
	}
	if !strings.Contains(err.Error(), name) {
		t.Errorf("error %q does not name %s, of:\n%s", err, name, text)
	}
	found := lineOf.FindStringSubmatch(err.Error())
	if found == nil {
		t.Errorf("error %q names no line", err)
		return
	}
	if line, _ := strconv.Atoi(found[1]); !slices.Contains(lines, line) {
		t.Errorf("error %q names line %d, want %v of:\n%s", err, line, lines, text)
	}
}

func TestBadCaddyfiles(t *testing.T) {
	for _, g := range grammars {
		first := strings.Count(g.before, "\n") + 1
		with := func(options ...string) string {
			return fmt.Sprintf(g.before, "") + strings.Join(options, "\n") + "\n" + g.after
		}
		t.Run(g.name+"/unknown option", func(t *testing.T) {
			refused(t, with("nonsense 1"), "nonsense", first)
			refused(t, with(g.options[0].name+" "+g.options[0].good, "nonsense"), "nonsense", first+1)
			refused(t, with("nonsense {", "x", "}"), "nonsense", first)
		})
		t.Run(g.name+"/argument after the name", func(t *testing.T) {
			for _, argument := range []string{" extra", ` ""`, " two more"} {
				refused(t, fmt.Sprintf(g.before, argument)+g.after, "argument", first-1)
			}
		})
		for _, o := range g.options {
			line := o.name + " " + o.good
			t.Run(g.name+"/"+o.name+"/missing argument", func(t *testing.T) {
				refused(t, with(o.name), o.name, first)
				refused(t, with(o.name+" {", "x", "}"), o.name, first, first+1)
			})
			t.Run(g.name+"/"+o.name+"/extra argument", func(t *testing.T) {
				if !o.list {
					refused(t, with(line+" extra"), o.name, first)
				}
			})
			t.Run(g.name+"/"+o.name+"/repeated", func(t *testing.T) {
				if o.repeats {
					return
				}
				refused(t, with(line, line), o.name, first+1)
			})
			t.Run(g.name+"/"+o.name+"/block", func(t *testing.T) {
				refused(t, with(line+" {", "x", "}"), o.name, first, first+1)
			})
			t.Run(g.name+"/"+o.name+"/empty block", func(t *testing.T) {
				if o.block {
					return
				}
				refused(t, with(line+" {", "}"), o.name, first, first+1)
			})
			for _, bad := range o.bad {
				t.Run(g.name+"/"+o.name+"/bad value "+bad, func(t *testing.T) {
					refused(t, with(o.name+" "+bad), o.name, first)
				})
			}
			t.Run(g.name+"/"+o.name+"/good", func(t *testing.T) {
				config, err := adapt(with(line))
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(config, `"`+o.name+`":`) && !strings.Contains(config, `"`+o.name+`s":`) && !strings.Contains(config, `"disable_`+o.name+`":true`) {
					t.Errorf("adapted config has no %s: %s", o.name, config)
				}
			})
		}
	}
}

// What is wrong with metrics as a whole.
func TestBadMetrics(t *testing.T) {
	for _, test := range []struct{ name, text string }{
		{"nothing", "metrics"},
		{"an empty block and nothing else", "metrics {\n}"},
		{"off with options", "metrics off {\ninterval 1s\n}"},
		{"off with an empty block", "metrics off {\n}"},
		{"off and a path", "metrics off /metrics"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, ":80 {\n\treverse_proxy a:1 {\n\t\tlb_policy llm_loadaware {\n"+test.text+"\n}\n}\n}\n", "metrics", 4, 5)
		})
	}
}

// What is wrong with a queue as a whole.
func TestBadQueue(t *testing.T) {
	for _, test := range []struct{ name, text, names string }{
		{"nothing", "queue", "queue"},
		{"an empty block", "queue {\n}", "queue"},
		{"no limit", "queue {\nmax_waiting 5\n}", "max_requests"},
		{"off", "queue off", "queue"},
		{"no requests at all", "queue {\nmax_requests 0\n}", "max_requests"},
		{"twice", "queue {\nmax_requests 1\n}\nqueue {\nmax_requests 1\n}", "queue already specified"},
		{"an option twice", "queue {\nmax_requests 1\nmax_requests 1\n}", "max_requests"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, ":80 {\n\treverse_proxy a:1 {\n\t\tlb_policy llm_loadaware {\n"+test.text+"\n}\n}\n}\n", test.names, 4, 5, 6, 7)
		})
	}
}

func TestGoodCaddyfiles(t *testing.T) {
	for _, test := range []struct{ name, caddyfile, routes string }{
		{
			name: "bare",
			caddyfile: `:80 {
	llm_loadaware
	reverse_proxy a:1 b:2 {
		lb_policy llm_loadaware
	}
}`,
			routes: `[{"handle": [
				{"handler": "llm_loadaware"},
				{
					"handler": "reverse_proxy",
					"load_balancing": {"selection_policy": {"policy": "llm_loadaware"}},
					"upstreams": [{"dial": "a:1"}, {"dial": "b:2"}]
				}
			]}]`,
		},
		{
			name: "empty blocks",
			caddyfile: `:80 {
	llm_loadaware {
	}
	reverse_proxy a:1 {
		lb_policy llm_loadaware {
		}
	}
}`,
			routes: `[{"handle": [
				{"handler": "llm_loadaware"},
				{
					"handler": "reverse_proxy",
					"load_balancing": {"selection_policy": {"policy": "llm_loadaware"}},
					"upstreams": [{"dial": "a:1"}]
				}
			]}]`,
		},
		{
			name: "every option",
			caddyfile: `:80 {
	reverse_proxy a:1 {
		lb_retries 2
		lb_policy llm_loadaware {
			fleet blue
			session_header X-One x-two
			session_ttl 2d
			max_sessions 10
			stickiness 0
			request_cost 100.5
			congestion 0
			eviction 1e3
			prefix_index off
			prefill_rate off
			kv_tokens 100000
			models prefer
			prefill_ttl 1m30s
			metrics /stats?all {
				interval 500ms
				timeout 2s
				port 9
				header Authorization "Bearer {env.KEY}"
				header x-one 1
				header X-One 2
			}
			queue {
				max_prefill_tokens 200000
				max_requests 64
				max_waiting 500
				max_wait 1m
				priority_header x-class
			}
		}
		lb_try_interval 1s
	}
	llm_loadaware /v1/* {
		max_body 1MiB
		max_buffered 2GB
		max_prompt_tokens 1000
		media_tokens 500
	}
}`,
			routes: `[
				{
					"match": [{"path": ["/v1/*"]}],
					"handle": [{
						"handler": "llm_loadaware",
						"max_body": 1048576,
						"max_buffered": 2000000000,
						"max_prompt_tokens": 1000,
						"media_tokens": 500
					}]
				},
				{"handle": [{
					"handler": "reverse_proxy",
					"load_balancing": {
						"retries": 2,
						"selection_policy": {
							"policy": "llm_loadaware",
							"fleet": "blue",
							"session_header": ["X-One", "x-two"],
							"session_ttl": 172800000000000,
							"max_sessions": 10,
							"stickiness": 0,
							"request_cost": 100.5,
							"congestion": 0,
							"eviction": 1000,
							"disable_prefix_index": true,
							"disable_prefill_rate": true,
							"kv_tokens": 100000,
							"models": "prefer",
							"prefill_ttl": 90000000000,
							"metrics": {
								"path": "/stats?all",
								"interval": 500000000,
								"timeout": 2000000000,
								"port": 9,
								"headers": {"Authorization": ["Bearer {env.KEY}"], "X-One": ["1", "2"]}
							},
							"queue": {
								"max_prefill_tokens": 200000,
								"max_requests": 64,
								"max_waiting": 500,
								"max_wait": 60000000000,
								"priority_header": "x-class"
							}
						},
						"try_interval": 1000000000
					},
					"upstreams": [{"dial": "a:1"}]
				}]}
			]`,
		},
		{
			name: "in the shadow of another policy",
			caddyfile: `:80 {
	reverse_proxy a:1 {
		lb_policy llm_loadaware {
			shadow header X-One {
				fallback random_choose 3
			}
			fleet blue
		}
	}
}`,
			routes: `[{"handle": [{
				"handler": "reverse_proxy",
				"load_balancing": {"selection_policy": {
					"policy": "llm_loadaware",
					"fleet": "blue",
					"shadow": {"policy": "header", "field": "X-One", "fallback": {"policy": "random_choose", "choose": 3}}
				}},
				"upstreams": [{"dial": "a:1"}]
			}]}]`,
		},
		{
			name: "without metrics",
			caddyfile: `:80 {
	reverse_proxy a:1 {
		lb_policy llm_loadaware {
			metrics off
			models off
		}
	}
}`,
			routes: `[{"handle": [{
				"handler": "reverse_proxy",
				"load_balancing": {"selection_policy": {
					"policy": "llm_loadaware", "metrics": {"disabled": true}, "models": "off"
				}},
				"upstreams": [{"dial": "a:1"}]
			}]}]`,
		},
		{
			name: "order of directives",
			caddyfile: `:80 {
	reverse_proxy a:1
	handle /x {
		respond x
	}
	encode gzip
	llm_loadaware
	request_header X-A b
}`,
			routes: `[
				{"handle": [
					{"handler": "headers", "request": {"set": {"X-A": ["b"]}}},
					{"handler": "encode", "encodings": {"gzip": {}}, "prefer": ["gzip"]},
					{"handler": "llm_loadaware"}
				]},
				{
					"match": [{"path": ["/x"]}],
					"handle": [{"handler": "subroute", "routes": [{"handle": [{"handler": "static_response", "body": "x"}]}]}]
				},
				{"handle": [{"handler": "reverse_proxy", "upstreams": [{"dial": "a:1"}]}]}
			]`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, err := adapt(test.caddyfile)
			if err != nil {
				t.Fatal(err)
			}
			var config struct {
				Apps struct {
					HTTP struct {
						Servers struct {
							Srv0 struct{ Routes any }
						}
					}
				}
			}
			var want any
			if err := json.Unmarshal([]byte(text), &config); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.routes), &want); err != nil {
				t.Fatal(err)
			}
			got, _ := json.MarshalIndent(config.Apps.HTTP.Servers.Srv0.Routes, "", "  ")
			wanted, _ := json.MarshalIndent(want, "", "  ")
			if !bytes.Equal(got, wanted) {
				t.Errorf("routes = %s\nwant %s", got, wanted)
			}
			// what adapts also provisions
			s := start(t, strings.Replace(test.caddyfile, ":80", "{site0}", 1))
			fleet := "default"
			if strings.Contains(test.caddyfile, "fleet blue") {
				fleet = "blue"
			}
			if status, text := s.get("/llm_loadaware/fleets/" + fleet); status != 200 && strings.Contains(test.caddyfile, "lb_policy") {
				t.Errorf("GET fleet %s: status %d: %s", fleet, status, text)
			}
		})
	}
}

// setIn sets a field in every module of a config that has name as its policy or
// handler.
func setIn(config any, kind, field string, value any) {
	switch config := config.(type) {
	case map[string]any:
		if config[kind] == "llm_loadaware" {
			config[field] = value
			return
		}
		for _, child := range config {
			setIn(child, kind, field, value)
		}
	case []any:
		for _, child := range config {
			setIn(child, kind, field, value)
		}
	}
}

func TestJSONConfigs(t *testing.T) {
	u := newUpstream(t, answerAtOnce)
	caddyfile := fmt.Sprintf(siteConfig, u.address(), "", "")
	// the largest integer that survives Caddy's decoding of configs as floats
	const huge = 1<<63 - 1<<10
	for _, test := range []struct {
		kind, field string
		value       any
		loads       bool
	}{
		{"handler", "max_bodies", 1, false},
		{"handler", "max_body", -1, false},
		{"handler", "max_body", "1MiB", false},
		{"handler", "max_body", 1.5, false},
		{"handler", "max_buffered", -1, false},
		{"handler", "max_prompt_tokens", -1, false},
		{"handler", "media_tokens", -1, false},
		{"policy", "sticky", 1, false},
		{"policy", "stickiness", -1, false},
		{"policy", "stickiness", "NaN", false},
		{"policy", "request_cost", -0.5, false},
		{"policy", "congestion", -1, false},
		{"policy", "eviction", -1, false},
		{"policy", "kv_tokens", -1, false},
		{"policy", "max_sessions", -1, false},
		{"policy", "session_ttl", -1, false},
		{"policy", "session_ttl", "-1s", false},
		{"policy", "prefill_ttl", -1, false},
		{"policy", "disable_prefix_index", "off", false},
		{"policy", "disable_prefill_rate", "off", false},
		{"policy", "session_header", "X-One", false},
		{"policy", "fleet", 1, false},
		{"policy", "models", "all", false},
		{"policy", "metrics", "off", false},
		{"policy", "metrics", map[string]any{"path": "metrics"}, false},
		{"policy", "metrics", map[string]any{"path": "/%"}, false},
		{"policy", "metrics", map[string]any{"interval": "99ms"}, false},
		{"policy", "metrics", map[string]any{"interval": -1}, false},
		{"policy", "metrics", map[string]any{"timeout": -1}, false},
		{"policy", "metrics", map[string]any{"port": -1}, false},
		{"policy", "metrics", map[string]any{"port": 65536}, false},
		{"policy", "metrics", map[string]any{"headers": map[string]any{"": []string{"x"}}}, false},
		{"policy", "metrics", map[string]any{}, true},
		{"policy", "metrics", map[string]any{"disabled": true}, true},
		{"policy", "metrics", map[string]any{
			"path": "/", "interval": "100ms", "timeout": 1, "port": 65535,
			"headers": map[string]any{"authorization": []string{"{env.NO_SUCH_KEY}"}, "X-Empty": []string{}},
		}, true},
		{"policy", "shadow", "least_conn", false},
		{"policy", "shadow", map[string]any{}, false},
		{"policy", "shadow", map[string]any{"policy": "nonsense"}, false},
		{"policy", "shadow", map[string]any{"policy": "test_no_selector"}, false},
		{"policy", "shadow", map[string]any{"policy": "random_choose", "choose": 1}, false},
		{"policy", "shadow", map[string]any{"policy": "header", "field": "X-One", "fallback": map[string]any{"policy": "llm_loadaware"}}, false},
		{"policy", "shadow", map[string]any{"policy": "header", "field": "X-One"}, true},
		{"policy", "models", "", true},
		{"policy", "models", "list", true},
		{"policy", "models", "prefer", true},
		{"policy", "models", "off", true},

		// zero is a value of its own for weights, and stands for the default
		// where it could mean nothing else
		{"policy", "stickiness", 0, true},
		{"policy", "request_cost", 0, true},
		{"policy", "congestion", 0, true},
		{"policy", "eviction", 0, true},
		{"policy", "kv_tokens", 0, true},
		{"policy", "max_sessions", 0, true},
		{"policy", "session_ttl", 0, true},
		{"policy", "prefill_ttl", 0, true},
		{"policy", "session_header", []string{}, true},
		{"handler", "max_body", 0, true},

		// the ends of the ranges
		{"handler", "max_body", 1, true},
		{"handler", "max_body", 1 << 40, true},
		{"handler", "max_body", 1<<40 + 1, false},
		{"handler", "max_body", int64(huge), false},
		{"handler", "max_buffered", 1, true},
		{"handler", "max_buffered", 1 << 40, true},
		{"handler", "max_buffered", int64(huge), false},
		{"handler", "max_prompt_tokens", 1, true},
		{"handler", "max_prompt_tokens", 1 << 40, true},
		{"handler", "max_prompt_tokens", int64(huge), false},
		{"handler", "media_tokens", 1 << 40, true},
		{"handler", "media_tokens", int64(huge), false},
		{"policy", "kv_tokens", 255, false},
		{"policy", "kv_tokens", 256, true},
		{"policy", "kv_tokens", int64(huge), true},
		{"policy", "max_sessions", 1, true},
		{"policy", "max_sessions", int64(huge), true},
		{"policy", "session_ttl", 1, true},
		{"policy", "session_ttl", int64(huge), true},
		{"policy", "prefill_ttl", 1, true},
		{"policy", "prefill_ttl", int64(huge), true},
		{"policy", "stickiness", 1e308, true},
		{"policy", "request_cost", 1e308, true},
		{"policy", "congestion", 1e308, true},
		{"policy", "eviction", 1e308, true},
	} {
		t.Run(fmt.Sprintf("%s %s %v", test.kind, test.field, test.value), func(t *testing.T) {
			s := newServer(t)
			base := s.adapt(caddyfile)
			var config any
			if err := json.Unmarshal(base, &config); err != nil {
				t.Fatal(err)
			}
			setIn(config, test.kind, test.field, test.value)
			text, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if test.loads {
				s.run(text)
				// what loads also serves
				for range 3 {
					media := `{"model":"m","stream":true,"messages":[{"role":"user","content":[` +
						`{"type":"image_url","image_url":{"url":"http://a/b"}},{"type":"image_url","image_url":{"url":"http://a/c"}},` +
						`{"type":"text","text":"hello"}]}]}`
					if status, answer := exchange(t, s.sites[0], chatPath, media, "X-Session-ID", "s"); status != 200 {
						t.Errorf("status %d: %s", status, answer)
					}
				}
				s.settled()
				return
			}
			s.run(base)
			switch err := s.reloadJSON(string(text)); {
			case err == nil:
				t.Error("loaded, want an error")
			case !strings.Contains(err.Error(), test.field):
				t.Errorf("error %q does not name %s", err, test.field)
			}
		})
	}
}
