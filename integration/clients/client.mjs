// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// The clients under test, and what the tests ask with them.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { patience } from "./stage.mjs";

export const model = "sim-model";

// what the environment says of accounts and addresses is not for these clients
for (const name of Object.keys(process.env)) {
  if (/^(OPENAI|ANTHROPIC)_/.test(name)) delete process.env[name];
}

// openai returns a client of Caddy. Its calls are what it has sent, attempt by
// attempt: path, headers and when.
export function openai(stage, options = {}) {
  const calls = [];
  const client = new OpenAI({
    baseURL: `${stage.url}/v1`, apiKey: "key", timeout: patience, fetch: recorder(calls), ...options,
  });
  return Object.assign(client, { calls });
}

// anthropic returns a client of Caddy.
export function anthropic(stage, options = {}) {
  const calls = [];
  const client = new Anthropic({
    baseURL: stage.url, apiKey: "key", timeout: patience, fetch: recorder(calls), ...options,
  });
  return Object.assign(client, { calls });
}

function recorder(calls) {
  return (url, init) => {
    const { pathname, search } = new URL(url);
    calls.push({ path: pathname + search, headers: new Headers(init.headers), at: performance.now() });
    return fetch(url, init);
  };
}

// user is a conversation with one message of the user.
export function user(content) {
  return [{ role: "user", content }];
}

// words is a text of about n tokens. Texts with different marks share no
// beginning.
export function words(mark, n) {
  return `${mark} `.padEnd(16, ".").repeat(n / 4);
}

// parameters are those of a function, as all three APIs want them. The
// simulated model says what it must: "sun" for a string, 1 for a number.
export const parameters = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
};

export const args = { city: "sun", days: 1 };

// all reads a stream to its end.
export async function all(stream) {
  const list = [];
  for await (const item of stream) list.push(item);
  return list;
}
