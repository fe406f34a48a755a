// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "encoding/json"

// forcedCall returns the tool call that a request forces the model to make, or nil; how many tokens it takes is left
// open. A tool is called in answer to the
// user only, so that a client that sends the tool's result gets text. It understands all APIs.
func forcedCall(tools []any, choice any, conversation []message) *answer {
	if len(conversation) == 0 || conversation[len(conversation)-1].role != "user" {
		return nil
	}
	wanted, forced := forcedTool(choice)
	if !forced {
		return nil
	}
	for _, tool := range tools {
		f := functionOf(tool)
		if f.name != "" && (wanted == "" || wanted == f.name) {
			return &answer{text: f.arguments(), finish: "tool_calls", tool: f.name}
		}
	}
	return nil
}

// forcedTool reads tool_choice: whether it forces a call, and of which tool; an empty name is any.
func forcedTool(choice any) (name string, forced bool) {
	switch c := choice.(type) {
	case string:
		return "", c == "required"
	case map[string]any:
		switch c["type"] {
		case "any":
			return "", true
		case "tool", "function":
			return functionOf(c).name, true
		}
	}
	return "", false
}

// function is a tool's name and the JSON schema of its arguments.
type function struct {
	name   string
	schema map[string]any
}

// functionOf reads a tool, or a choice of one, in the shape of any API.
func functionOf(tool any) function {
	m, _ := tool.(map[string]any)
	if inner, ok := m["function"].(map[string]any); ok {
		m = inner
	}
	name, _ := m["name"].(string)
	schema, ok := m["parameters"].(map[string]any)
	if !ok {
		schema, _ = m["input_schema"].(map[string]any)
	}
	return function{name, schema}
}

// arguments returns a JSON object with the required properties of the schema.
func (f function) arguments() string {
	args := map[string]any{}
	properties, _ := f.schema["properties"].(map[string]any)
	required, _ := f.schema["required"].([]any)
	for _, key := range required {
		name, _ := key.(string)
		property, _ := properties[name].(map[string]any)
		if allowed, ok := property["enum"].([]any); ok && len(allowed) > 0 {
			args[name] = allowed[0]
			continue
		}
		switch property["type"] {
		case "integer", "number":
			args[name] = 1
		case "boolean":
			args[name] = true
		case "array":
			args[name] = []any{}
		case "object":
			args[name] = map[string]any{}
		default:
			args[name] = "sun"
		}
	}
	text, err := json.Marshal(args)
	if err != nil {
		return "{}"
	}
	return string(text)
}
