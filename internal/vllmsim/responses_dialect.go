// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "slices"

// responsesDialect writes the typed events of the Responses API.
type responsesDialect struct {
	*generation
	in           *responsesRequest
	store        *responseStore
	conversation []message // without the answer
	sequence     int
}

// begin sends what vLLM sends before it reads anything from the engine.
func (d *responsesDialect) begin(e *events) {
	d.send(e, "response.created", object{"response": d.body("in_progress")})
	d.send(e, "response.in_progress", object{"response": d.body("in_progress")})
}

func (d *responsesDialect) first(e *events, _ int) {
	d.send(e, "response.output_item.added", object{"output_index": 0, "item": d.item("in_progress", "")})
	if d.parts[0].tool == "" {
		d.place(e, "response.content_part.added", object{"part": textPart("")})
	}
}

func (d *responsesDialect) token(e *events, _ int, text string) {
	if d.parts[0].tool != "" {
		d.place(e, "response.function_call_arguments.delta", object{"delta": text})
		return
	}
	d.place(e, "response.output_text.delta", object{"delta": text, "logprobs": []object{}})
}

func (d *responsesDialect) last(e *events, _ int) {
	p := d.parts[0]
	if p.tool != "" {
		d.place(e, "response.function_call_arguments.done", object{"arguments": p.text, "name": p.tool})
	} else {
		d.place(e, "response.output_text.done", object{"text": p.text, "logprobs": []object{}})
		d.place(e, "response.content_part.done", object{"part": textPart(p.text)})
	}
	d.send(e, "response.output_item.done", object{"output_index": 0, "item": d.item("completed", p.text)})
}

func (d *responsesDialect) end(e *events) {
	d.send(e, "response.completed", object{"response": d.whole()})
}

// whole returns the final body and stores it.
func (d *responsesDialect) whole() any {
	p := d.parts[0]
	body := d.body("completed")
	body["output"] = []object{d.item("completed", p.text)}
	body["usage"] = d.tokens()
	if d.in.Store != nil && !*d.in.Store {
		return body
	}
	conversation := slices.Concat(d.conversation, []message{{"assistant", p.text}})
	if d.in.Background {
		d.store.complete(d.id, body, conversation)
	} else {
		d.store.put(d.id, &stored{body: body, conversation: conversation})
	}
	return body
}

// send writes an event with its number.
func (d *responsesDialect) send(e *events, kind string, fields object) {
	fields["type"], fields["sequence_number"] = kind, d.sequence
	d.sequence++
	e.send(kind, fields)
}

// place writes an event about the only output item.
func (d *responsesDialect) place(e *events, kind string, fields object) {
	fields["output_index"], fields["item_id"] = 0, d.itemID()
	if d.parts[0].tool == "" {
		fields["content_index"] = 0
	}
	d.send(e, kind, fields)
}

func (d *responsesDialect) itemID() string {
	if d.parts[0].tool != "" {
		return "fc_" + d.id
	}
	return "msg_" + d.id
}

// item returns the only output item with what is said so far.
func (d *responsesDialect) item(status, text string) object {
	if tool := d.parts[0].tool; tool != "" {
		return object{
			"type": "function_call", "id": d.itemID(), "call_id": callID(d.id), "name": tool, "arguments": text,
			"status": status,
		}
	}
	content := []object{}
	if status == "completed" {
		content = append(content, textPart(text))
	}
	return object{"type": "message", "id": d.itemID(), "role": "assistant", "status": status, "content": content}
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}, "logprobs": []object{}}
}

func (d *responsesDialect) tokens() object {
	prompt, cached, output := d.counts()
	if !d.details {
		cached = 0
	}
	return object{
		"input_tokens": prompt, "input_tokens_details": object{"cached_tokens": cached},
		"output_tokens": output, "output_tokens_details": object{"reasoning_tokens": 0},
		"total_tokens": prompt + output,
	}
}

// body returns the response object without output.
func (d *responsesDialect) body(status string) object {
	var previous any
	if d.in.Previous != "" {
		previous = d.in.Previous
	}
	tools, choice := d.in.Tools, d.in.ToolChoice
	if tools == nil {
		tools = []any{}
	}
	if choice == nil {
		choice = "auto"
	}
	return object{
		"id": d.id, "object": "response", "created_at": d.created, "model": d.model, "status": status,
		"background": d.in.Background, "instructions": d.in.Instructions, "previous_response_id": previous,
		"tools": tools, "tool_choice": choice, "parallel_tool_calls": true, "metadata": nil,
		"temperature": 1, "top_p": 1, "error": nil, "incomplete_details": nil, "output": []object{}, "usage": nil,
	}
}
