// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// The live page shows what is, in every width and color, to keyboards and screen
// readers as well, and says so when it cannot.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { launch, load, open, secret } from "./browser.mjs";
import { persist, start } from "./stage.mjs";

// sites has the page behind a stripped prefix, on one path, for a fleet that
// nobody uses, and for one viewer.
const sites = (site, servers) => `http://${site} {
	llm_loadaware
	handle_path /status/* {
		llm_loadaware_status {
			interval 200ms
		}
	}
	route /live {
		llm_loadaware_status
	}
	route /other {
		llm_loadaware_status other
	}
	route /one {
		llm_loadaware_status {
			max_viewers 1
		}
	}
	reverse_proxy ${servers.map(({ address }) => address).join(" ")} {
		lb_policy llm_loadaware
	}
}
`;

let stage, browser, stopLoad;
before(async () => {
  stage = await start(["-speed", "4"], sites);
  browser = await launch();
});
afterEach(async () => {
  await stopLoad?.();
  stopLoad = undefined;
  await Promise.all(browser.contexts().map((context) => context.close()));
});
after(async () => {
  await browser?.close();
  await stage?.stop();
});

const status = () => `${stage.url}/status/`;

// parts returns how much of each bar is filled, by its name.
const parts = (page) => page.$$eval("#upstreams td[data-bar]", (cells) =>
  cells.map((cell) => [cell.dataset.bar, Number(cell.querySelector(".fill").style.getPropertyValue("--part"))]));

test("bars move and placements appear under load", async () => {
  const viewer = await open(browser, status());
  const { page } = viewer;
  await viewer.became("live");
  assert.equal(await page.title(), "Fleet default");
  assert.deepEqual(await page.locator("#upstreams tbody th").allTextContents(), stage.servers.map((s) => s.address).sort());
  assert.ok(await page.getByText("Nothing was placed yet.").isVisible());

  stopLoad = load(stage);
  const seen = new Map();
  const moved = (name) => (seen.get(name)?.size ?? 0) > 2;
  const all = ["in_flight", "waiting", "prefill", "kv", "rate", "sessions"];
  while (!all.every((name) => (name === "sessions" || name === "rate" ? seen.get(name)?.size > 1 : moved(name)))) {
    for (const [name, part] of await parts(page)) {
      assert.ok(part >= 0 && part <= 1, `${name} is filled to ${part}`);
      seen.set(name, (seen.get(name) ?? new Set()).add(part));
    }
    await pause(20);
  }
  assert.deepEqual([...new Set(await page.locator("#upstreams .state").allTextContents())], ["available"]);

  await page.locator("#placements tbody tr:nth-child(20)").waitFor();
  const rows = await page.$$eval("#placements tbody tr", (list) => list.map((row) => [...row.cells].map((c) => c.textContent)));
  assert.equal(rows.length, 20);
  for (const [time, reason, upstream, session, model, tokens, cached] of rows) {
    assert.match(time, /^\d\d:\d\d:\d\d$/);
    assert.match(reason, /^(new|pinned|moved pressure|moved unavailable|prefix|load)$/);
    assert.ok(stage.servers.some(({ address }) => address === upstream), `placed on ${upstream}`);
    assert.match(session, /^([0-9a-f]{8}|–)$/);
    assert.equal(model, "sim-model");
    assert.match(tokens, /^[\d.,]+K?$/);
    assert.match(cached, /^\d+ %$/);
  }
  await page.locator("#line-p50[d^=M]").waitFor({ state: "attached" });
  assert.match(await page.locator("#p50").textContent(), /^[\d.]+ m?s$/);
  assert.match(await page.locator("#sparkline").getAttribute("aria-label"), /Last: median/);
  assert.match(await page.locator('[data-total="placements"]').textContent(), /^[\d.]+$/);
  assert.ok(!(await page.content()).includes(secret), "the page shows what a request says");
  viewer.sound(status());
});

for (const path of ["/status/", "/status/deep/er", "/live", "/live?x=1"]) {
  test(`the page works at ${path}`, async () => {
    const viewer = await open(browser, stage.url + path);
    await viewer.became("live");
    assert.equal(await viewer.page.locator("#upstreams tbody tr").count(), 3);
    viewer.asked = viewer.asked.filter((url) => url !== stage.url + path);
    viewer.sound(stage.url + path.replace(/\?.*/, ""));
  });
}

