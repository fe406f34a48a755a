// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// script is an answer that an upstream writes piece by piece, as the test sends
// them.
type script struct {
	header map[string]string
	pieces chan string
}

func newScript(header map[string]string) *script {
	return &script{header, make(chan string)}
}

func (s *script) answer(w http.ResponseWriter, r *http.Request) {
	for field, value := range s.header {
		w.Header().Set(field, value)
	}
	w.WriteHeader(http.StatusOK)
	flush(w)
	for {
		select {
		case piece, more := <-s.pieces:
			if !more {
				return
			}
			io.WriteString(w, piece)
			flush(w)
		case <-r.Context().Done():
			return
		}
	}
}

// write makes the upstream write a piece, and waits until the client has it:
// then it has passed through Caddy.
func (s *script) write(t *testing.T, client io.Reader, piece string) {
	t.Helper()
	s.pieces <- piece
	got := make([]byte, len(piece))
	if _, err := io.ReadFull(client, got); err != nil || string(got) != piece {
		t.Fatalf("client got %q, %v, want %q", got, err, piece)
	}
}

// begin sends a request and returns the response when its headers are there.
func begin(t *testing.T, site, path, body string, header ...string) *http.Response {
	t.Helper()
	res, err := send(t.Context(), site, path, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %d", res.StatusCode)
	}
	return res
}

// rest reads a response to its end.
func rest(t *testing.T, res *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("reading response: %v", err)
	}
	return string(text)
}

// unstreamed is the form of a chat request that is answered in one piece.
func unstreamed(body string) string {
	return strings.Replace(body, `"stream":true`, `"stream":false`, 1)
}

const oneSite = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware
	}
}
`

// vLLM sends the response headers before it has begun with the prompt. A router
// that takes them for the end of the prefill sees an idle upstream where a
// prompt of 20,000 tokens is still to be read.
func TestHeadersReleaseNothing(t *testing.T) {
	st := newStage()
	up := newUpstream(t, st.answer)
	s := start(t, fmt.Sprintf(oneSite, up.address()))

	res := begin(t, s.sites[0], chatPath, chat(words("prompt", 20_000)))
	if got := s.fleet().of(up); got.RequestsInFlight != 1 || got.RequestsWaiting != 1 || got.PrefillTokens < 20_000 {
		t.Errorf("after the headers: %+v, want 1 in flight and waiting with 20000 tokens", got)
	}
	close(st.output)
	if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := s.fleet().of(up); got.RequestsInFlight != 1 || got.RequestsWaiting != 0 || got.PrefillTokens != 0 {
		t.Errorf("after the first event: %+v, want 1 in flight without tokens", got)
	}
	close(st.end)
	if text := rest(t, res); !strings.HasSuffix(text, "data: [DONE]\n\n") {
		t.Errorf("response ends %q", text)
	}
	s.settled()
	if got := s.fleet().of(up).Releases; got["first_output"] != 1 || sum(got) != 1 {
		t.Errorf("releases = %v, want one by first_output", got)
	}
}

const (
	responsesPath = "/v1/responses"
	messagesPath  = "/v1/messages"
)

// responses is a streamed request of the Responses API.
func responses(text string) string {
	body, err := json.Marshal(map[string]any{"model": "m", "stream": true, "input": text})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// What comes before the first output of the engine holds the tokens, however it
// is cut into writes.
func TestFirstOutput(t *testing.T) {
	// more of one line than any buffer for it is likely to hold
	long := `"response":{"id":"resp_` + strings.Repeat("0", 300) + `","status":"in_progress"}`
	announced := `event: response.created
data: {"type":"response.created","sequence_number":0,` + long + `}

event: response.queued
data: {"type":"response.queued","sequence_number":1}

event: response.in_progress
data: {"type":"response.in_progress","sequence_number":2,` + long + `}

