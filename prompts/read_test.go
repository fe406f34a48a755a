// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"strings"
	"testing"
)

// read reads a complete JSON body sent to path.
func read(t *testing.T, path, body string) Prompt {
	t.Helper()
	e, ok := Lookup(path)
	if !ok {
		t.Fatalf("Lookup(%q) does not know it", path)
	}
	return e.Read([]byte(body), true, "application/json", Limits{})
}

// shapes has a row for every way in which a prompt can stand in a body. The
// words of the row are what is charged, one after another; all else in the
// body costs nothing.
var shapes = []struct {
	name, path, body string
	words            []string
	ids, media       int64
}{
	{
		"chat", "/v1/chat/completions",
		`{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello there","name":"ann"}],"temperature":0.5,"user":"u"}`,
		[]string{"be brief", "hello there", "ann"},
		0, 0,
	},
	{
		"chat parts", "/v1/chat/completions",
		`{"messages":[{"role":"user","content":[{"type":"text","text":"one "},"two ",{"type":"input_text","text":"three"},{"type":"refusal","refusal":"no"}]}]}`,
		[]string{"one ", "two ", "three", "no"},
		0, 0,
	},
	{
		"chat tools", "/v1/chat/completions",
		`{"tools":[ {"type": "function", "function": {"name": "f"}, "cache_control": {"type": "ephemeral"} } ],` +
			`"messages":[{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},` +
			`{"role":"tool","tool_call_id":"call_1","content":"result"}]}`,
		[]string{`{"type":"function","function":{"name":"f"}}`, "hm", "f", `{"a":1}`, "result"},
		0, 0,
	},
	{
		"chat documents", "/v1/chat/completions",
		`{"documents":[{"title":"t", "text":"long ago"}],"messages":[{"role":"user","content":"when"}]}`,
		[]string{`{"title":"t","text":"long ago"}`, "when"},
		0, 0,
	},
	{
		"chat media", "/v1/chat/completions",
		`{"messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA","detail":"low"}},` +
			`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},{"type":"video_url","video_url":{"url":"http://v"}},` +
			`{"type":"audio_url","audio_url":{"url":"http://a"}},{"type":"image_url","image_url":null,"uuid":"picture-1"},{"type":"file","file":{"file_data":"AAAA"}}]}]}`,
		[]string{"look"},
		0, 6,
	},
	{
		"batch", "/v1/chat/completions/batch",
		`{"tools":[{"name":"f"}],"messages":[[{"role":"user","content":"first"}],[{"role":"user","content":"second"}]]}`,
		[]string{`{"name":"f"}`, `{"name":"f"}`, "first", "second"},
		0, 0,
	},
	{"completion", "/v1/completions", `{"prompt":"once upon","n":4,"best_of":4}`, []string{"once upon"}, 0, 0},
	{"completion list", "/v1/completions", `{"prompt":["once","twice"]}`, []string{"once", "twice"}, 0, 0},
	{"completion ids", "/v1/completions", `{"prompt":[1, 22,333 ]}`, nil, 3, 0},
	{"completion id lists", "/v1/completions", `{"prompt":[[1,2],[3],[]]}`, nil, 3, 0},
	{"completion embeds", "/v1/completions", `{"prompt_embeds":["AAAA","BBBB"],"prompt":"also"}`, []string{"also"}, 0, 2},
	{"completion embed", "/v1/completions", `{"prompt_embeds":"AAAA"}`, nil, 0, 1},
	{
		"responses string", "/v1/responses",
		`{"instructions":"be kind","input":"hello","previous_response_id":"resp_1"}`,
		[]string{"be kind", "hello"},
		0, 0,
	},
	{
		"responses items", "/v1/responses",
		`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_image","image_url":"http://i"},{"type":"input_file","file_data":"AAAA","filename":"f"}]},` +
			`{"type":"reasoning","id":"rs_1","encrypted_content":"xxxx","summary":[{"type":"summary_text","text":"thought"}],"content":[{"type":"reasoning_text","text":"deep"}]},` +
			`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"done"},` +
			`{"type":"custom_tool_call_output","output":[{"type":"input_text","text":"more"}]},` +
			`{"type":"computer_call","action":{"type":"wait"}},{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"http://s"}},` +
			`{"type":"item_reference","id":"msg_1"}]}`,
		[]string{"hi", "thought", "deep", "f", "{}", "done", "more", `{"type":"wait"}`},
		0, 3,
	},
	{
		"messages", "/v1/messages",
		`{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},{"type":"text","text":"be good","cache_control":{"type":"ephemeral"}}],` +
			`"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sssss"},` +
			`{"type":"redacted_thinking","data":"xxxx"},{"type":"text","text":"ok"},{"type":"tool_use","id":"t","name":"f","input":{ "a" : "\u00e9" }}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"res"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},` +
			`{"type":"tool_result","tool_use_id":"t","content":"plain"}]}],"metadata":{"user_id":"u"}}`,
		[]string{"be good", "hi", "hm", "ok", "f", `{"a":"é"}`, "res", "plain"},
		0, 1,
	},
	{
		"messages documents", "/v1/messages",
		`{"system":"short","messages":[{"role":"user","content":[{"type":"document","title":"t","source":{"type":"text","media_type":"text/plain","data":"a file"}},` +
			`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"inside"}]}},{"type":"document","source":{"type":"base64","data":"AAAA"}},` +
			`{"type":"search_result","source":"http://s","title":"t","content":[{"type":"text","text":"found"}]}]}]}`,
		[]string{"short", "a file", "inside", "found"},
		0, 1,
	},
	{
		"cohere chat", "/cohere/v2/chat",
		`{"documents":["a doc",{"data":{"t":"x"}}],"messages":[{"role":"user","content":[{"type":"document","document":{"id":"1","data":{"t":"y"}}}]},{"role":"assistant","tool_plan":"plan","tool_calls":[]}]}`,
		[]string{`"a doc"`, `{"data":{"t":"x"}}`, `{"t":"y"}`, "plan"},
		0, 0,
	},
	{"embeddings", "/v1/embeddings", `{"input":["a text","b"],"encoding_format":"base64"}`, []string{"a text", "b"}, 0, 0},
	{"embeddings ids", "/v1/embeddings", `{"input":[[1,2],[3,4]]}`, nil, 4, 0},
	{"embeddings chat", "/v1/embeddings", `{"messages":[{"role":"user","content":"embed me"}]}`, []string{"embed me"}, 0, 0},
	{
		"embed", "/v2/embed",
		`{"texts":["one","two"],"images":["data:image/png;base64,AAAA"],"inputs":[{"content":[{"type":"text","text":"three"},{"type":"image_url","image_url":{"url":"http://i"}}]}]}`,
		[]string{"one", "two", "three"},
		0, 2,
	},
	{"pooling", "/pooling", `{"input":"pool"}`, []string{"pool"}, 0, 0},
	{"pooling data", "/pooling", `{"data":{"data":"http://i","data_format":"url"}}`, nil, 0, 1},
	{"classify", "/classify", `{"input":["x","yz"]}`, []string{"x", "yz"}, 0, 0},
	{"score one to two", "/score", `{"text_1":"query","text_2":["a","bb"]}`, []string{"query", "query", "a", "bb"}, 0, 0},
	{"score two to two", "/v1/score", `{"queries":["q","r"],"documents":["a","bb"]}`, []string{"q", "r", "a", "bb"}, 0, 0},
	{"score two to three", "/v1/score", `{"data_1":["q","r"],"data_2":["a","bb","c"]}`, []string{"qqq", "rrr", "aa", "bbbb", "cc"}, 0, 0},
	{"score media", "/score", `{"text_1":{"content":[{"type":"image_url","image_url":{"url":"http://i"}}]},"text_2":["a","b"]}`, []string{"a", "b"}, 0, 2},
	{"rerank", "/v2/rerank", `{"query":"which","documents":["d1",{"text":"d2"},"d3"]}`, []string{"which", "which", "which", "d1", "d2", "d3"}, 0, 0},
	{"rerank nothing", "/rerank", `{"query":"which","documents":[]}`, []string{"which"}, 0, 0},
	{"generative scoring", "/generative_scoring", `{"query":[1,2,3],"items":[[4],[5]]}`, nil, 8, 0},
	{"generate", "/inference/v1/generate", `{"token_ids":[1,2,3,4],"features":{"mm_hashes":{"image":["abc"]}},"sampling_params":{"stop_token_ids":[1]}}`, nil, 4, 0},
	{"invocations chat", "/invocations", `{"messages":[{"role":"user","content":"hi"}]}`, []string{"hi"}, 0, 0},
	{"invocations completion", "/invocations", `{"prompt":"hi"}`, []string{"hi"}, 0, 0},
	{"invocations score", "/invocations", `{"text_1":"hi","text_2":"ho"}`, []string{"hi", "ho"}, 0, 0},
	{"invocations rerank", "/invocations", `{"query":"hi","documents":["ho"]}`, []string{"hi", "ho"}, 0, 0},
	{"invocations embeddings", "/invocations", `{"input":"hi"}`, []string{"hi"}, 0, 0},
	{"invocations ids", "/invocations", `{"token_ids":[7]}`, nil, 1, 0},
	{"escapes", "/v1/completions", `{"prompt":"\u00e9\n\ud83d\ude42\"\/\ud800x"}`, []string{"é\n🙂\"/\ufffdx"}, 0, 0},
	{"null fields", "/v1/chat/completions", `{"tools":null,"messages":[{"role":null,"content":null}],"metadata":null}`, nil, 0, 0},
	{"wrong kinds", "/v1/chat/completions", `{"tools":3,"system":true,"messages":{"a":1},"model":[],"stream":{}}`, nil, 0, 0},
	{"no prompt", "/v1/completions", `{}`, nil, 0, 0},
}

func TestReadCharges(t *testing.T) {
	for _, tc := range shapes {
		t.Run(tc.name, func(t *testing.T) {
			p := read(t, tc.path, tc.body)
			text := int64(len(strings.Join(tc.words, "")))
			media := tc.media * DefaultMediaTokens
			if p.TextBytes != text || p.TokenIDs != tc.ids || p.MediaTokens != media {
				t.Errorf("Read charges %d bytes, %d ids, %d for media, want %d, %d, %d", p.TextBytes, p.TokenIDs, p.MediaTokens, text, tc.ids, media)
			}
			if want := int(text/4 + tc.ids + media); p.Tokens != want {
				t.Errorf("Tokens = %d, want %d", p.Tokens, want)
			}
			if !p.Parsed || !p.Prefills || p.Blocks == nil {
				t.Errorf("Parsed, Prefills, Blocks = %v, %v, %v, want true, true, not nil", p.Parsed, p.Prefills, p.Blocks)
			}
		})
	}
}
