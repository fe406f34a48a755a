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
	link atomic.Pointer[share.Link]
}

// linked begins to count for a link, nil for none.
func (t *shareTotals) linked(l *share.Link) {
	t.told.Store(false)
	t.failing.Store(false)
	t.link.Store(l)
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
		MessagesUnreadable: link.Unreadable(),
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
