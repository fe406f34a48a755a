// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// FuzzParse holds what is true of any page.
func FuzzParse(f *testing.F) {
	for _, page := range []string{current, engines2, old, "", "{}\n{", "<html>", "vllm:num_requests_running{a=\"\\\"}\",} 1e3 5\n"} {
		f.Add([]byte(page))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		r, err := Parse(bytes.NewReader(page))
		if err != nil {
			if !reflect.DeepEqual(r, Report{}) {
				t.Fatalf("Parse() = %+v, %v, want nothing with an error", r, err)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		for i, n := range []Number{
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

// FuzzParseModels holds what is true of any body.
func FuzzParseModels(f *testing.F) {
	for _, body := range []string{listed, "", "{}", `{"data":[{"id":"a"},{"id":"a"},{"id":7},[]]}`, `{"data":[[[[`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		models, err := ParseModels(body)
		if err != nil {
			if models != nil {
				t.Fatalf("ParseModels() = %v, %v, want nothing with an error", models, err)
			}
			return
		}
		if len(models) > maxModels {
			t.Errorf("%d models", len(models))
		}
		seen := map[string]bool{}
		for _, m := range models {
			if m.ID == "" || len(m.ID) > maxModelID || seen[m.ID] {
				t.Errorf("ID = %q, want a distinct name", m.ID)
			}
			if !json.Valid(m.JSON) || !bytes.Contains(body, m.JSON) {
				t.Errorf("JSON = %s, want what is in the body", m.JSON)
			}
			seen[m.ID] = true
		}
	})
}

// FuzzReadUsage holds what is true of any tail.
func FuzzReadUsage(f *testing.F) {
	for _, tail := range []string{
		chatEnd, messageEnd, responseEnd, "", `"usage":{"usage":{`, `"usage":{"\`, `\"usage":{"prompt_tokens":1}`,
	} {
		f.Add([]byte(tail))
	}
	f.Fuzz(func(t *testing.T, tail []byte) {
		before := bytes.Clone(tail)
		u, ok := ReadUsage(tail)
		if !bytes.Equal(tail, before) {
			t.Fatal("ReadUsage changed the tail")
		}
		if ok != (u != Usage{}) || u.PromptTokens < 0 || ok && u.PromptTokens < 1 || u.PromptTokens > maxUsageTokens {
			t.Errorf("ReadUsage() = %+v, %v", u, ok)
		}
		if c := u.CachedTokens; c.Value < 0 || c.Value > float64(u.PromptTokens) || !c.Known && c.Value != 0 {
			t.Errorf("CachedTokens = %+v of %d", c, u.PromptTokens)
		}
		// the same tail inside a string is text
		text, err := json.Marshal(string(tail))
		if err != nil {
			t.Fatal(err)
		}
		if u, ok := ReadUsage(text); ok {
			t.Errorf("ReadUsage(%s) = %+v, want none in a string", text, u)
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
