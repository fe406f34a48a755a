// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Caddy tries another server where one cannot serve, and the client never
// knows. What passes through, the client repeats by its own rules.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { anthropic, model, openai, user, words } from "./client.mjs";
import { start, sum } from "./stage.mjs";

let stage;
before(async () => {
  stage = await start();
});
afterEach(async () => {
  await stage.setFault();
  await stage.settled();
});
after(() => stage?.stop());

const kinds = {
  openai: [openai, (client, messages) => client.chat.completions.create({ model, messages, max_tokens: 5 })],
  anthropic: [anthropic, (client, messages) => client.messages.create({ model, messages, max_tokens: 5 })],
};

for (const [kind, [create, ask]] of Object.entries(kinds)) {
  // conversation returns a client whose session has a home, and that server.
  const conversation = async (name) => {
    const client = create(stage, { defaultHeaders: { "X-Session-ID": `${kind} ${name}` } });
    const messages = user(words(`${kind} ${name}`, 2000));
    const before = await stage.placements();
    await ask(client, messages);
    const now = await stage.placements();
    const at = now.findIndex((n, i) => n > before[i]);
    client.calls.length = 0;
    return { client, messages, at, home: stage.servers[at] };
  };

  test(`${kind}: waits as long as Retry-After says, and finds its cache again`, async () => {
    const { client, messages, at, home } = await conversation("429");
    const before = await stage.placements();
    await home.setFault({ request: "status", status: 429, retry_after: 2, times: 1 });
    await ask(client, messages);
    assert.deepEqual(client.calls.map(({ headers }) => headers.get("X-Stainless-Retry-Count")), ["0", "1"]);
    // without the header it waits half a second
    assert.ok(client.calls[1].at - client.calls[0].at >= 1900);
    const placed = (await stage.placements()).map((n, i) => n - before[i]);
    assert.deepEqual(placed, [0, 1, 2].map((i) => (i === at ? 2 : 0)));
  });

  for (const status of [502, 503, 504]) {
    test(`${kind}: sees nothing of a ${status} that another server makes up for`, async () => {
      const { client, messages, home } = await conversation(status);
      await home.setFault({ request: "status", status });
      await ask(client, messages);
      assert.equal(client.calls.length, 1);
    });
  }

  test(`${kind}: sees nothing of a connection that is reset`, async () => {
    const { client, messages, home } = await conversation("reset");
    await home.setFault({ request: "reset_before_headers" });
    await ask(client, messages);
    assert.equal(client.calls.length, 1);
  });

  test(`${kind}: repeats a 500 itself, which may be the request's fault`, async () => {
    const { client, messages, home } = await conversation("500");
    await home.setFault({ request: "status", status: 500, times: 1 });
    await ask(client, messages);
    assert.equal(client.calls.length, 2);
  });

  test(`${kind}: gives up when no server can serve`, async () => {
    const before = sum(await stage.placements());
    await stage.setFault({ request: "status", status: 503 });
    const client = create(stage, { maxRetries: 1 });
    await assert.rejects(ask(client, user("Hello")), { status: 503 });
    assert.equal(client.calls.length, 2);
    // each of the client's attempts is three of Caddy's
    assert.equal(sum(await stage.placements()) - before, 6);
  });
}
