// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/engines"
)

// FuzzParse holds what is true of any page.
func FuzzParse(f *testing.F) {
	for _, page := range []string{current, engines2, old, "", "{}\n{", "<html>", "vllm:num_requests_running{a=\"\\\"}\",} 1e3 5\n"} {
		f.Add([]byte(page))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		r, err := Parse(bytes.NewReader(page))
		if err != nil {
			if !reflect.DeepEqual(r, engines.Report{}) {
				t.Fatalf("Parse() = %+v, %v, want nothing with an error", r, err)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		for i, n := range []engines.Number{
			r.Running, r.Waiting, r.KVUsage, r.KVTokens, r.Computed, r.Generated, r.PrefixQueries, r.PrefixHits, r.Started,
		} {
			if math.IsNaN(n.Value) || math.IsInf(n.Value, 0) || n.Value < 0 || !n.Known && n.Value != 0 {
				t.Errorf("number %d is %+v", i, n)
			}
		}
		if r.KVUsage.Value > 1 {
			t.Errorf("KVUsage = %v, want no more than 1", r.KVUsage)
		}
		if len(r.Models) > maxReportModels || !slices.IsSorted(r.Models) || len(slices.Compact(slices.Clone(r.Models))) != len(r.Models) {
			t.Errorf("Models = %q, want them bounded, sorted and distinct", r.Models)
		}
		// what is in front of the page is another's business
		again, err := Parse(strings.NewReader("other{\n\n" + string(page)))
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("Parse() = %+v, and then %+v, %v", r, again, err)
		}
	})
}

// BenchmarkParse reads a page of 300 KB, nearly all of it histograms.
func BenchmarkParse(b *testing.B) {
	var page strings.Builder
	page.WriteString(current)
	for i := 0; page.Len() < 300_000; i++ {
		fmt.Fprintf(&page, "vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"%d.0\",model_name=\"meta/large\"} 12.0\n", i)
	}
	b.SetBytes(int64(page.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(strings.NewReader(page.String())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkParseMany reads as many series as it may.
func BenchmarkParseMany(b *testing.B) {
	page := strings.Repeat("vllm:num_requests_running{engine=\"0\",model_name=\"meta/large\"} 1\n", maxSeries)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(strings.NewReader(page)); err != nil {
			b.Fatal(err)
		}
	}
}
