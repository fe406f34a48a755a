// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// What an engine answers to a request that is wrong, or that it fails, is what
// the client throws.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { after, afterEach, before, test } from "node:test";
import { all, anthropic, model, openai, user, words } from "./client.mjs";
import { start } from "./stage.mjs";

let stage;
before(async () => {
  stage = await start(["-api-key", "key", "-max-model-len", "4000"]);
});
afterEach(async () => {
  await stage.setFault();
  await stage.settled();
});
after(() => stage?.stop());

const kinds = {
  openai: { client: openai, errors: OpenAI, ask: (client, body) => client.chat.completions.create({ model, ...body }) },
  anthropic: {
    client: anthropic, errors: Anthropic,
    ask: (client, body) => client.messages.create({ model, max_tokens: 5, ...body }),
  },
};

const wrong = [
  {
    name: "unknown model", body: { model: "no-model", messages: user("Hello") },
    status: 404, error: "NotFoundError", says: /`no-model` does not exist/,
  },
  {
    name: "no messages", body: { messages: [] },
    status: 400, error: "BadRequestError", says: /Field required: messages/,
  },
  {
    name: "too long a prompt", body: { messages: user(words("long", 5000)) },
    status: 400, error: "BadRequestError", says: /maximum context length is 4000 tokens/,
  },
  {
    name: "wrong key", options: { apiKey: "another" }, body: { messages: user("Hello") },
    status: 401, error: "AuthenticationError", says: /Unauthorized/,
  },
];

for (const [kind, { client: create, errors, ask }] of Object.entries(kinds)) {
  for (const { name, options, body, status, error, says } of wrong) {
    for (const stream of [false, true]) {
      test(`${kind}: ${name}${stream ? ", streamed" : ""}`, async () => {
        const client = create(stage, options);
        await assert.rejects(async () => ask(client, { ...body, stream }), (err) => {
          assert.ok(err instanceof errors[error], `${err.constructor.name}, want ${error}`);
          assert.equal(err.status, status);
          assert.match(err.message, says);
          return true;
        });
        assert.equal(client.calls.length, 1);
      });
    }
  }

  test(`${kind}: an error in place of a stream`, async () => {
    await stage.setFault({ request: "error_event" });
    const client = create(stage);
    await assert.rejects(async () => all(await ask(client, { messages: user("Hello"), stream: true })), (err) => {
      assert.ok(err instanceof errors.APIError);
      assert.match(err.message, /EngineCore encountered an issue/);
      return true;
    });
    assert.equal(client.calls.length, 1);
  });

  test(`${kind}: a stream that breaks off`, async () => {
    await stage.setFault({ request: "reset_mid_stream", after_events: 3 });
    const client = create(stage);
    const events = [];
    await assert.rejects(async () => {
      for await (const event of await ask(client, { messages: user("Hello"), stream: true })) events.push(event);
    });
    assert.equal(events.length, 3);
    assert.equal(client.calls.length, 1);
  });
}

// What the clients tell of an error beside its message.
test("fields of errors", async () => {
  await assert.rejects(kinds.openai.ask(openai(stage), { model: "no-model", messages: user("Hello") }),
    { param: "model", code: 404, type: "NotFoundError" });
  await assert.rejects(kinds.anthropic.ask(anthropic(stage), { model: "no-model", messages: user("Hello") }), (err) => {
    assert.deepEqual(err.error, {
      type: "error", error: { type: "NotFoundError", message: "The model `no-model` does not exist." },
    });
    return true;
  });
});
