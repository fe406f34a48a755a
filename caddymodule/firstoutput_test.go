// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"strings"
	"testing"
)

// firstSight is what a scanner that is fed byte by byte sees first, with which
// byte, and the status that it takes an error for.
func firstSight(stream []byte) (at int, seen sight, status int) {
	var s eventScanner
	for i := range stream {
		if seen := s.scan(stream[i : i+1]); seen != sightNothing {
			return i, seen, s.fault.result()
		}
	}
	return -1, sightNothing, 0
}

func TestEventScanner(t *testing.T) {
	for _, test := range []struct {
		name, early, output string
	}{
		{"data", "", "data: {\"choices\":[]}\n"},
		{"data without a space", "", "data:{\"choices\":[]}\n"},
		{"data alone", "data\n\ndata:\n\n", "data: x\n"},
		{"done", "", "data: [DONE]\n"},
		{"not JSON", "", "data: hello\n"},
		{"comments", ": keep-alive\n\n:\n\n: data: {}\n\n", "data: {}\n"},
		{"ping of the Messages API", "event: ping\ndata: {\"type\": \"ping\"}\n\n", "event: message_start\ndata: {\"type\":\"message_start\"}\n"},
		{"unnamed ping", "data: {\"type\":\"ping\"}\n\n", "data: {\"type\":\"message_start\"}\n"},
		{"unnamed ping with space", "data: { \"type\" : \"ping\" }\n\n", "data: {\"type\":\"x\"}\n"},
		{
			"Responses API", "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n" +
				"event: response.queued\ndata: {}\n\nevent: response.in_progress\ndata: {}\n\n",
			"event: response.output_item.added\ndata: {}\n",
		},
		{
			"Responses API, unnamed", "data: {\"type\":\"response.created\"}\n\ndata: {\"type\":\"response.in_progress\"}\n\n",
			"data: {\"type\":\"response.output_text.delta\"}\n",
		},
		{"the name lasts for one event", "event: ping\ndata: {}\n\n", "data: {}\n"},
		{"several lines of an early event", "event: response.created\ndata: {\ndata: }\n\n", "data: {}\n"},
		{"no data", "event: message\n\nid: 7\n\nretry: 10\n\nunknown: x\n\n", "data: x\n"},
		{"carriage returns", "event: ping\rdata: {}\r\r", "data: {}\r"},
		{"both", "event: ping\r\ndata: {}\r\n\r\n", "data: {}\r\n"},
		{"byte order mark", "\ufeffevent: ping\ndata: {}\n\n", "data: {}\n"},
		{"long early event", "data: {\"type\":\"response.created\",\"x\":\"" + strings.Repeat("data: ", 1000) + "\"}\n\n", "data: {}\n"},
		{"long comment", ": " + strings.Repeat("data: x", 1000) + "\n\n", "data: {}\n"},
		{"data that speaks of errors", "", "data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":{\"}}],\"error\":{}}\n"},
		{"no error", "", "data: {\"error\":null,\"choices\":[]}\n"},
		{"no error, in a string", "", "data: \"error\"\n"},
		{"longer name of an error", "", "event: errors\ndata: {}\n"},
		{"a type that is no string", "", "data: {\"type\":error}\n"},
		{"longer name", "event: ping\ndata: {}\n\n", "event: pings\ndata: {}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stream := []byte(test.early + test.output)
			want := len(test.early) + strings.Index(test.output, "data")
			if at, seen, _ := firstSight(stream); at < want || seen != sightOutput {
				t.Errorf("sight %v at byte %d, want output in %q from %d on", seen, at, test.output, want)
			}
			if at, seen, _ := firstSight([]byte(test.early)); seen != sightNothing {
				t.Errorf("sight %v at byte %d of %q, want none", seen, at, test.early)
			}
		})
	}
}

// A long line is told by its beginning, before its end has come.
func TestEventScannerDoesNotWaitForLongLines(t *testing.T) {
	var s eventScanner
	if seen := s.scan([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 1000))); seen != sightOutput {
		t.Errorf("sight of the first 1,000 bytes of an event = %v, want output", seen)
	}
}

