// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Trace is a recorded workload: [Mooncake] or [Recorded].
type Trace interface {
	// Replay returns the workload at the given rate.
	Replay(o Replay) Arrivals
}

// ReadTraceFile reads a trace in either format, compressed with gzip or not.
func ReadTraceFile(name string) (Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := ReadTrace(f)
	if err != nil {
		return nil, fmt.Errorf("reading trace %s: %w", name, err)
	}
	return t, nil
}

// ReadTrace reads a trace in either format, compressed with gzip or not. Its
// first line tells the format.
func ReadTrace(r io.Reader) (Trace, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(unzipped, 1<<16)
	}
	first, err := in.ReadBytes('\n')
	if err != nil && err != io.EOF {
		return nil, err
	}
	var format struct {
		HashIDs  json.RawMessage `json:"hash_ids"`
		Requests json.RawMessage `json:"requests"`
	}
	if err := json.Unmarshal(first, &format); err != nil {
		return nil, fmt.Errorf("parsing line 1: %w", err)
	}
	all := json.NewDecoder(io.MultiReader(bytes.NewReader(first), in))
	switch {
	case format.HashIDs != nil:
		return readMooncake(all)
	case format.Requests != nil:
		return readRecorded(all)
	default:
		return nil, fmt.Errorf("line 1 has neither hash_ids nor requests")
	}
}

// readLines decodes one value after the other to the end.
func readLines[T any](d *json.Decoder) ([]T, error) {
	var list []T
	for {
		var line T
		err := d.Decode(&line)
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("parsing value %d: %w", len(list)+1, err)
		}
		list = append(list, line)
	}
}
