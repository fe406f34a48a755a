// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tidwall/gjson"
)

// validators are ways to find out whether a body is JSON.
var validators = []struct {
	name  string
	valid func([]byte) bool
}{
	{"wellFormed", func(b []byte) bool { return wellFormed(b, false, nil) }},
	{"gjson", gjson.ValidBytes},
	{"encoding json", json.Valid},
}

// others read plain chat bodies, of string contents, with other JSON packages.
// They are what the package is measured against, and what it must agree with.
var others = []struct {
	name string
	read func([]byte) ([]uint64, int64)
}{
	{"gjson", readWithGJSON},
	{"encoding json", readWithStandard},
}

// otherChain writes canonical text from decoded strings.
type otherChain struct{ chain }

func (c *otherChain) message(role, content string) {
	c.mark(markMessage)
	c.write([]byte(role))
	c.mark(markPart)
	c.plain([]byte(content))
}

func (c *otherChain) call(name, arguments string) {
	c.mark(markCall)
	c.plain([]byte(name))
	c.mark(markPart)
	c.mark(markCall)
	c.plain([]byte(arguments))
}

func (c *otherChain) start(model, salt string, tools []byte) {
	c.begin([]byte(model), []byte(salt), 0, Limits{}.withDefaults())
	for t := range raw(tools).elements() {
		c.mark(markTool)
		c.compact(t)
	}
}

func readWithGJSON(body []byte) ([]uint64, int64) {
	if !gjson.ValidBytes(body) {
		return nil, 0
	}
	top := gjson.ParseBytes(body)
	var c otherChain
	c.start(top.Get("model").Str, top.Get("cache_salt").Str, []byte(top.Get("tools").Raw))
	top.Get("messages").ForEach(func(_, m gjson.Result) bool {
		c.message(m.Get("role").Str, m.Get("content").Str)
		m.Get("tool_calls").ForEach(func(_, call gjson.Result) bool {
			c.call(call.Get("function.name").Str, call.Get("function.arguments").Str)
			return true
		})
		return true
	})
	return c.blocks, c.count.textBytes
}

func readWithStandard(body []byte) ([]uint64, int64) {
	var v struct {
		Model    string          `json:"model"`
		Salt     string          `json:"cache_salt"`
		Tools    json.RawMessage `json:"tools"`
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
			Calls   []struct {
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
	}
	if json.Unmarshal(body, &v) != nil {
		return nil, 0
	}
	var c otherChain
	c.start(v.Model, v.Salt, v.Tools)
	for _, m := range v.Messages {
		c.message(m.Role, m.Content)
		for _, call := range m.Calls {
			c.call(call.Function.Name, call.Function.Arguments)
		}
	}
	return c.blocks, c.count.textBytes
}

func TestReadAgreesWithOtherReaders(t *testing.T) {
	e, _ := Lookup("/v1/chat/completions")
	bodies := [][]byte{chatBody(t, 5_000), chatBody(t, 60_000)}
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 20 {
		bodies = append(bodies, randomChat(t, rnd))
	}
	for i, body := range bodies {
		p := e.Read(body, true, "application/json", Limits{})
		for _, o := range others {
			blocks, textBytes := o.read(body)
			if !slices.Equal(p.Blocks, blocks) || p.TextBytes != textBytes {
				t.Errorf("body %d: Read gives %d blocks of %d bytes, %s gives %d of %d", i, len(p.Blocks), p.TextBytes, o.name, len(blocks), textBytes)
			}
		}
	}
}

// randomChat has every kind of character in it, some of them escaped.
func randomChat(t *testing.T, rnd *rand.Rand) []byte {
	t.Helper()
	alphabet := []rune("ab \n\t\r\b\f\"\\/<>&\u0001é世\u2028🙂\ufffd")
	text := func() string {
		s := make([]rune, rnd.IntN(2000))
		for i := range s {
			s[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		return string(s)
	}
	var messages []any
	for range 1 + rnd.IntN(6) {
		messages = append(messages, map[string]any{"content": text(), "role": "user"})
	}
	b, err := json.MarshalIndent(map[string]any{"model": string(alphabet[rnd.IntN(len(alphabet)):]), "messages": messages}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWellFormedAgreesWithStandard(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	seeds := []string{
		`{"a":[1,-2.5e+3,0,0.1,1E9,true,false,null,"x\n\u00e9\"",{"b":{}},[]],"c":""}`,
		"{\n\t\"model\" : \"m\" ,\r\n \"messages\" : [ { \"role\" : \"user\" } ] }\n",
	}
	letters := []byte("{}[]\",:\\u0129-+.eEtrufalsn \n\x01\xff")
	for range 30_000 {
		b := []byte(seeds[rnd.IntN(len(seeds))])
		for range 1 + rnd.IntN(3) {
			switch i := rnd.IntN(len(b)); rnd.IntN(3) {
			case 0:
				b[i] = letters[rnd.IntN(len(letters))]
			case 1:
				b = slices.Delete(b, i, i+1)
			default:
				b = slices.Insert(b, i, letters[rnd.IntN(len(letters))])
			}
		}
		var object map[string]json.RawMessage
		want := json.Unmarshal(b, &object) == nil && object != nil
		if got := wellFormed(b, false, nil); got != want {
			t.Fatalf("wellFormed(%q) = %v, want %v", b, got, want)
		}
		if !want {
			continue
		}
		for i := range b {
			if !wellFormed(b[:i], true, nil) {
				t.Fatalf("wellFormed(%q, cut) = false, want true", b[:i])
			}
		}
	}
}