test("a fleet that nobody uses is said to be", async () => {
  const viewer = await open(browser, `${stage.url}/other`);
  await viewer.became("live");
  assert.equal(await viewer.page.locator("#notice").textContent(), "No config that is loaded has a policy with the fleet other.");
  assert.ok(!(await viewer.page.locator("#shown").isVisible()));
  viewer.sound(`${stage.url}/other`);
});

test("the page connects again after a reload", async () => {
  const viewer = await open(browser, status());
  await viewer.became("live");
  stopLoad = load(stage, 4);
  await stage.load(sites);
  await viewer.page.waitForFunction(() => window.links.join().endsWith("lost,live"));
  const before = await viewer.page.locator("#placements tbody").textContent();
  await viewer.page.waitForFunction((text) => document.querySelector("#placements tbody").textContent !== text, before);
  viewer.sound(status());
});

test("a stream that falls silent is said to be, and comes back", async () => {
  const viewer = await open(browser, status());
  await viewer.became("live");
  stage.caddy.kill("SIGSTOP");
  try {
    await viewer.became("lost");
    assert.match(await viewer.page.locator("#link-text").textContent(), /No news from the server/);
    assert.equal(await viewer.page.locator("#shown").getAttribute("class"), "stale");
  } finally {
    stage.caddy.kill("SIGCONT");
  }
  await viewer.became("live");
  assert.equal(await viewer.page.locator("#shown").getAttribute("class"), "");
  viewer.sound(status());
});

// Who has paused or looks elsewhere does not watch: the room for one viewer is
// free then.
for (const [name, leave] of [
  ["paused", (page) => page.getByRole("button", { name: "Pause" }).click()],
  ["hidden", (page) => page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true });
    document.dispatchEvent(new Event("visibilitychange"));
  })],
]) {
  test(`a page that is ${name} does not watch`, async () => {
    const first = await open(browser, `${stage.url}/one`);
    await first.became("live");
    const second = await open(browser, `${stage.url}/one`);
    await second.page.getByText("Too many viewers").first().waitFor();
    assert.ok(second.errors.every((text) => text.includes("503")), second.errors.join());
    await leave(first.page);
    await first.became("paused");
    await second.became("live");
    first.sound(`${stage.url}/one`);
  });
}

test("everything can be reached with the keyboard", async () => {
  const viewer = await open(browser, status());
  const { page } = viewer;
  await viewer.became("live");
  const focused = () => page.evaluate(() => {
    const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
    return { text: document.activeElement.textContent, outline: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 };
  });
  await page.keyboard.press("Tab");
  assert.deepEqual(await focused(), { text: "Pause", outline: true });
  await page.keyboard.press("Enter");
  await viewer.became("paused");
  assert.equal((await focused()).text, "Resume");
  await page.keyboard.press("Space");
  await viewer.became("live");
  await page.keyboard.press("Tab");
  assert.deepEqual(await focused(), { text: "What the words mean", outline: true });
  await page.keyboard.press("Enter");
  assert.ok(await page.getByRole("heading", { name: "Reasons" }).isVisible());
  viewer.sound(status());
});

test("screen readers find tables, landmarks and what has changed", async () => {
  const viewer = await open(browser, status());
  const { page } = viewer;
  await viewer.became("live");
  stopLoad = load(stage, 4);
  await page.locator("#placements tbody tr:nth-child(20)").waitFor({ state: "attached" });
  // in a table's shape, and in that of cards
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    for (const landmark of ["banner", "main"]) assert.equal(await page.getByRole(landmark).count(), 1, landmark);
    for (const region of ["The fleet now", "Upstreams", "Last placements"]) {
      assert.equal(await page.getByRole("region", { name: region }).count(), 1, region);
    }
    for (const [name, columns, rows] of [["Upstreams", 8, 4], ["Last placements", 9, width > 360 ? 21 : 11]]) {
      const table = page.getByRole("table", { name });
      assert.equal(await table.getByRole("columnheader").count(), columns, `columns of ${name} at ${width} px`);
      assert.equal(await table.getByRole("row").count(), rows, `rows of ${name} at ${width} px`);
    }
    assert.equal(await page.getByRole("rowheader").count(), 3);
    assert.equal(await page.getByRole("img", { name: /Time to first output/ }).count(), 1);
  }
  assert.equal(await page.$$eval("main *", (list) => list.filter((e) => e.closest("[aria-live], [role=status]")).length), 0);

  await page.evaluate(() => {
    window.said = [];
    const said = document.getElementById("said");
    new MutationObserver(() => window.said.push(said.textContent)).observe(said, { childList: true, characterData: true, subtree: true });
  });
  const [{ address }] = stage.servers;
  const drain = async (method) => {
    const res = await persist(`http://${stage.admin}/llm_loadaware/fleets/default/drain?upstream=${address}`, { method, headers: { Origin: `http://${stage.admin}` } });
    assert.ok(res.ok);
  };
  const states = page.locator("#upstreams .state");
  await drain("POST");
  await states.filter({ hasText: "drained" }).waitFor();
  await drain("DELETE");
  await page.waitForFunction(() => !document.querySelector("#upstreams tbody").textContent.includes("drained"));
  await page.waitForFunction(() => window.said.length === 2);
  // numbers have changed all the time, and nothing of that was said
  assert.deepEqual(await page.evaluate(() => window.said), [`${address} is now drained`, `${address} is now available`]);
  viewer.sound(status());
});

