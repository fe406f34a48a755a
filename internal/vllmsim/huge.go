// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"context"
	"io"
	"strconv"
)

// hugePage is the size of the page of MetricsHuge in bytes, give or take a line.
const hugePage = 50_000_000

// writeFiller writes series of one counter, each with a label of its own, until there are enough bytes or nobody reads
// them.
func writeFiller(ctx context.Context, w io.Writer, size int) {
	const flushed = 32 << 10
	page := make([]byte, 0, flushed+100)
	page = append(page, "# HELP vllm:request_success Count of successfully processed requests.\n"+
		"# TYPE vllm:request_success counter\n"...)
	for i := int64(0); size > 0 && ctx.Err() == nil; i++ {
		page = append(page, `vllm:request_success_total{engine="0",finished_reason="reason-`...)
		page = strconv.AppendInt(page, i, 10)
		page = append(page, "\",model_name=\"filler\"} 1\n"...)
		if len(page) < min(flushed, size) {
			continue
		}
		if _, err := w.Write(page); err != nil {
			return
		}
		size -= len(page)
		page = page[:0]
	}
}
