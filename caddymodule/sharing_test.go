// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/share"
)

// wishes are those of one configuration to share a fleet, in the order of their
// policies.
type wishes []*sharer

func newWishes(t *testing.T, f *fleet.Fleet, all *sharing, prefixes ...string) wishes {
	t.Helper()
	life, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var w wishes
	for _, prefix := range prefixes {
		s, err := newSharer(life, &Share{Redis: &RedisShare{Addresses: []string{"127.0.0.1:1"}, Prefix: prefix}}, "f", zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		s.prepare(f, all)
		w = append(w, s)
	}
	return w
}

// Where policies of one configuration do not agree, the last decides, and a reload
// begins no link anew that goes on as it was.
func TestPoliciesShareDifferently(t *testing.T) {
	all, f := new(sharing), fleet.New(func() uint64 { return 4 })
	links, last := 0, (*runningLink)(nil)
	each := func(w wishes, do func(*sharer)) {
		for _, s := range w {
			do(s)
			if all.link != last && all.link != nil {
				links++
			}
			last = all.link
		}
	}
	old := newWishes(t, f, all, "a:", "b:")
	each(old, (*sharer).start)
	for range 3 {
		next := newWishes(t, f, all, "a:", "b:")
		each(next, (*sharer).start)
		each(old, (*sharer).stop)
		old = next
	}
	if links != 1 || all.link.identity != old[1].identity {
		t.Errorf("%d links have begun and the last is of %x, want 1 and %x", links, all.link.identity, old[1].identity)
	}
	failed := newWishes(t, f, all, "c:", "a:")
	each(failed, (*sharer).stop)
	router := all.router
	swapped := newWishes(t, f, all, "b:", "a:")
	each(swapped, (*sharer).start)
	each(old, (*sharer).stop)
	if links != 2 || all.link.identity != swapped[1].identity || all.router != router {
		t.Errorf("%d links have begun, the last is of %x by router %x, want 2, %x and %x",
			links, all.link.identity, all.router, swapped[1].identity, router)
	}
	each(swapped, (*sharer).stop)
	if all.link != nil || len(all.started)+len(all.prepared) > 0 {
		t.Errorf("after the end there is link %v of %d policies", all.link, len(all.started)+len(all.prepared))
	}
}

// What a fleet tells over a new link is newer than all that it has told before.
func TestSerialsGoOnOverLinks(t *testing.T) {
	f := fleet.New(func() uint64 { return 4 })
	var last uint64
	for range 3 {
		f.Share(true)
		for range 2 {
			var news fleet.News
			f.News(&news, time.Now())
			if news.Serial <= last {
				t.Errorf("serial %d after %d", news.Serial, last)
			}
			last = news.Serial
		}
		f.Share(false)
	}
}

// What could not be read is counted over all links.
func TestUnreadableOverLinks(t *testing.T) {
	all, f := new(sharing), fleet.New(func() uint64 { return 4 })
	for want := uint64(1); want <= 3; want++ {
		ctx, end := context.WithCancel(t.Context())
		l := share.NewLink(f, &nonsense{end: end}, 1, nil)
		all.totals.linked(l)
		l.Hear(ctx)
		if got := all.view(new(fleet.View)).MessagesUnreadable; got != want {
			t.Errorf("%d messages are unreadable after %d links, want %d", got, want, want)
		}
		all.totals.linked(nil)
	}
}

// nonsense is a medium with one message that cannot be read, after which the link
// ends.
type nonsense struct {
	share.Medium
	end  context.CancelFunc
	told bool
}

// Receive implements share.Medium.
func (n *nonsense) Receive(context.Context, string) (share.Batch, error) {
	if n.told {
		n.end()
		return share.Batch{}, nil
	}
	n.told = true
	return share.Batch{Messages: []share.Message{{Data: []byte("nonsense")}}}, nil
}
