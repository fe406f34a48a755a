// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// listed is what a server with an adapter lists, shortened.
const listed = `{"object":"list","data":[
  {"id":"meta/large","object":"model","created":1785500012,"owned_by":"vllm","root":"/models/large","parent":null,"max_model_len":131072},
  {"id":"an-adapter","object":"model","parent":"meta/large"}]}`

func TestParseModels(t *testing.T) {
	long := strings.Repeat("a", maxModelID)
	tests := []struct {
		name, body string
		want       []string // id and JSON in turns
	}{
		{"a server", listed, []string{
			"meta/large", `{"id":"meta/large","object":"model","created":1785500012,"owned_by":"vllm","root":"/models/large","parent":null,"max_model_len":131072}`,
			"an-adapter", `{"id":"an-adapter","object":"model","parent":"meta/large"}`,
		}},
		{"no models", `{"object":"list","data":[]}`, nil},
		{"entries without a name", `{"data":[{},null,7,"m",[],{"id":7},{"id":null},{"id":""},{"id":"m"}]}`, []string{"m", `{"id":"m"}`}},
		{"one name twice", `{"data":[{"id":"m","n":1},{"id":"m","n":2}]}`, []string{"m", `{"id":"m","n":1}`}},
		{"long names", `{"data":[{"id":"` + long + `"},{"id":"` + long + `b"}]}`, []string{long, `{"id":"` + long + `"}`}},
		{"an escape", `{"data":[{"id":"\u00e9"}]}`, []string{"é", `{"id":"\u00e9"}`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			models, err := ParseModels([]byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range models {
				got = append(got, m.ID, string(m.JSON))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("ParseModels() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestParseModelsBounds(t *testing.T) {
	var body strings.Builder
	for i := range maxModels + 10 {
		fmt.Fprintf(&body, `,{"id":"%d"}`, i)
	}
	models, err := ParseModels([]byte(`{"data":[` + body.String()[1:] + `]}`))
	if err != nil || len(models) != maxModels || models[maxModels-1].ID != fmt.Sprint(maxModels-1) {
		t.Errorf("ParseModels() returned %d models, %v, want the first %d", len(models), err, maxModels)
	}
}

func TestParseModelsErrors(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"nothing":     {"", "models: unexpected end of JSON input"},
		"HTML":        {"<html>", "models: invalid character '<' looking for beginning of value"},
		"a list":      {"[]", "models: json: cannot unmarshal array into Go value of type struct"},
		"an error":    {`{"error":{"message":"no"}}`, errNoModels.Error()},
		"null":        {`null`, errNoModels.Error()},
		"no list":     {`{"data":{"id":"m"}}`, "models: json: cannot unmarshal object into Go struct field .data of type []json.RawMessage"},
		"a null list": {`{"data":null}`, errNoModels.Error()},
		"a cut body":  {listed[:len(listed)-1], "models: unexpected end of JSON input"},
		"more behind": {listed + "x", "models: invalid character 'x' after top-level value"},
		"deep":        {`{"data":[` + strings.Repeat("[", 1<<20), "models: invalid character '[' exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			models, err := ParseModels([]byte(test.body))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || models != nil {
				t.Errorf("ParseModels() = %v, %v, want %s", models, err, test.want)
			}
		})
	}
}
