// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shared is a policy with a share option.
func shared(option string) string {
	return ":80 {\n\treverse_proxy a:1 {\n\t\tlb_policy llm_loadaware {\n" + option + "\n}\n}\n}\n"
}

// What is wrong with sharing is an error that names it, on its line.
func TestBadShare(t *testing.T) {
	redis := func(options ...string) string {
		return "share redis a:1 {\n" + strings.Join(options, "\n") + "\n}"
	}
	tls := func(options ...string) string {
		return redis("tls {\n" + strings.Join(options, "\n") + "\n}")
	}
	for _, test := range []struct{ name, text, names string }{
		{"nothing", "share", "share"},
		{"an unknown medium", "share memcached a:1", "memcached"},
		{"no address", "share redis", "address"},
		{"no address and options", "share redis {\ndb 1\n}", "address"},
		{"a URL", "share redis redis://a:1/0", "address"},
		{"a user", "share redis u@a:1", "address"},
		{"a URL as medium", "share redis://a:1", "address"},
		{"several servers", "share redis a:1 b:1", "master or cluster"},
		{"twice", "share redis a:1\nshare redis a:1", "share already specified"},
		{"an unknown option", redis("nonsense 1"), "nonsense"},
		{"an option twice", redis("db 1", "db 1"), "db already specified"},
		{"no username", redis("username"), "username"},
		{"an empty username", redis(`username ""`, "password x"), "username"},
		{"two usernames", redis("username a b"), "username"},
		{"username without password", redis("username a"), "username needs password"},
		{"no password", redis("password"), "password"},
		{"an empty password", redis(`password ""`), "password"},
		{"two passwords", redis("password secret secret"), "password"},
		{"a block of password", redis("password x {", "}"), "password"},
		{"master and cluster", redis("master m", "cluster"), "both master and cluster"},
		{"no master", redis("master"), "master"},
		{"sentinel_username alone", redis("master m", "sentinel_username a"), "sentinel_username needs sentinel_password"},
		{"sentinel_password without master", redis("sentinel_password a"), "sentinel_password needs master"},
		{"cluster with an argument", redis("cluster on"), "cluster"},
		{"db of a cluster", redis("cluster", "db 1"), "db must be 0"},
		{"no db", redis("db"), "db"},
		{"a db below 0", redis("db -1"), "db"},
		{"a db with a name", redis("db x"), "db"},
		{"an empty prefix", redis(`prefix ""`), "prefix"},
		{"two prefixes", redis("prefix a b"), "prefix"},
		{"no timeout", redis("timeout"), "timeout"},
		{"a short timeout", redis("timeout 999us"), "timeout"},
		{"a timeout without a unit", redis("timeout 5"), "timeout"},
		{"a timeout below 0", redis("timeout -1s"), "timeout"},
		{"tls with an argument", redis("tls on"), "tls"},
		{"tls twice", redis("tls", "tls"), "tls already specified"},
		{"an unknown tls option", tls("nonsense"), "nonsense"},
		{"no ca", tls("ca"), "ca"},
		{"a certificate without its key", tls("client_certificate a"), "client_certificate"},
		{"a certificate and two keys", tls("client_certificate a b c"), "client_certificate"},
		{"no server_name", tls("server_name"), "server_name"},
		{"insecure_skip_verify with an argument", tls("insecure_skip_verify off"), "insecure_skip_verify"},
		{"a block of ca", tls("ca a {", "}"), "ca"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, shared(test.text), test.names, 4, 5, 6, 7, 8)
		})
	}
	for _, text := range []string{
		redis("password hush quiet"), "share redis redis://quiet:hush@a:1/0", "share redis quiet:hush@a:1", "share redis://quiet:hush@a:1",
	} {
		_, err := adapt(shared(text))
		if err == nil || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "quiet") {
			t.Errorf("%s: error %v, want one without the password", text, err)
		}
	}
}

