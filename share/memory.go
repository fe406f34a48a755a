// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// remembered is how many messages [Memory] keeps.
const remembered = 4096

// Memory is a medium among fleets of one process. Its zero value is ready.
type Memory struct {
	// Delay is how long a message is under way. It is set before the first
	// message.
	Delay time.Duration

	mu sync.Mutex

	// guarded by mu

	// messages are the last ones, and sent is how many there were in all
	messages []delayed
	sent     int

	// more is closed with the next message, nil while nobody waits
	more chan struct{}
}

// delayed is a message with when it arrives.
type delayed struct {
	message []byte
	arrives time.Time
}

// Send implements Medium. It never fails.
func (m *Memory) Send(_ context.Context, message []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.messages) == remembered {
		m.messages = append(m.messages[:0], m.messages[remembered/2:]...)
	}
	m.messages = append(m.messages, delayed{append([]byte(nil), message...), time.Now().Add(m.Delay)})
	m.sent++
	if m.more != nil {
		close(m.more)
		m.more = nil
	}
	return nil
}

// Receive implements Medium.
func (m *Memory) Receive(ctx context.Context, after string) (Batch, error) {
	if after == "" {
		batch, _, _ := m.take(0)
		batch.Past = true
		return batch, nil
	}
	from, err := strconv.Atoi(after)
	if err != nil {
		return Batch{}, fmt.Errorf("reading position: %w", err)
	}
	for {
		batch, more, arrives := m.take(from)
		if len(batch.Messages) > 0 {
			return batch, nil
		}
		var timer <-chan time.Time
		if !arrives.IsZero() {
			timer = time.After(time.Until(arrives))
		}
		select {
		case <-more:
		case <-timer:
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// take returns the messages after a position that have arrived, or what to wait
// for where there are none: another message, and the arrival of one.
func (m *Memory) take(from int) (batch Batch, more <-chan struct{}, arrives time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := max(from-(m.sent-len(m.messages)), 0)
	now := time.Now()
	for ; at < len(m.messages) && !m.messages[at].arrives.After(now); at++ {
		d := m.messages[at]
		batch.Messages = append(batch.Messages, Message{Data: d.message, Age: now.Sub(d.arrives) + m.Delay})
	}
	batch.Next = strconv.Itoa(m.sent - len(m.messages) + at)
	if at < len(m.messages) {
		arrives = m.messages[at].arrives
	}
	if m.more == nil {
		m.more = make(chan struct{})
	}
	return batch, m.more, arrives
}

// Interface guards
var _ Medium = (*Memory)(nil)
