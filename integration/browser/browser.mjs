// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// A headless Chromium, pages in it that are watched for errors, and the load that
// they are to show.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { patience, persist } from "./stage.mjs";

// secret is in every prompt and in the name of every session, and must be on no
// page.
export const secret = "hush-hush";

// launch starts the browser that CHROMIUM names.
export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: [
      "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync",
    ],
  });
}

// Viewer is a page, with what it has asked for and what went wrong on it.
class Viewer {
  constructor(page) {
    Object.assign(this, { page, errors: [], asked: [] });
    page.setDefaultTimeout(patience);
    page.on("console", (m) => ["error", "warning"].includes(m.type()) && this.errors.push(m.text()));
    page.on("pageerror", (err) => this.errors.push(String(err)));
    page.on("request", (request) => this.asked.push(request.url()));
  }

  // became waits for a state of the connection.
  async became(state) {
    await this.page.locator(`#link[data-link="${state}"]`).waitFor();
  }

  // sound fails for errors, and for requests to anywhere but under that address.
  sound(address) {
    assert.deepEqual(this.errors, []);
    const elsewhere = this.asked.filter((url) => url !== address && !url.startsWith(`${address}?`));
    assert.deepEqual(elsewhere, [], `requests to other addresses than ${address}`);
  }
}

// open opens an address in a browser's own context and waits for the first event.
export async function open(browser, address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const viewer = new Viewer(await context.newPage());
  await viewer.page.addInitScript(() => {
    // what the connection was like, in order
    window.links = [];
    document.addEventListener("DOMContentLoaded", () => {
      const link = document.getElementById("link");
      new MutationObserver(() => window.links.push(link.dataset.link)).observe(link, { attributeFilter: ["data-link"] });
    });
  });
  await viewer.page.goto(address);
  return viewer;
}

// load sends requests through a stage until its result is called, which waits for
// their end.
export function load(stage, clients = 12) {
  let on = true;
  let sent = 0;
  const client = async (i) => {
    while (on) {
      const turn = sent++;
      const text = `${secret} document ${i % 5} ${i % 4 ? "" : turn} `.repeat(100 + (turn % 10) * 400);
      const headers = { "Content-Type": "application/json", ...(i % 3 ? { "X-Session-ID": `${secret}-${i}` } : {}) };
      const messages = [{ role: "user", content: text }];
      const body = JSON.stringify({ model: "sim-model", stream: true, max_tokens: 16 + (turn % 50), messages });
      const res = await persist(`${stage.url}/v1/chat/completions`, { method: "POST", headers, body });
      await res.text();
    }
  };
  const all = Promise.all(Array.from({ length: clients }, (_, i) => client(i)));
  return async () => {
    on = false;
    await all;
  };
}