// The Caddyfile has the same meaning as its JSON, with the placeholders as they
// are.
func TestGoodShare(t *testing.T) {
	for _, test := range []struct{ caddyfile, json string }{
		{"share redis localhost", `{"redis":{"addresses":["localhost"]}}`},
		{"share redis /run/redis.sock {\n}", `{"redis":{"addresses":["/run/redis.sock"]}}`},
		{"share redis a:1 {\ntls\n}", `{"redis":{"addresses":["a:1"],"tls":{}}}`},
		{`share redis a b:26380 {
				username {env.USER}
				password {env.PASSWORD}
				master main
				sentinel_username s
				sentinel_password {file./run/secret}
				db 3
				prefix llm:
				timeout 50ms
				tls {
					ca a.pem b.pem
					client_certificate c.pem k.pem
					server_name redis.internal
					insecure_skip_verify
				}
			}`, `{"redis":{
				"addresses":["a","b:26380"],"username":"{env.USER}","password":"{env.PASSWORD}","master":"main",
				"sentinel_username":"s","sentinel_password":"{file./run/secret}","db":3,"prefix":"llm:","timeout":50000000,
				"tls":{"ca":["a.pem","b.pem"],"client_certificate":"c.pem","client_key":"k.pem","server_name":"redis.internal",
				"insecure_skip_verify":true}}}`},
		{"share redis a b {\ncluster\n}", `{"redis":{"addresses":["a","b"],"cluster":true}}`},
	} {
		config, err := adapt(shared(test.caddyfile))
		if err != nil {
			t.Errorf("%s: %v", test.caddyfile, err)
			continue
		}
		var compact any
		if err := json.Unmarshal([]byte(test.json), &compact); err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(compact)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(config), &compact); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(compact)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(got), `"share":`+string(want)) {
			t.Errorf("%s\nis adapted to %s\nwant in it %s", test.caddyfile, got, want)
		}
	}
}

// A JSON config is held to the same, and placeholders and files to what they come to.
func TestShareInJSON(t *testing.T) {
	u := newUpstream(t, answerAtOnce)
	site := "{site0} {\nllm_loadaware\nreverse_proxy " + u.address() + " {\nlb_policy llm_loadaware\n}\n}\n"
	folder := t.TempDir()
	notPEM := filepath.Join(folder, "not.pem")
	if err := os.WriteFile(notPEM, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOADAWARE_TEST_EMPTY", "")
	t.Setenv("LOADAWARE_TEST_URL", "redis://user:hush@127.0.0.1:1")
	one := []string{"127.0.0.1:1"}
	for _, test := range []struct {
		share map[string]any
		names string
	}{
		{map[string]any{}, "redis"},
		{map[string]any{"memcached": map[string]any{}}, "memcached"},
		{map[string]any{"redis": map[string]any{}}, "address"},
		{map[string]any{"redis": map[string]any{"addresses": []string{"a", "b"}}}, "master or cluster"},
		{map[string]any{"redis": map[string]any{"addresses": []string{"redis://user:hush@127.0.0.1:1"}}}, "address"},
		{map[string]any{"redis": map[string]any{"addresses": []string{"{env.LOADAWARE_TEST_URL}"}}}, "address"},
		{map[string]any{"redis": map[string]any{"addresses": one, "password": "a{hush}b"}}, "redis password: a placeholder has no value"},
		{map[string]any{"redis": map[string]any{"addresses": one, "master": "m", "sentinel_password": "a{hush}b"}}, "redis sentinel_password: a placeholder has no value"},
		{map[string]any{"redis": map[string]any{"addresses": one, "db": -1}}, "db"},
		{map[string]any{"redis": map[string]any{"addresses": one, "timeout": -1}}, "timeout"},
		{map[string]any{"redis": map[string]any{"addresses": one, "timeout": 1}}, "timeout"},
		{map[string]any{"redis": map[string]any{"addresses": one, "password": "{env.LOADAWARE_TEST_EMPTY}"}}, "password"},
		{map[string]any{"redis": map[string]any{"addresses": one, "password": "{file." + folder + "/missing}"}}, "password"},
		{map[string]any{"redis": map[string]any{"addresses": one, "password": "{nonsense.placeholder}"}}, "password"},
		{map[string]any{"redis": map[string]any{"addresses": one, "tls": map[string]any{"ca": []string{folder + "/missing"}}}}, "tls ca"},
		{map[string]any{"redis": map[string]any{"addresses": one, "tls": map[string]any{"ca": []string{notPEM}}}}, "tls ca"},
		{map[string]any{"redis": map[string]any{"addresses": one, "tls": map[string]any{"client_certificate": notPEM}}}, "client_key"},
		{map[string]any{"redis": map[string]any{"addresses": one, "tls": map[string]any{"client_certificate": notPEM, "client_key": notPEM}}}, "client_certificate"},
	} {
		s := newServer(t)
		base := s.adapt(site)
		var config any
		if err := json.Unmarshal(base, &config); err != nil {
			t.Fatal(err)
		}
		setIn(config, "policy", "share", test.share)
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		s.run(base)
		if err := s.reloadJSON(string(text)); err == nil || !strings.Contains(err.Error(), test.names) || strings.Contains(err.Error(), "hush") {
			t.Errorf("share %v: error %v, want one that names %s and shows no secret", test.share, err, test.names)
		}
	}
}
