// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/caddy-llm/loadaware/internal/redisserver/redistest"
)

// open returns a stream that waits for an answer as long as a busy machine takes.
func open(t *testing.T, o Options) *Stream {
	t.Helper()
	o.Key, o.Timeout = "news", 10*time.Second
	s := Open(o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func send(t *testing.T, s *Stream, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if err := s.Send(t.Context(), []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
}

// reader reads a stream from its start.
type reader struct {
	s     *Stream
	after string
}

// next reads once.
func (r *reader) next(t *testing.T) (messages []string, past bool) {
	t.Helper()
	batch, err := r.s.Receive(t.Context(), r.after)
	if err != nil {
		t.Fatal(err)
	}
	if batch.Next == "" {
		t.Error("there is no position to go on from")
	}
	r.after = batch.Next
	for _, m := range batch.Messages {
		messages = append(messages, string(m.Data))
	}
	return messages, batch.Past
}

// expect reads messages that come at once.
func (r *reader) expect(t *testing.T, past bool, want ...string) {
	t.Helper()
	if got, was := r.next(t); !slices.Equal(got, want) || was != past {
		t.Errorf("received %q, past: %t, want %q, past: %t", got, was, want, past)
	}
}

func TestStreamCarriesMessagesInOrder(t *testing.T) {
	server := redistest.Start(t, "")
	a := open(t, Options{Addresses: []string{server.Addr}})
	b := open(t, Options{Addresses: []string{server.Addr}})
	fromA := &reader{s: a}
	fromA.expect(t, true)
	send(t, a, "1", "2")
	send(t, b, "3", "\x00\xff\r\n")
	fromA.expect(t, false, "1", "2", "3", "\x00\xff\r\n")
	fromB := &reader{s: b}
	fromB.expect(t, true, "1", "2", "3", "\x00\xff\r\n")
	send(t, a, "5")
	fromA.expect(t, false, "5")
	fromB.expect(t, false, "5")
}

// A history of several portions is of the past to its end.
func TestHistoryIsOfThePast(t *testing.T) {
	server := redistest.Start(t, "")
	a := open(t, Options{Addresses: []string{server.Addr}})
	hour := fmt.Sprintf("%d-7", time.Now().Add(-time.Hour).UnixMilli())
	if err := a.client.XAdd(t.Context(), &driver.XAddArgs{Stream: a.key, ID: hour, Values: []string{field, "0"}}).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 2*portion + 4 {
		send(t, a, fmt.Sprint(i+1))
	}
	batch, err := a.Receive(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if first, next := batch.Messages[0].Age, batch.Messages[1].Age; first < time.Hour || next > first/2 {
		t.Errorf("messages of an hour ago and of now are of %v and %v ago", first, next)
	}
	b := open(t, Options{Addresses: []string{server.Addr}})
	r := &reader{s: b}
	n := 0
	for n < 2*portion+5 {
		messages, past := r.next(t)
		if !past || messages[0] != fmt.Sprint(n) {
			t.Fatalf("received %q, past: %t, want from %d on, past", messages, past, n)
		}
		n += len(messages)
	}
	send(t, a, "now")
	r.expect(t, false, "now")
}

// What waits for a message gets it when it is sent, and ends with the stream.
func TestReceiveWaits(t *testing.T) {
	server := redistest.Start(t, "")
	a := open(t, Options{Addresses: []string{server.Addr}})
	b := open(t, Options{Addresses: []string{server.Addr}})
	r := &reader{s: b}
	r.expect(t, true)
	got := make(chan error)
	go func() {
		batch, err := b.Receive(t.Context(), r.after)
		if err == nil && (len(batch.Messages) != 1 || batch.Past) {
			err = fmt.Errorf("received %+v", batch)
		}
		got <- err
		_, err = b.Receive(context.Background(), batch.Next)
		got <- err
	}()
	send(t, a, "late")
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-got; err == nil {
		t.Error("Receive of a closed stream succeeded")
	}
}

// A stream that was lost is read from its start, even if it begins in the past:
// the clock of another machine may be behind.
func TestStreamBeginsAnew(t *testing.T) {
	server := redistest.Start(t, "")
	a := open(t, Options{Addresses: []string{server.Addr}})
	r := &reader{s: a}
	r.expect(t, true)
	send(t, a, "1", "2")
	r.expect(t, false, "1", "2")

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(t.Context(), []byte("lost")); err == nil {
		t.Error("Send succeeded without a server")
	}
	if _, err := a.Receive(t.Context(), r.after); err == nil {
		t.Error("Receive succeeded without a server")
	}
	redistest.Start(t, server.Addr)
	late := []string{"3", "4"}
	for i, m := range late {
		args := &driver.XAddArgs{Stream: a.key, ID: fmt.Sprint("1-", i+1), Values: []string{field, m}}
		eventually(t, func() error { return a.client.XAdd(t.Context(), args).Err() })
	}
	// an id of its own, which Redis would take from its clock
	before := a.place.latest()
	a.place.wrote(position{1, 2}, before)
	r.expect(t, true, late...)
	send(t, a, "5")
	r.expect(t, false, "5")
}

// eventually tries until it succeeds: the driver connects anew in its own time.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// The stream is bounded, whoever writes to it.
func TestStreamIsBounded(t *testing.T) {
	server := redistest.Start(t, "")
	a := open(t, Options{Addresses: []string{server.Addr}})
	for range averaged {
		a.bound.saw(historyBytes)
	}
	for range leastHistory + 300 {
		send(t, a, strings.Repeat("x", 100))
	}
	n, err := a.client.XLen(t.Context(), a.key).Result()
	// Redis drops whole nodes of up to a hundred entries
	if err != nil || n > leastHistory+100 {
		t.Errorf("stream has %d entries, %v, want about %d", n, err, leastHistory)
	}
}

// What Redis refuses is said, and no password.
func TestRedisRefuses(t *testing.T) {
	const password = "very secret"
	server := redistest.Start(t, "", "--requirepass", password, "--maxmemory", "1mb")
	for _, o := range []Options{{}, {Password: "wrong one"}, {Username: "nobody", Password: password}} {
		o.Addresses = []string{server.Addr}
		s := open(t, o)
		err := s.Send(t.Context(), []byte("m"))
		if err == nil {
			t.Fatalf("Send with password %q succeeded", o.Password)
		}
		if _, err := s.Receive(t.Context(), ""); err == nil {
			t.Errorf("Receive with password %q succeeded", o.Password)
		}
		if strings.Contains(err.Error(), password) || o.Password != "" && strings.Contains(err.Error(), o.Password) {
			t.Errorf("the error tells the password: %v", err)
		}
	}
	s := open(t, Options{Addresses: []string{server.Addr}, Password: password})
	var err error
	for range 100 {
		if err = s.Send(t.Context(), make([]byte, 64<<10)); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Send to a full Redis: %v, want what Redis says", err)
	}
	if _, err := s.Receive(t.Context(), ""); err != nil {
		t.Errorf("Receive from a full Redis: %v", err)
	}
}

func TestPositions(t *testing.T) {
	for _, id := range []string{"", "1", "-", "1-", "-1", "a-1", "1-b", "1-2-3"} {
		if p, err := parsePosition(id); err == nil {
			t.Errorf("parsePosition(%q) = %v, want an error", id, p)
		}
	}
	ids := []string{"0-0", "0-1", "9-18446744073709551615", "10-0", "10-2", "10-10"}
	var ps []position
	for _, id := range ids {
		p, err := parsePosition(id)
		if err != nil || p.String() != id {
			t.Errorf("parsePosition(%q) = %v, %v", id, p, err)
		}
		ps = append(ps, p)
	}
	if !slices.IsSortedFunc(ps, position.compare) {
		t.Errorf("positions are not in order: %v", ps)
	}
}

// A user needs no more than what the documentation allows it.
func TestUserNeedsTwoCommands(t *testing.T) {
	server := redistest.Start(t, "")
	for _, command := range []string{
		"ACL SETUSER caddy on >pass ~news +xadd +xread",
		"ACL SETUSER default off",
	} {
		if _, err := server.Do(command); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, Options{Addresses: []string{server.Addr}, Username: "caddy", Password: "pass"})
	r := &reader{s: s}
	r.expect(t, true)
	send(t, s, "1")
	r.expect(t, false, "1")
}
