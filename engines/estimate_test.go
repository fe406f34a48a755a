// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"math"
	"testing"
)

// learned returns the estimate after so many prompts of textBytes with so many
// bytes to the token.
func learned(prompts, textBytes int, perToken float64) *Estimate {
	var e Estimate
	for range prompts {
		e.Learn(textBytes, int(math.Round(float64(textBytes)/perToken)), 4)
	}
	return &e
}

func TestEstimateConverges(t *testing.T) {
	tests := []struct {
		name     string
		perToken float64
		want     float64
	}{
		{"as assumed", 4, 4},
		{"source code", 3, 3},
		{"long tokens", 5.5, 5.5},
		{"shorter than any text", 0.5, leastBytesPerToken},
		{"longer than any text", 100, mostBytesPerToken},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := learned(1000, 100_000, test.perToken).BytesPerToken(4)
			if math.Abs(got-test.want) > 0.01 {
				t.Errorf("BytesPerToken() of a model of %v = %v, want %v", test.perToken, got, test.want)
			}
		})
	}
}

// A model far from the assumption is known after a dozen long prompts: more
// than half of the way is done. From then on one prompt moves little.
func TestEstimateFirstPromptsCountMore(t *testing.T) {
	after := learned(12, 100_000, 2).BytesPerToken(4)
	if after > 3 {
		t.Errorf("BytesPerToken() after a dozen prompts of 2 = %v, want at most 3", after)
	}
	settled := learned(1000, 100_000, 4)
	settled.Learn(100_000, 50_000, 4)
	if got, want := settled.BytesPerToken(4), 4-estimateMost*2; math.Abs(got-want) > 1e-3 {
		t.Errorf("BytesPerToken() after one prompt of 2 = %v, want %v", got, want)
	}
}

// One long prompt tells more than a short one, whose chat template weighs more.
func TestEstimateWeighsLength(t *testing.T) {
	last := 4.0
	for _, size := range []int{estimateLeastBytes, 16 << 10, 48 << 10} {
		got := learned(1, size, 2).BytesPerToken(4)
		if got >= last {
			t.Errorf("BytesPerToken() after a prompt of %v bytes = %v, want less than %v after a shorter one", size, got, last)
		}
		last = got
	}
	if got := learned(1, 48<<20, 2).BytesPerToken(4); got != last {
		t.Errorf("BytesPerToken() after a very long prompt = %v, want %v as after a long one", got, last)
	}
}

func TestEstimateLearnsNothing(t *testing.T) {
	var none *Estimate
	if got := none.BytesPerToken(4); got != 4 {
		t.Errorf("BytesPerToken() of no estimate = %v, want 4", got)
	}
	tests := []struct {
		name              string
		textBytes, tokens int
	}{
		{"a short prompt", estimateLeastBytes - 1, 1000},
		{"no text", 0, 1000},
		{"less than no text", -9, 1000},
		{"no tokens", 100_000, 0},
		{"less than no tokens", 100_000, -1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Estimate
			e.Learn(test.textBytes, test.tokens, 4)
			if got := e.BytesPerToken(3.5); got != 3.5 {
				t.Errorf("BytesPerToken(3.5) after Learn(%v, %v) = %v, want 3.5", test.textBytes, test.tokens, got)
			}
			before := learned(20, 100_000, 3)
			want := before.BytesPerToken(4)
			before.Learn(test.textBytes, test.tokens, 4)
			if got := before.BytesPerToken(4); got != want {
				t.Errorf("BytesPerToken() after Learn(%v, %v) = %v, want %v as before", test.textBytes, test.tokens, got, want)
			}
		})
	}
}

// Whatever a response claims, the estimate stays what text can be.
func TestEstimateIsBounded(t *testing.T) {
	var e Estimate
	for i := range 1000 {
		e.Learn([]int{math.MaxInt, 1 << 20, estimateLeastBytes}[i%3], []int{1, math.MaxInt}[i%2], 4)
		if got := e.BytesPerToken(4); !(got >= leastBytesPerToken && got <= mostBytesPerToken) {
			t.Fatalf("BytesPerToken() after %v prompts = %v, want %v to %v", i+1, got, leastBytesPerToken, mostBytesPerToken)
		}
	}
}
