// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { all, args, model, openai, parameters, words } from "./client.mjs";
import { start } from "./stage.mjs";

let stage, client;
before(async () => {
  stage = await start();
  client = openai(stage);
});
afterEach(() => stage.settled());
after(() => stage?.stop());

const tools = [{ type: "function", name: "weather", parameters, strict: true }];

test("response", async () => {
  const answer = await client.responses.create({ model, input: "Hello", instructions: "Be kind.", max_output_tokens: 5 });
  assert.equal(answer.status, "completed");
  assert.equal(answer.output_text.length, 20);
  assert.equal(answer.usage.output_tokens, 5);
});

test("response, streamed", async () => {
  const events = await all(await client.responses.create({ model, input: "Hello", max_output_tokens: 5, stream: true }));
  const deltas = events.filter(({ type }) => type === "response.output_text.delta").map(({ delta }) => delta);
  assert.equal(deltas.join("").length, 20);
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
  assert.equal(events.at(0).type, "response.created");
  assert.equal(events.at(-1).type, "response.completed");
});

test("response, gathered from a stream", async () => {
  const answer = await client.responses.stream({ model, input: "Hello" }).finalResponse();
  assert.equal(answer.status, "completed");
  assert.ok(answer.output_text);
});

test("function call and its output", async () => {
  const input = [{ role: "user", content: "How is the weather?" }];
  const first = await client.responses.create({ model, input, tools, tool_choice: "required", store: false });
  const call = first.output.find(({ type }) => type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), args);

  const second = await client.responses.create({
    model, tools, store: false,
    input: [...input, call, { type: "function_call_output", call_id: call.call_id, output: "rain" }],
  });
  assert.ok(second.output_text);
});

test("function call, streamed", async () => {
  const stream = client.responses.stream({
    model, input: "How is the weather?", tools, tool_choice: { type: "function", name: "weather" },
  });
  const answer = await stream.finalResponse();
  assert.deepEqual(JSON.parse(answer.output[0].arguments), args);
});

// A response lives in the memory of the server that made it, so the requests of
// a conversation that builds on it have to name their session.
for (const stream of [false, true]) {
  test(`previous response, ${stream ? "streamed" : "unstreamed"}`, async () => {
    const session = { headers: { "X-Session-ID": `Ada ${stream}` } };
    const create = async (body) => {
      const answer = await client.responses.create({ model, stream, ...body }, session);
      return stream ? (await all(answer)).at(-1).response : answer;
    };
    let last = await create({ input: "My name is Ada." });
    for (let turn = 0; turn < 5; turn++) {
      // nothing but the id and the session's name says that it belongs here
      const next = await create({ input: words(`page ${turn} of my life`, 1000), previous_response_id: last.id });
      assert.equal(next.previous_response_id, last.id);
      assert.ok(next.usage.input_tokens > last.usage.input_tokens + last.usage.output_tokens);
      last = next;
    }
  });
}
