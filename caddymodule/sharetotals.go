// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"sync/atomic"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/share"
)

// shareTotals count what a fleet has told other Caddys and heard of them, over all
// links that it has had.
type shareTotals struct {
	sent, heard, errors atomic.Uint64

	// told says that the link has sent something, and failing that its medium has
	// failed for a while
	told, failing atomic.Bool

	// link is the one that runs, nil where the fleet is not shared
	link atomic.Pointer[countedLink]

	// unreadable is what the links that have ended could not read. Only linked
	// uses it.
	unreadable uint64
}

// countedLink is a link with what those before it could not read.
type countedLink struct {
	*share.Link
	before uint64
}

// linked begins to count for a link, nil for none. The one before has ended. The
// caller holds the lock of sharing.
func (t *shareTotals) linked(l *share.Link) {
	t.told.Store(false)
	t.failing.Store(false)
	if ended := t.link.Load(); ended != nil {
		t.unreadable = ended.before + ended.Unreadable()
	}
	if l == nil {
		t.link.Store(nil)
		return
	}
	t.link.Store(&countedLink{l, t.unreadable})
}

// view describes how a fleet is shared. It is nil where that is not to be.
func (all *sharing) view(v *fleet.View) *shareStatus {
	if all == nil {
		return nil
	}
	t := &all.totals
	link := t.link.Load()
	if link == nil {
		return nil
	}
	return &shareStatus{
		Connected:          t.told.Load() && !t.failing.Load(),
		Peers:              v.Peers,
		MessagesSent:       t.sent.Load(),
		MessagesHeard:      t.heard.Load(),
		MessagesUnreadable: link.before + link.Unreadable(),
		NewsDropped:        v.NewsDropped,
		Errors:             t.errors.Load(),
	}
}

// counted is a medium whose messages and errors are counted.
type counted struct {
	share.Medium
	totals *shareTotals
}

// Send implements share.Medium.
func (c counted) Send(ctx context.Context, message []byte) error {
	err := c.Medium.Send(ctx, message)
	if err != nil {
		c.failed(ctx)
		return err
	}
	c.totals.sent.Add(1)
	c.totals.told.Store(true)
	return nil
}

// Receive implements share.Medium.
func (c counted) Receive(ctx context.Context, after string) (share.Batch, error) {
	batch, err := c.Medium.Receive(ctx, after)
	if err != nil {
		c.failed(ctx)
		return batch, err
	}
	c.totals.heard.Add(uint64(len(batch.Messages)))
	return batch, nil
}

// failed counts an error, but none that the end of the link has made.
func (c counted) failed(ctx context.Context) {
	if ctx.Err() == nil {
		c.totals.errors.Add(1)
	}
}

// Interface guards
var _ share.Medium = counted{}