// vLLM says the error in the data of an event where the headers were sent
// before. What it says of the request may be of any length.
func TestEventScannerSeesErrors(t *testing.T) {
	long := strings.Repeat(`the \\ "code": 400, \"code\": 400, `, 100)
	text, err := json.Marshal(long)
	if err != nil {
		t.Fatal(err)
	}
	message := string(text)
	created := "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}\n\n"
	for _, test := range []struct {
		name, before, event string
		status              int
	}{
		{"server", "", `data: {"error":{"message":` + message + `,"type":"InternalServerError","param":null,"code":500}}`, 500},
		{"server, spaced", ": ok\n\n", `data: { "error" : { "message" : ` + message + ` , "type" : "InternalServerError" , "code" : 502 } }`, 502},
		{"no room", "", `data: {"error":{"message":"busy","type":"Service Unavailable","code":503}}`, 503},
		{"client", "", `data: {"error":{"message":` + message + `,"type":"BadRequestError","param":"input","code":400}}`, 400},
		{"client by the code alone", "", `data: {"error":{"object":"error","message":"no","type":"x","code":422}}`, 400},
		{"client by the type alone", "", `data: {"error":{"type":"invalid_request_error","code":null,"message":` + message + `}}`, 400},
		{"in words", "", `data: {"error":"it broke"}`, 500},
		{"without a space", "", `data:{"error":{"code":400}}`, 400},
		{"code out of range", "", `data: {"error":{"code":70000}}`, 500},
		{"code far out of range", "", `data: {"error":{"code":` + strings.Repeat("4", 400) + `}}`, 500},
		{"Messages API", "event: ping\ndata: {\"type\":\"ping\"}\n\n", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":" + message + "}}", 500},
		{"Messages API, client", "", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}", 400},
		{"Messages API, no room", "", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}", 503},
		{"Messages API, unnamed", "", `data: {"type":"error","error":{"type":"BadRequestError"}}`, 400},
		{"Responses API", created, "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"no\"}", 500},
		{"Responses API, failed", created, "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"instructions\":" + message + ",\"error\":{\"code\":\"server_error\"}}}", 500},
		{"Responses API, failed, unnamed", created, `data: {"type":"response.failed","response":{"error":{"code":"invalid_prompt"}}}`, 400},
		{"not JSON", "", "event: error\ndata: it broke", 500},
		{"another name", "", "event: message\ndata: {\"error\":{\"code\":500}}", 500},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, newline := range []string{"\n", "\r\n", "\r"} {
				stream := []byte(strings.ReplaceAll(test.before+test.event+"\n", "\n", newline))
				at, seen, status := firstSight(stream)
				if want := len(stream) - len(newline); at != want || seen != sightError || status != test.status {
					t.Errorf("sight %v of status %d at byte %d, want an error of %d at %d", seen, status, at, test.status, want)
				}
				var s eventScanner
				if seen := s.scan(stream); seen != sightError || s.fault.result() != test.status {
					t.Errorf("sight of all at once = %v of status %d, want an error of %d", seen, s.fault.result(), test.status)
				}
			}
		})
	}
}

// The line of an error that breaks off is one all the same.
func TestEventScannerKnowsErrorsThatBreakOff(t *testing.T) {
	var s eventScanner
	text := `data: {"error":{"type":"BadRequestError","message":"` + strings.Repeat("x", 200)
	if seen := s.scan([]byte(text)); seen != sightNothing || !s.failing || s.fault.result() != 400 {
		t.Errorf("sight = %v, failing %v, status %d, want nothing yet, true and 400", seen, s.failing, s.fault.result())
	}
}

func FuzzEventScanner(f *testing.F) {
	f.Add([]byte("event: ping\r\ndata: {}\r\n\r\n: c\n\ndata: {\"type\":\"x\"}\n\n"), []byte{3, 1, 7})
	f.Add([]byte("data: {\"type\":\"response.created\"}\n\ndata: 1\n"), []byte{1})
	f.Add([]byte("event: response.in_progress"+strings.Repeat("x", 100)+"\ndata: x\n"), []byte{96, 0, 95})
	f.Add([]byte("\ufeffdata\r\r\n\n"), []byte{2})
	f.Add([]byte("data: {\"error\":{\"message\":\"a \\\" b\",\"type\":\"BadRequestError\",\"code\":400}}\n\n"), []byte{5, 1})
	f.Add([]byte("event: error\r\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\r\n\r\n"), []byte{90, 9})
	f.Add([]byte("data: {\"error\":{\"message\":\""+strings.Repeat("\\\\", 60)+"\",\"code\":503}}\n"), []byte{96, 1})
	f.Fuzz(func(t *testing.T, stream, sizes []byte) {
		want, wantSeen, wantStatus := firstSight(stream)
		if wantSeen == sightError && (wantStatus < 400 || wantStatus >= 600) {
			t.Errorf("status of an error = %d", wantStatus)
		}
		var s eventScanner
		at := 0
		for i := 0; at < len(stream); i++ {
			size := len(stream) - at
			if len(sizes) > 0 && i < 10*len(sizes) {
				size = min(size, int(sizes[i%len(sizes)]))
			}
			if seen := s.scan(stream[at : at+size]); seen != sightNothing {
				if want < at || want >= at+size || seen != wantSeen || s.fault.result() != wantStatus {
					t.Errorf("sight %v of status %d in bytes %d to %d, byte by byte it is %v of %d at %d",
						seen, s.fault.result(), at, at+size, wantSeen, wantStatus, want)
				}
				return
			}
			at += size
		}
		if wantSeen != sightNothing {
			t.Errorf("no sight, byte by byte it is %v at %d", wantSeen, want)
		}
	})
}
