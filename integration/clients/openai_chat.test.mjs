// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { all, args, model, openai, parameters, user } from "./client.mjs";
import { start } from "./stage.mjs";

let stage, client;
before(async () => {
  stage = await start();
  client = openai(stage);
});
afterEach(() => stage.settled());
after(() => stage?.stop());

const tools = [{ type: "function", function: { name: "weather", parameters } }];

test("models", async () => {
  const page = await client.models.list();
  assert.deepEqual(page.data.map(({ id }) => id), [model]);
});

test("chat", async () => {
  const answer = await client.chat.completions.create({ model, messages: user("Hello"), max_tokens: 5 });
  assert.equal(answer.choices[0].message.content.length, 20);
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.usage.completion_tokens, 5);
});

test("chat, streamed", async () => {
  const chunks = await all(await client.chat.completions.create({
    model, messages: user("Hello"), max_tokens: 5, stream: true, stream_options: { include_usage: true },
  }));
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  assert.equal(text.length, 20);
  assert.equal(chunks.at(-2).choices[0].finish_reason, "length");
  assert.equal(chunks.at(-1).usage.completion_tokens, 5);
});

test("chat, gathered from a stream", async () => {
  const stream = client.chat.completions.stream({ model, messages: user("Hello") });
  const answer = await stream.finalChatCompletion();
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.ok(answer.choices[0].message.content);
});

test("completion, streamed", async () => {
  const chunks = await all(await client.completions.create({ model, prompt: "Hello", max_tokens: 5, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? "").join("").length, 20);
});

test("tool call", async () => {
  const answer = await client.chat.completions.create({
    model, messages: user("How is the weather?"), tools, tool_choice: "required",
  });
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  const [call] = answer.choices[0].message.tool_calls;
  assert.equal(call.function.name, "weather");
  assert.deepEqual(JSON.parse(call.function.arguments), args);
});

test("tool call, streamed", async () => {
  const stream = client.chat.completions.stream({
    model, messages: user("How is the weather?"), tools,
    tool_choice: { type: "function", function: { name: "weather" } },
  });
  const answer = await stream.finalChatCompletion();
  const [call] = answer.choices[0].message.tool_calls;
  assert.equal(call.function.name, "weather");
  assert.deepEqual(JSON.parse(call.function.arguments), args);
});

// The client calls the function itself and sends its result back.
for (const stream of [false, true]) {
  test(`tool run to its end, ${stream ? "streamed" : "unstreamed"}`, async () => {
    let asked;
    const weather = (input) => {
      asked = input;
      return "rain";
    };
    const runner = client.chat.completions.runTools({
      model, stream, messages: user("How is the weather?"), tool_choice: "required",
      tools: [{ type: "function", function: { name: "weather", function: weather, parse: JSON.parse, parameters } }],
    });
    assert.ok(await runner.finalContent());
    assert.deepEqual(asked, args);
    assert.deepEqual(runner.messages.map(({ role }) => role), ["user", "assistant", "tool", "assistant"]);
  });
}

test("embeddings", async () => {
  const input = ["one text", "another"];
  // the client asks for base64 unless told otherwise, and unpacks it
  const packed = await client.embeddings.create({ model, input });
  const plain = await client.embeddings.create({ model, input, encoding_format: "float" });
  assert.equal(packed.data.length, 2);
  packed.data.forEach(({ embedding }, i) => {
    assert.equal(embedding.length, 16);
    assert.deepEqual(Array.from(embedding, Math.fround), plain.data[i].embedding.map(Math.fround));
  });
});