`
	content := "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n"
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	io.WriteString(zip, content)
	zip.Close()

	events := map[string]string{"Content-Type": "text/event-stream"}
	tests := []struct {
		name   string
		path   string
		body   string
		header map[string]string
		early  string
		output string
	}{
		{"nothing before", chatPath, chat("hello"), events, "", content},
		{"charset", chatPath, chat("hello"), map[string]string{"Content-Type": "Text/Event-Stream; charset=utf-8"}, ": ok\n\n", content},
		{"comments", chatPath, chat("hello"), events, ": keep-alive\n\n:\n\n: data: not this\n\n", content},
		{"fields without data", chatPath, chat("hello"), events, "retry: 3000\n\nid: 1\n\nevent: token\n\n", content},
		{"byte order mark", chatPath, chat("hello"), events, "\ufeffevent: ping\ndata: {}\n\n", content},
		{
			"pings", messagesPath, chat("hello"), events,
			"event: ping\ndata: {\"type\": \"ping\"}\n\nevent:ping\ndata:{}\ndata:{}\n\n",
			"event: message_start\ndata: {\"type\":\"message_start\"}\n\n",
		},
		{"pings without a name", messagesPath, chat("hello"), events, "data: {\"type\":\"ping\"}\n\ndata: { \"type\" : \"ping\" }\n\n", content},
		{
			"announced response", responsesPath, responses("hello"), events, announced,
			"event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\"}\n\n",
		},
		{
			"ping after a data-less event", chatPath, chat("hello"), events,
			"event: delta\n\nevent: ping\ndata: {}\n\n", content,
		},
		{
			"gzip", chatPath, chat("hello"),
			map[string]string{"Content-Type": "text/event-stream", "Content-Encoding": "gzip"},
			"", zipped.String(),
		},
		{"JSON", chatPath, unstreamed(chat("hello")), map[string]string{"Content-Type": "application/json"}, "", `{"choices":[]}`},
		{"no type", chatPath, unstreamed(chat("hello")), map[string]string{"Content-Type": ""}, "", "{}"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			up := newUpstream(t, nil)
			s := start(t, fmt.Sprintf(oneSite, up.address()))
			for _, newline := range []string{"\n", "\r\n", "\r"} {
				early := strings.ReplaceAll(test.early, "\n", newline)
				t.Run(fmt.Sprintf("whole, lines end with %q", newline), func(t *testing.T) {
					checkFirstOutput(t, s, up, test.path, test.body, test.header, []string{early}, test.output)
				})
				t.Run(fmt.Sprintf("byte by byte, lines end with %q", newline), func(t *testing.T) {
					checkFirstOutput(t, s, up, test.path, test.body, test.header, strings.Split(early, ""), test.output)
				})
				if early == "" {
					break
				}
			}
		})
	}
}

// The scanner sees the two halves of a stream that is cut anywhere.
func TestFirstOutputCutAnywhere(t *testing.T) {
	up := newUpstream(t, nil)
	s := start(t, fmt.Sprintf(oneSite, up.address()))
	for _, newline := range []string{"\n", "\r\n"} {
		early := strings.ReplaceAll(": ok\n\nevent: ping\ndata: {}\n\ndata: {\"type\":\"ping\"}\n\n", "\n", newline)
		for at := 1; at < len(early); at++ {
			checkFirstOutput(t, s, up, chatPath, chat("hello"), map[string]string{"Content-Type": "text/event-stream"},
				[]string{early[:at], early[at:]}, "data: {}\n\n")
		}
	}
	s.settled()
}

// checkFirstOutput lets up send the early pieces and then output, and checks
// that the tokens are held before and released after it, with the first byte
// where no events are looked for.
func checkFirstOutput(t *testing.T, s *server, up *upstream, path, body string, header map[string]string, early []string, output string) {
	t.Helper()
	answer := newScript(header)
	up.setAnswer(answer.answer)
	// a client that asks for gzip itself gets it as it is
	res := begin(t, s.sites[0], path, body, "Accept-Encoding", "gzip")
	var sent strings.Builder
	for _, piece := range early {
		if piece != "" {
			answer.write(t, res.Body, piece)
		}
		sent.WriteString(piece)
		if got := s.fleet().of(up); got.RequestsWaiting != 1 || got.PrefillTokens == 0 {
			t.Fatalf("after %q: %+v, want 1 waiting", sent.String(), got)
		}
	}
	first := output
	if len(early) == 1 && early[0] == "" && !strings.HasPrefix(output, "data") {
		first = output[:1]
	}
	answer.write(t, res.Body, first)
	if got := s.fleet().of(up); got.RequestsInFlight != 1 || got.RequestsWaiting != 0 || got.PrefillTokens != 0 {
		t.Errorf("after %q: %+v, want 1 in flight and nothing held", sent.String()+first, got)
	}
	if first != output {
		answer.write(t, res.Body, output[len(first):])
	}
	close(answer.pieces)
	if text := rest(t, res); text != "" {
		t.Errorf("response goes on with %q", text)
	}
	s.settled()
}

// An unstreamed request shows nothing until it is complete, long after its
// prefill. vLLM prefills in order of arrival, so the first output of a later
// request on the same upstream tells.
func TestSilentRequestIsInferred(t *testing.T) {
	upstreams := newUpstreams(t, 2, nil)
	s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))

	answer := newScript(map[string]string{"Content-Type": "application/json"})
	var before []upstreamStatus
	silent := make([]*http.Response, 2)
	for i := range silent {
		for _, u := range upstreams {
			u.setAnswer(answer.answer)
		}
		silent[i] = begin(t, s.sites[0], chatPath, unstreamed(chat(words(fmt.Sprint("silent ", i), 8000))))
	}
	before = s.fleet().Upstreams
	for _, u := range before {
		if u.RequestsWaiting != 1 || u.PrefillTokens < 8000 {
			t.Fatalf("upstreams = %+v, want one waiting on each", before)
		}
	}

	streamed := open(t, s, upstreams, chat(words("streamed", 100)))
	streamed.show(s)
	for _, u := range upstreams {
		got := s.fleet().of(u)
		if u != streamed.at {
			if got.RequestsWaiting != 1 || got.PrefillTokens < 8000 || sum(got.Releases) != 0 {
				t.Errorf("upstream that showed nothing: %+v, want one waiting", got)
			}
			continue
		}
		if got.RequestsInFlight != 2 || got.RequestsWaiting != 0 || got.PrefillTokens != 0 {
			t.Errorf("upstream that showed output: %+v, want 2 in flight and nothing held", got)
		}
		if got.Releases["inferred"] != 1 || got.Releases["first_output"] != 1 || sum(got.Releases) != 2 {
			t.Errorf("releases = %v, want one inferred and one by first output", got.Releases)
		}
	}
	streamed.end()
	close(answer.pieces)
	for _, res := range silent {
		rest(t, res)
	}
	s.settled()
}
