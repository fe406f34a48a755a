// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// A reload changes nothing for the others: the same Caddy goes on to tell them what
// it holds. One that shares over something else does, and so does one that ends
// sharing; one that fails does not.
func TestReloadGoesOnSharing(t *testing.T) {
	redis := startRedis(t, "")
	upstreams := newUpstreams(t, 3, answerAtOnce)
	c := newCrew(t, 2, addresses(upstreams), redis.Addr, "")
	reload := func(options string) error {
		return c.servers[0].reload(fmt.Sprintf(sharedSite, addresses(upstreams), redis.Addr, options), "Cache-Control", "must-revalidate")
	}
	// a link of another number would be one more peer for three seconds
	peers := func() int { return c.servers[1].fleet().Share.Peers }
	goOn := func(when string) {
		t.Helper()
		before := c.servers[0].fleet().Share.Sent
		heard := c.servers[1].fleet().Share.Heard
		eventually(t, func() bool {
			if n := peers(); n != 1 {
				t.Errorf("%s: the other Caddy has %d peers, want 1", when, n)
				return true
			}
			// two Caddys tell something each second
			return c.servers[0].fleet().Share.Sent > before && c.servers[1].fleet().Share.Heard > heard+2
		}, func() string { return when + ": nothing is sent any more" })
	}
	for range 3 {
		if err := reload(""); err != nil {
			t.Fatal(err)
		}
		goOn("after a reload")
	}
	if err := reload("password {env.LOADAWARE_TEST_NO_SUCH}"); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("error %v, want one that names password", err)
	}
	goOn("after a failed reload")
	if err := reload("timeout 30ms"); err != nil {
		t.Fatal(err)
	}
	goOn("after a reload with another timeout")

	if err := reload("prefix other:"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return peers() == 0 }, func() string { return "the other Caddy still has a peer" })
	if err := reload(""); err != nil {
		t.Fatal(err)
	}
	c.meet()
	c.placesAsOne(upstreams, "back")
	for _, u := range upstreams {
		u.setAnswer(answerAtOnce)
	}

	if err := c.servers[0].reload(fmt.Sprintf(lasting, addresses(upstreams), "metrics off")); err != nil {
		t.Fatal(err)
	}
	if f := c.servers[0].fleet(); f.Share != nil {
		t.Errorf("a fleet that is not shared has %+v", f.Share)
	}
	eventually(t, func() bool { return peers() == 0 }, func() string { return "the other Caddy still has a peer" })
}

// Validation connects to nothing.
func TestValidationSharesNothing(t *testing.T) {
	redis := startRedis(t, "")
	s := newServer(t)
	var config caddy.Config
	if err := json.Unmarshal(s.adapt(fmt.Sprintf(sharedSite, "127.0.0.1:1", redis.Addr, "")), &config); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&config); err != nil {
		t.Fatal(err)
	}
	answers, err := redis.Do("DBSIZE")
	if err != nil || answers[0] != ":0" {
		t.Errorf("Redis has %v keys, %v, want none", answers, err)
	}
}
