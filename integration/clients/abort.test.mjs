// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// A client that leaves takes its request with it: the engine stops, and Caddy
// counts nothing of it any more.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { all, anthropic, model, openai, user, words } from "./client.mjs";
import { eventually, start } from "./stage.mjs";

const tokens = 20_000;

let stage;
before(async () => {
  stage = await start(["-max-output-tokens", String(tokens)]);
});
// an answer takes minutes, so that none of the requests ends by itself
beforeEach(() => stage.setFault({ slow: 20 }));
after(() => stage?.stop());

// What was left is gone from Caddy and from the engines. The gauges of an
// engine whose requests were all aborted stay as they are until its next step,
// so each gets one more request.
afterEach(async () => {
  await stage.settled();
  await stage.setFault();
  for (const server of stage.servers) {
    await openai({ url: server.url }).completions.create({ model, prompt: "more", max_tokens: 1 });
    assert.equal(await server.metric("vllm:num_requests_running"), 0);
  }
});

// question is a prompt that no server has seen.
let asked = 0;
const prompt = () => words(`prompt ${asked++}`, 1000);
const question = () => ({ model, messages: user(prompt()), max_tokens: tokens });

const streams = {
  "OpenAI chat": (options) => openai(stage).chat.completions.create({ ...question(), stream: true }, options),
  "OpenAI responses": (options) => openai(stage).responses.create(
    { model, input: prompt(), max_output_tokens: tokens, stream: true }, options),
  "Anthropic messages": (options) => anthropic(stage).messages.create({ ...question(), stream: true }, options),
};

for (const [name, open] of Object.entries(streams)) {
  test(`${name}: break out of a stream`, async () => {
    const before = await generated();
    for await (const _ of await open()) {
      if (await generated() > before) break;
    }
    await stage.settled();
    assert.ok(await generated() - before < tokens / 10);
  });

  test(`${name}: abort before the first output`, async () => {
    await stage.setFault({ stall: true });
    const abort = new AbortController();
    const stream = await open({ signal: abort.signal });
    assert.equal(await total("requests_waiting"), 1);
    assert.ok(await total("prefill_tokens") >= 1000);
    abort.abort();
    // the Responses API announces a response before the engine has run
    const announced = (await all(stream)).map(({ type }) => type);
    assert.deepEqual(announced.filter((type) => !/^response\.(created|in_progress)$/.test(type)), []);
  });
}

test("abort an unstreamed request", async () => {
  const abort = new AbortController();
  const answer = openai(stage).chat.completions.create(question(), { signal: abort.signal });
  const failed = assert.rejects(answer, { message: "Request was aborted." });
  await eventually(async () => (await total("requests_in_flight")) === 1, () => "no request arrives");
  abort.abort();
  await failed;
});

for (const [name, client] of Object.entries({ openai, anthropic })) {
  test(`${name}: a timeout of the client leaves nothing of either attempt`, async () => {
    const impatient = client(stage, { timeout: 500, maxRetries: 1 });
    const endpoint = impatient.messages ?? impatient.chat.completions;
    await assert.rejects(endpoint.create(question()), { message: "Request timed out." });
    assert.equal(impatient.calls.length, 2);
  });
}

// generated returns how many tokens the engines have put out so far.
async function generated() {
  const all = await Promise.all(stage.servers.map((server) => server.metric("vllm:generation_tokens_total")));
  return all.reduce((a, b) => a + b);
}

// total adds up what Caddy's admin API says of the upstreams.
async function total(field) {
  return (await stage.fleet()).reduce((n, upstream) => n + (upstream?.[field] ?? 0), 0);
}
