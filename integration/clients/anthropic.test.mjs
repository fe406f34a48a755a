// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { all, anthropic, args, model, parameters, user, words } from "./client.mjs";
import { start } from "./stage.mjs";

let stage, client;
before(async () => {
  stage = await start();
  client = anthropic(stage);
});
afterEach(() => stage.settled());
after(() => stage?.stop());

const tools = [{ name: "weather", description: "How it will be", input_schema: parameters }];

test("message", async () => {
  const answer = await client.messages.create({ model, system: "Be kind.", messages: user("Hello"), max_tokens: 5 });
  assert.equal(answer.content[0].text.length, 20);
  assert.equal(answer.stop_reason, "max_tokens");
  assert.equal(answer.usage.output_tokens, 5);
});

test("message, streamed", async () => {
  const events = await all(await client.messages.create({ model, messages: user("Hello"), max_tokens: 5, stream: true }));
  const deltas = events.filter(({ type }) => type === "content_block_delta").map(({ delta }) => delta.text);
  assert.equal(deltas.join("").length, 20);
  assert.equal(events.at(0).type, "message_start");
  assert.equal(events.at(-1).type, "message_stop");
});

test("message, gathered from a stream", async () => {
  const answer = await client.messages.stream({ model, messages: user("Hello"), max_tokens: 5 }).finalMessage();
  assert.equal(answer.content[0].text.length, 20);
  assert.equal(answer.stop_reason, "max_tokens");
});

test("beta message, streamed", async () => {
  const stream = client.beta.messages.stream({ model, messages: user("Hello"), max_tokens: 5, betas: ["some-beta"] });
  assert.equal((await stream.finalMessage()).content[0].text.length, 20);
});

test("tool call and its result", async () => {
  const messages = user("How is the weather?");
  const first = await client.messages.create({ model, messages, tools, tool_choice: { type: "any" }, max_tokens: 100 });
  assert.equal(first.stop_reason, "tool_use");
  const [call] = first.content;
  assert.deepEqual(call.input, args);

  const result = { type: "tool_result", tool_use_id: call.id, content: "rain" };
  const second = await client.messages.create({
    model, tools, max_tokens: 100,
    messages: [...messages, { role: "assistant", content: first.content }, { role: "user", content: [result] }],
  });
  assert.equal(second.content[0].type, "text");
});

test("tool call, streamed", async () => {
  const answer = await client.messages.stream({
    model, messages: user("How is the weather?"), tools, tool_choice: { type: "tool", name: "weather" }, max_tokens: 100,
  }).finalMessage();
  assert.equal(answer.content[0].name, "weather");
  assert.deepEqual(answer.content[0].input, args);
});

test("count tokens", async () => {
  const question = { model, messages: user(words("count", 4000)), tools };
  const { input_tokens: counted } = await client.messages.countTokens(question);
  const answer = await client.messages.create({ ...question, max_tokens: 1 });
  assert.equal(counted, answer.usage.input_tokens);
  assert.ok(counted > 4000);
});
