// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"encoding/json"
	"fmt"
	"time"
)

// Replay says how a trace is replayed.
type Replay struct {
	// Rate is how many sessions begin per second, or requests come where the
	// trace has no sessions.
	Rate float64
	// BlockTokens is the length of a block.
	BlockTokens int
	// Seed selects the sessions.
	Seed uint64
	// Within is how long the sessions take to join that began before the run.
	Within time.Duration
	// MaxThink is the longest time between two requests of a session: who
	// comes back later comes back then.
	MaxThink time.Duration
}

// Recorded is a trace of agent sessions, one per line. A session's requests
// follow each other by think time, and its sub-agents run beside their parent's
// wait, as requests of the same session.
type Recorded []recordedSession

type recordedSession struct {
	ToolTokens   int               `json:"tool_tokens"`
	SystemTokens int               `json:"system_tokens"`
	Requests     []recordedRequest `json:"requests"`
}

// recordedRequest is a request, or a sub-agent if its type says so.
type recordedRequest struct {
	Type      string      `json:"type"`
	Input     int         `json:"in"`
	Output    int         `json:"out"`
	ThinkTime float64     `json:"think_time"` // seconds
	APITime   float64     `json:"api_time"`   // seconds
	HashRuns  [][2]uint64 `json:"hash_runs"`  // first id and count, for 64 tokens each

	recordedSession // of a sub-agent
}

const (
	// recordedBlock is how many tokens one id of the format stands for.
	recordedBlock = 64

	typeStreamed = "s"
	typeSubAgent = "subagent"
)

func readRecorded(d *json.Decoder) (Trace, error) {
	list, err := readLines[recordedSession](d)
	if err != nil {
		return nil, err
	}
	usable := list[:0]
	for _, s := range list {
		if s.Requests = s.awaited(); len(s.Requests) > 0 {
			usable = append(usable, s)
		}
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("no session has a request")
	}
	return Recorded(usable), nil
}

// awaited are the requests without the sub-agents that nobody waits for: those
// after the last request.
func (s *recordedSession) awaited() []recordedRequest {
	n := len(s.Requests)
	for n > 0 && s.Requests[n-1].Type == typeSubAgent {
		n--
	}
	return s.Requests[:n]
}

// Replay returns sessions drawn from the trace. The same session may be drawn
// more than once, with other texts each time.
func (t Recorded) Replay(o Replay) Arrivals {
	longest := time.Duration(0)
	for i := range t {
		longest = max(longest, t[i].length(o))
	}
	session := func(seed uint64) *Script {
		return t[random(seed).IntN(len(t))].script(o, seed, seed)
	}
	return Midway(Poisson(o.Rate, o.Seed, session), o.Rate, o.Seed, o.Within, longest, session)
}

// length is how long the session lasts on a fleet with little load.
func (s *recordedSession) length(o Replay) (d time.Duration) {
	for i := range s.Requests {
		d += s.Requests[i].think(o) + seconds(s.Requests[i].APITime)
	}
	return d
}

func (q *recordedRequest) think(o Replay) time.Duration {
	return min(seconds(max(q.ThinkTime, 0)), o.MaxThink)
}

// script is the session's script, in which writer wrote all that is not tools
// or system prompt.
func (s *recordedSession) script(o Replay, session, writer uint64) *Script {
	var steps []Step
	var requests []*recordedRequest
	var beside []*Script
	for i := range s.Requests {
		q := &s.Requests[i]
		if q.Type == typeSubAgent {
			if sub := q.recordedSession; len(sub.awaited()) > 0 {
				sub.Requests = sub.awaited()
				beside = append(beside, sub.script(o, session, writer))
			}
			continue
		}
		steps = append(steps, Step{Think: q.think(o), Took: seconds(q.APITime), Beside: beside})
		requests = append(requests, q)
		beside = nil
	}
	names := s.names(o)
	return &Script{Steps: steps, Request: func(step int) Request {
		r := names.request(requests[step], writer)
		r.Session = session
		return r
	}}
}
