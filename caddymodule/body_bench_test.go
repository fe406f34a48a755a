// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
)

func BenchmarkReadBody(b *testing.B) {
	for _, size := range []int{1000, 50_000, 500_000, 5_000_000} {
		b.Run(fmt.Sprintf("%d KB", size/1000), func(b *testing.B) {
			text := bytes.Repeat([]byte("x"), size)
			b.ReportAllocs()
			for b.Loop() {
				r := &http.Request{Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(size)}
				held, _ := readBody(r, defaultMaxBody, defaultMaxBuffered)
				held.drop()
			}
		})
	}
}
