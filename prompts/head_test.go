// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import "testing"

func head(t *testing.T, path, body string) uint64 {
	t.Helper()
	e, ok := Lookup(path)
	if !ok {
		t.Fatalf("Lookup(%q) knows nothing", path)
	}
	return e.Read([]byte(body), true, "application/json", Limits{}).Head
}

// The head tells the turns of one agent from those of another.
func TestHead(t *testing.T) {
	const (
		chat     = "/v1/chat/completions"
		messages = "/v1/messages"
		tools    = `"tools":[{"type":"function","function":{"name":"ls"}}]`
	)
	first := head(t, chat, `{"model":"m",`+tools+`,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]}`)
	if first == 0 {
		t.Fatal("Head = 0, want one for tools and a system message")
	}
	tests := []struct {
		name, path, body string
		same             bool
	}{
		{"next turn", chat, `{"model":"m",` + tools + `,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"},{"role":"assistant","content":"hi"},{"role":"user","content":"go on"}]}`, true},
		{"history summed up", chat, `{"model":"m",` + tools + `,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"summary"}]}`, true},
		{"messages first", chat, `{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}],` + tools + `,"model":"m"}`, true},
		{"streamed", chat, `{"stream":true,"model":"m",` + tools + `,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]}`, true},
		{"other instructions", chat, `{"model":"m",` + tools + `,"messages":[{"role":"system","content":"be long"},{"role":"user","content":"hello"}]}`, false},
		{"no tools", chat, `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]}`, false},
		{"other model", chat, `{"model":"n",` + tools + `,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]}`, false},
		{"system of the messages API", messages, `{"model":"m",` + tools + `,"system":"be brief","messages":[{"role":"user","content":"hello"}]}`, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := head(t, test.path, test.body)
			if (got == first) != test.same {
				t.Errorf("Head = %x, first turn's %x, want the same: %v", got, first, test.same)
			}
		})
	}
	for name, body := range map[string]string{
		"user alone": `{"model":"m","messages":[{"role":"user","content":"hello"}]}`,
		"nothing":    `{"model":"m"}`,
	} {
		if got := head(t, chat, body); got != 0 {
			t.Errorf("%s: Head = %x, want 0", name, got)
		}
	}
	if got := head(t, "/v1/responses", `{"model":"m","instructions":"be brief","input":"hello"}`); got == 0 {
		t.Error("responses with instructions: Head = 0")
	}
}