test("nothing is wider than a phone", async () => {
  const viewer = await open(browser, status());
  const { page } = viewer;
  await viewer.became("live");
  stopLoad = load(stage, 4);
  await page.locator("#placements tbody tr:nth-child(20)").waitFor({ state: "attached" });
  await page.getByRole("button", { name: "Pause" }).click();
  await page.locator("summary").click();
  // the longest that may come
  await page.evaluate(() => {
    const put = (selector, text) => document.querySelectorAll(selector).forEach((e) => (e.textContent = text));
    put("#name", "a-fleet-with-a-name-that-nobody-would-want-to-type-twice");
    put("#upstreams th[scope=row], #placements .upstream", "vllm-server-0.vllm-headless.language-models.svc.cluster.local:8000");
    put("#upstreams .state span:last-child", "cooling down");
    put("#upstreams td[data-bar] > span:first-child", "123K/s");
    put("#placements td:nth-child(2)", "moved unavailable");
    put("#placements .model", "m".repeat(128));
    put("#placements td:nth-child(8)", "1,234 ms");
    put("#placements td:nth-child(9)", "canceled, attempt 12");
  });
  for (const width of [320, 360, 480, 896, 897, 992, 1280]) {
    await page.setViewportSize({ width, height: 740 });
    const beyond = await page.$$eval("body *:not(.unseen, thead, thead *)", (list) => list.filter((e) => {
      const { left, right } = e.getBoundingClientRect();
      return e.childElementCount === 0 && (left < 0 || right > innerWidth + 0.5);
    }).map((e) => `${e.tagName} ${e.textContent}`));
    assert.deepEqual(beyond, [], `beyond ${width} px`);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
  }
  viewer.sound(status());
});

// contrasts returns those of the texts on the page with what is behind them.
const contrasts = (page) => page.evaluate(() => {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = channels(getComputedStyle(e).backgroundColor);
      if (color.length === 3) return color;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim()));
  return texts.map((e) => {
    const [a, b] = [light(channels(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    return { text: e.textContent, contrast: (a + 0.05) / (b + 0.05) };
  });
});

for (const colorScheme of ["light", "dark"]) {
  test(`texts can be read in ${colorScheme}`, async () => {
    const viewer = await open(browser, status(), { colorScheme });
    const { page } = viewer;
    await viewer.became("live");
    // every state has a color of its own
    const cells = page.locator("#upstreams .state");
    await page.locator("summary").click();
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
    assert.ok(colorScheme === "dark" ? Math.max(...ground) < 60 : Math.min(...ground) > 200, `the ground is ${ground}`);
    for (const state of ["available", "full", "cooling_down", "suspect", "asleep", "drained"]) {
      await cells.evaluateAll((list, name) => list.forEach((cell) => cell.setAttribute("data-state", name)), state);
      const weak = (await contrasts(page)).filter(({ contrast }) => contrast < 4.5);
      assert.deepEqual(weak, [], state);
    }
    viewer.sound(status());
  });
}

test("nothing slides where that is not wanted", async () => {
  const viewer = await open(browser, status(), { reducedMotion: "reduce" });
  await viewer.became("live");
  const durations = await viewer.page.$$eval("body *", (list) => [...new Set(list.map((e) => getComputedStyle(e).transitionDuration))]);
  assert.deepEqual(durations, ["0s"]);
});

test("a server that is gone is said to be", async () => {
  const viewer = await open(browser, status());
  await viewer.became("live");
  await stage.stop();
  await viewer.became("lost");
  assert.match(await viewer.page.locator("#link-text").textContent(), /Trying again/);
  assert.ok(viewer.errors.every((text) => text.includes("ERR_CONNECTION_REFUSED")), viewer.errors.join());
});
