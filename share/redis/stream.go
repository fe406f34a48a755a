// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/caddy-llm/loadaware/share"
)

const (
	// block is how long a read waits for something new.
	block = time.Second

	// readTimeout is how much longer than that it may take.
	readTimeout = 2 * time.Second

	// portion is how many messages are read at once. A read that fails may have
	// been of too many for the connection: the next one is of a quarter.
	portion = 128

	// between is the least time between two reads of what is new. Much that comes
	// soon after one another takes few reads, and what comes alone waits for none.
	between = 20 * time.Millisecond

	// field is the name of the one field of an entry.
	field = "m"
)

// Stream is a medium over one stream in Redis. It has up to three connections,
// and makes them anew as they are needed.
type Stream struct {
	client  driver.UniversalClient
	key     string
	timeout time.Duration
	bound   bound
	place   place

	// portion is how many messages are read next, and due is when; only the reader
	// has them
	portion int
	due     time.Time
}

// Open returns the stream. Nothing is connected before it is used.
func Open(o Options) *Stream {
	return &Stream{client: o.client(), key: o.Key, timeout: o.Timeout, portion: portion}
}

// Close ends all connections, and with them what waits for an answer.
func (s *Stream) Close() error { return s.client.Close() }

// Send writes a message to the stream, with one command. It fails if Redis does
// not answer in time; the message may then have been written all the same.
func (s *Stream) Send(ctx context.Context, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.timeout, connectTimeout)+s.timeout)
	defer cancel()
	before := s.place.latest()
	id, err := s.client.XAdd(ctx, &driver.XAddArgs{
		Stream: s.key,
		MaxLen: s.bound.messages(),
		Approx: true,
		Values: []any{field, message},
	}).Result()
	if err != nil {
		return fmt.Errorf("writing to stream: %w", err)
	}
	at, err := parsePosition(id)
	if err != nil {
		return err
	}
	s.place.wrote(at, before)
	return nil
}

// Receive implements [share.Medium]. What is written to a stream that has begun
// anew, as where Redis was started without it, follows every position.
//
// When ctx is done it returns within a second, or at once if the stream is closed
// too.
func (s *Stream) Receive(ctx context.Context, after string) (share.Batch, error) {
	for {
		start := after == "" || s.place.anew()
		if start {
			after = position{}.String()
		} else if err := s.wait(ctx); err != nil {
			return share.Batch{}, err
		}
		batch, err := s.read(ctx, after, start)
		if err != nil || len(batch.Messages) > 0 || start {
			return batch, err
		}
		if err := ctx.Err(); err != nil {
			return share.Batch{}, err
		}
	}
}

// wait waits until the next read is due.
func (s *Stream) wait(ctx context.Context) error {
	timer := time.NewTimer(time.Until(s.due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read returns the messages after a position. It waits for them a while, but not
// from the start of the stream on.
func (s *Stream) read(ctx context.Context, after string, start bool) (share.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, block+readTimeout)
	defer cancel()
	args := driver.XReadArgs{Streams: []string{s.key, after}, Count: int64(s.portion), Block: block}
	if start {
		// without it the answer would have to come as soon as any other
		args.Block = time.Millisecond
	}
	streams, err := s.client.XRead(ctx, &args).Result()
	if err != nil && !errors.Is(err, driver.Nil) {
		s.portion = max(s.portion/4, 1)
		return share.Batch{}, fmt.Errorf("reading stream: %w", err)
	}
	batch := share.Batch{Next: after}
	var at position
	entries, now := 0, time.Now()
	for _, stream := range streams {
		for _, entry := range stream.Messages {
			entries++
			batch.Next = entry.ID
			if at, err = parsePosition(entry.ID); err != nil {
				return share.Batch{}, err
			}
			if text, ok := entry.Values[field].(string); ok {
				s.bound.saw(len(text))
				batch.Messages = append(batch.Messages, share.Message{Data: []byte(text), Age: at.age(now)})
			}
		}
	}
	batch.Past = s.place.read(at, start, entries == s.portion)
	if entries < s.portion {
		s.due = time.Now().Add(between)
	}
	s.portion = min(2*s.portion, portion)
	return batch, nil
}

// Interface guards
var _ share.Medium = (*Stream)(nil)
