// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/caddy-llm/loadaware/sessions"
)

// A session that is forgotten begins anew where its prompt is cached, also while
// a request of it is under way, which then changes nothing of the new one.
func TestForgetSessions(t *testing.T) {
	b := newBed(3)
	turn := func(session sessions.Key) Request {
		return Request{Session: session, Tokens: 5120, Blocks: text(0, 0, uint64(session), 5120), Prefills: true}
	}
	ended, home := b.place(turn(1))
	ended.End(CauseEnd, b.now)
	live, _ := b.place(turn(2))
	if got := b.ForgetSessions(); got != 2 {
		t.Errorf("ForgetSessions() = %d, want 2", got)
	}
	if v := b.View(b.now); v.Sessions != 0 || v.Upstreams[0].Sessions+v.Upstreams[1].Sessions+v.Upstreams[2].Sessions != 0 {
		t.Errorf("after it %d sessions are left, with homes in %+v", v.Sessions, v.Upstreams)
	}
	next, at := b.place(turn(1))
	if next.Reason() != ReasonNew || at != home {
		t.Errorf("the next request is %s on %d, want new on %d, where its prompt is", next.Reason(), at, home)
	}
	again, _ := b.place(turn(2))
	live.Fail(CauseError, BlameFailure, b.now)
	live.End(CauseError, b.now)
	if v := b.View(b.now); v.Sessions != 2 {
		t.Errorf("%d sessions after a request of before has failed, want 2", v.Sessions)
	}
	again.End(CauseEnd, b.now)
	next.End(CauseEnd, b.now)
	if got := b.ForgetSessions(); got != 2 {
		t.Errorf("ForgetSessions() = %d the second time, want 2", got)
	}
	if got := b.ForgetSessions(); got != 0 {
		t.Errorf("ForgetSessions() = %d of an empty table, want 0", got)
	}
}
