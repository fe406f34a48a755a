// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// Result is what a run has measured.
type Result struct {
	// Overloaded says that the run was ended because its queues only grew.
	// The other numbers are those until then.
	Overloaded bool `json:"overloaded,omitempty"`

	// Requests is how many requests were sent, and Lost how many of them had
	// no answer.
	Requests int `json:"requests"`
	Lost     int `json:"lost"`

	// TTFT is the time from sending a request to its first output, through all
	// of its placements. What has shown none by the end counts as far as it
	// has waited.
	TTFT TTFT `json:"ttft_seconds"`

	// SlowOutput is the speed in tokens per second that 95 % of the answers
	// exceed, each measured from its first to its last token.
	SlowOutput float64 `json:"slow_output_tokens_per_second"`

	// HitRate is the share of prompt tokens that came from prefix caches.
	HitRate float64 `json:"hit_rate"`

	// Spread is the most prefill tokens that an engine has computed, as a
	// multiple of the mean.
	Spread float64 `json:"spread"`

	// Moves is the share of a session's turns that another engine served than
	// the turn before.
	Moves float64 `json:"moves"`

	// Scene is the TTFT around a scene's moment, as its 95 % quantile in
	// seconds, and Work how many prompt tokens the engines have computed per
	// second there.
	Scene *Around `json:"scene,omitempty"`
	Work  *Around `json:"scene_computed_tokens_per_second,omitempty"`
}

// TTFT holds quantiles of the time to the first output and the longest one, in
// seconds.
type TTFT struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Around is a value for the minute before a moment, for the first and the second
// minute after it, and from then on.
type Around struct {
	Before float64 `json:"before"`
	First  float64 `json:"first_minute"`
	Second float64 `json:"second_minute"`
	Later  float64 `json:"later"`
}

// result sums the run up.
func (r *run) result() Result {
	m := &r.measures
	for _, a := range r.live {
		if a.request.FirstOutput == 0 && m.counts(a.sent) {
			m.wait(a.sent, r.now-a.sent)
		}
	}
	ttft, speed := sortedCopy(m.ttft), sortedCopy(m.speed)
	result := Result{
		Overloaded: m.overloaded,
		Requests:   m.requests,
		Lost:       m.lostRequests,
		TTFT:       TTFT{quantile(ttft, 0.50), quantile(ttft, 0.90), quantile(ttft, 0.95), quantile(ttft, 0.99), quantile(ttft, 1)},
		SlowOutput: quantile(speed, 0.05),
		HitRate:    share(m.cached, m.prompt),
		Spread:     r.spread(),
		Moves:      share(m.moves, m.turns),
	}
	if m.half > 0 {
		var p parts
		for i := range p {
			p[i] = quantile(sortedCopy(m.minutes[i]), 0.95)
		}
		result.Scene, result.Work = p.around(), r.workAround().around()
	}
	return result
}

func (p *parts) around() *Around {
	return &Around{Before: p[0], First: p[1], Second: p[2], Later: p[3]}
}

// workAround is how much the engines have computed per second in each part. A
// run that was ended before has no work in what is left.
func (r *run) workAround() *parts {
	m := &r.measures
	var p parts
	for i := range p {
		begin := m.half + time.Duration(i-1)*time.Minute
		end, until := begin+time.Minute, r.work()
		if i == len(p)-1 {
			end = r.now
		} else {
			until = m.work[i+1]
		}
		if end > begin && r.now >= end {
			p[i] = float64(until-m.work[i]) / (end - begin).Seconds()
		}
	}
	return &p
}

// spread compares the prefill work of the engines since measuring began.
func (r *run) spread() float64 {
	var sum, most int64
	for i, e := range r.engines {
		computed := e.Stats().PrefillTokens
		if i < len(r.measures.computed) {
			computed -= r.measures.computed[i]
		}
		sum += computed
		most = max(most, computed)
	}
	if sum == 0 {
		return 0
	}
	return float64(most) * float64(len(r.engines)) / float64(sum)
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
