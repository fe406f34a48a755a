// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// The turns of a conversation go to the server that has its cache, whichever
// way the client has of naming the conversation, and without a name as well.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { anthropic, model, openai, user, words } from "./client.mjs";
import { start } from "./stage.mjs";

let stage;
before(async () => {
  stage = await start(["-enable-prompt-tokens-details"]);
});
afterEach(() => stage.settled());
after(() => stage?.stop());

const header = (name) => ({ defaultHeaders: { "X-Session-ID": name } });

async function chat(client, messages, extra) {
  const answer = await client.chat.completions.create({ model, messages, ...extra });
  return { said: answer.choices[0].message.content, cached: answer.usage.prompt_tokens_details.cached_tokens };
}

async function message(client, messages, extra) {
  const answer = await client.messages.create({ model, messages, max_tokens: 64, ...extra });
  return { said: answer.content[0].text, cached: answer.usage.cache_read_input_tokens };
}

async function response(client, input, extra) {
  const answer = await client.responses.create({ model, input, store: false, ...extra });
  return { said: answer.output_text, cached: answer.usage.input_tokens_details.cached_tokens };
}

const ways = [
  ["OpenAI chat, X-Session-ID", openai, header("chat"), chat],
  ["OpenAI chat, prompt_cache_key", openai, {}, chat, { prompt_cache_key: "chat" }],
  ["OpenAI chat, no name", openai, {}, chat],
  ["OpenAI responses, prompt_cache_key", openai, {}, response, { prompt_cache_key: "responses" }],
  ["OpenAI responses, no name", openai, {}, response],
  ["Anthropic messages, X-Session-ID", anthropic, header("message"), message],
  ["Anthropic messages, metadata.user_id", anthropic, {}, message, { metadata: { user_id: "user" } }],
  ["Anthropic messages, no name", anthropic, {}, message],
];

for (const [i, [name, create, options, ask, extra]] of ways.entries()) {
  test(name, async () => {
    const client = create(stage, options);
    const before = await stage.placements();
    const messages = user(words(`way ${i}`, 2000));
    for (let turn = 0; turn < 5; turn++) {
      const { said, cached } = await ask(client, messages, extra);
      assert.ok(turn === 0 ? cached < 100 : cached >= 1900, `turn ${turn} found ${cached} tokens cached`);
      messages.push({ role: "assistant", content: said }, ...user(`question ${turn}`));
    }
    const placed = (await stage.placements()).map((n, i) => n - before[i]);
    assert.deepEqual(placed.filter((n) => n > 0), [5]);
  });
}
