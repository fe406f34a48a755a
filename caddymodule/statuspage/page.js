// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// The page shows what the last event says, and remembers nothing but the scales
// of its bars. All its addresses are queries, so that its path may be any.

"use strict";

const byID = (id) => document.getElementById(id);

// --- numbers -------------------------------------------------------------

const unknown = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const count = (n) => (n < 10_000 ? whole : short).format(n);
const percent = (part) => `${whole.format(part * 100)} %`;
const seconds = (ms) => (ms < 1000 ? `${whole.format(ms)} ms` : `${short.format(ms / 1000)} s`);
const minutes = (ms) => (ms < 60_000 ? seconds(ms) : `${short.format(ms / 60_000)} min`);
const words = (name) => name.replaceAll("_", " ");
const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);

// --- elements ------------------------------------------------------------

// put changes a text where it is another one, so that an unchanged page is left
// alone by the browser and by screen readers.
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function set(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

function add(parent, tag, attributes = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return parent.appendChild(element);
}

// --- bars of the upstreams -----------------------------------------------

// bars are the columns with a bar. Each is shared by all upstreams, so that their
// bars compare: it is as long as the most that was seen lately, and no shorter than
// least. The one with a limit always is as long as that.
const bars = [
  { name: "in_flight", label: "In flight", of: (u) => u.requests_in_flight, show: count, least: 8 },
  { name: "waiting", label: "Waiting", of: (u) => u.requests_waiting, show: count, least: 8 },
  { name: "prefill", label: "Prefill tokens", of: (u) => u.prefill_tokens, show: count, least: 10_000 },
  { name: "kv", label: "KV usage", of: (u) => u.engine?.kv_usage, show: percent, limit: 1 },
  { name: "rate", label: "Prefill rate", of: (u) => u.prefill_rate_tokens, show: (n) => `${count(n)}/s`, least: 1000 },
  { name: "sessions", label: "Sessions", of: (u) => u.sessions, show: count, least: 8 },
];

// fading is by how much a scale shrinks with each event towards what is there now.
const fading = 0.03;

function rescale(bar, upstreams) {
  if (bar.limit) return bar.limit;
  const most = Math.max(bar.least, ...upstreams.map((u) => bar.of(u) ?? 0));
  bar.scale = Math.max(most, (bar.scale ?? most) * (1 - fading));
  put(document.querySelector(`[data-scale="${bar.name}"]`), `0 to ${bar.show(bar.scale)}`);
  return bar.scale;
}

// old is the age in seconds from which on a report is said to be old.
const old = 5;

const rows = new Map();

function newRow(name) {
  const element = document.createElement("tr");
  set(element, "role", "row");
  const title = add(element, "th", { role: "rowheader", scope: "row" });
  title.textContent = name;
  const state = add(element, "td", { role: "cell", class: "state" });
  add(state, "span", { class: "dot", "aria-hidden": "true" });
  const row = { element, state, stateText: add(state, "span"), cells: [] };
  for (const bar of bars) {
    const cell = add(element, "td", { role: "cell", "data-bar": bar.name, "data-label": bar.label });
    const value = add(cell, "span");
    const fill = add(add(cell, "span", { class: "track", "aria-hidden": "true" }), "span", { class: "fill" });
    row.cells.push({ value, fill });
  }
  rows.set(name, row);
  return row;
}

function showUpstreams(upstreams) {
  const scales = bars.map((bar) => rescale(bar, upstreams));
  const body = byID("upstreams").tBodies[0];
  const names = new Set(upstreams.map((u) => u.upstream));
  for (const [name, row] of rows) {
    if (names.has(name)) continue;
    row.element.remove();
    rows.delete(name);
  }
  upstreams.forEach((u, i) => {
    const row = rows.get(u.upstream) ?? newRow(u.upstream);
    if (body.rows[i] !== row.element) body.insertBefore(row.element, body.rows[i] ?? null);
    set(row.state, "data-state", u.state);
    put(row.stateText, words(u.state));
    bars.forEach((bar, at) => showBar(row.cells[at], bar, u, scales[at]));
  });
  byID("no-upstreams").hidden = upstreams.length > 0;
  byID("upstreams").hidden = upstreams.length === 0;
}

function showBar({ value, fill }, bar, upstream, scale) {
  const n = bar.of(upstream);
  const aged = bar.limit && n !== undefined && upstream.engine.age_seconds > old;
  put(value, n === undefined ? unknown : bar.show(n) + (aged ? ` ${whole.format(upstream.engine.age_seconds)} s ago` : ""));
  set(value, "class", n === undefined ? "unknown" : aged ? "old" : "");
  fill.style.setProperty("--part", Math.min((n ?? 0) / scale, 1).toFixed(4));
}

// --- totals and the sparkline ----------------------------------------------

let before = null;

function showTotals(event) {
  const { fleet } = event;
  const all = (of) => fleet.upstreams.reduce((total, u) => total + of(u), 0);
  const placed = { at: Date.parse(event.time), count: all((u) => sum(u.placements)) };
  const took = before && (placed.at - before.at) / 1000;
  const rate = took > 0 && placed.count >= before.count ? (placed.count - before.count) / took : undefined;
  before = placed;
  const rejected = sum(fleet.queue_rejected);
  const totals = {
    in_flight: count(all((u) => u.requests_in_flight)),
    waiting: count(all((u) => u.requests_waiting)),
    prefill: count(all((u) => u.prefill_tokens)),
    placements: rate === undefined ? unknown : short.format(rate),
    sessions: count(fleet.sessions),
    queue: count(sum(fleet.queue_waiting)) + (rejected ? `, ${count(rejected)} rejected` : ""),
  };
  for (const [name, text] of Object.entries(totals)) put(document.querySelector(`[data-total="${name}"]`), text);
}

// width is how many points the sparkline has room for, as in its viewBox.
const width = 120;

function showFirstOutput({ p50_ms: p50, p95_ms: p95 }, interval) {
  const top = niceAbove(Math.max(50, ...p95.map((ms) => ms ?? 0)));
  byID("line-p50").setAttribute("d", path(p50, top));
  byID("line-p95").setAttribute("d", path(p95, top));
  const last = (points) => points.findLast((ms) => ms !== null);
  const [median, most] = [last(p50), last(p95)].map((ms) => (ms === undefined ? unknown : seconds(ms)));
  put(byID("p50"), median);
  put(byID("p95"), most);
  put(byID("top"), seconds(top));
  const span = minutes(width * interval);
  put(byID("span"), `${span} ago`);
  set(byID("sparkline"), "aria-label", median === unknown
    ? `No first output in the last ${span}`
    : `Time to first output in the last ${span}. Last: median ${median}, 95 % within ${most}`);
}

// path draws the points up to now at the right. Intervals without first output are
// drawn over.
function path(points, top) {
  let d = "";
  points.forEach((ms, i) => {
    if (ms === null) return;
    const x = width - points.length + i;
    const y = (40 * (1 - ms / top)).toFixed(2);
    // a line of no length shows a point that has no neighbour
    d += `${d ? "L" : `M${x} ${y}L`}${x} ${y}`;
  });
  return d;
}

// niceAbove is the next 1, 2 or 5 with zeros.
function niceAbove(n) {
  const ten = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((f) => f * ten).find((f) => f >= n);
}

// --- placements ------------------------------------------------------------

const columns = [
  { label: "Time", of: (p) => clock.format(new Date(p.time)) },
  { label: "Reason", of: (p) => words(p.reason) },
  { label: "Upstream", class: "upstream", of: (p) => p.upstream ?? (p.waits ? "waits" : unknown) },
  { label: "Session", class: "session", of: (p) => p.session || unknown },
  { label: "Model", class: "model", of: (p) => p.model || unknown },
  { label: "Prompt tokens", class: "number", of: (p) => count(p.prompt_tokens) },
  { label: "Cached", class: "number", of: (p) => (p.prompt_tokens ? percent(1 - p.uncached_tokens / p.prompt_tokens) : unknown) },
  { label: "First output", class: "number", of: (p) => (p.first_output_ms ? seconds(p.first_output_ms) : unknown) },
  { label: "Result", of: result },
];

// failures are the causes of an end that somebody may want to look into.
const failures = ["error", "retried", "expired"];

function result(p) {
  const attempt = p.attempt > 1 ? `, attempt ${p.attempt}` : "";
  if (!p.cause) return (p.first_output_ms ? "running" : "waiting") + attempt;
  return (p.cause === "end" || p.cause === "first_output" ? "done" : words(p.cause)) + attempt;
}

function showPlacements(placements) {
  const body = byID("placements").tBodies[0];
  while (body.rows.length > placements.length) body.deleteRow(-1);
  placements.forEach((p, i) => {
    const row = body.rows[i] ?? newPlacementRow(body);
    columns.forEach((column, at) => put(row.cells[at], column.of(p)));
    row.querySelector(".model").classList.toggle("unknown", !p.model);
    row.lastElementChild.classList.toggle("failed", failures.includes(p.cause));
  });
  byID("no-placements").hidden = placements.length > 0;
  byID("placements").hidden = placements.length === 0;
}

function newPlacementRow(body) {
  const row = add(body, "tr", { role: "row" });
  for (const column of columns) {
    add(row, "td", { role: "cell", class: column.class ?? "", "data-label": column.label });
  }
  return row;
}

// --- what is said to screen readers ------------------------------------------

// quiet is how long nothing is said after something was, in milliseconds. What
// comes meanwhile is said together.
const quiet = 5000;

let toSay = [];
let silent = null;

function say(text) {
  toSay.push(text);
  if (!silent) speak();
}

function speak() {
  silent = null;
  if (toSay.length === 0) return;
  byID("said").textContent = toSay.join(". ");
  toSay = [];
  silent = setTimeout(speak, quiet);
}

const states = new Map();

// sayStates says which upstreams are in another state than before.
function sayStates(upstreams) {
  for (const { upstream, state } of upstreams) {
    const was = states.get(upstream);
    states.set(upstream, state);
    if (was && was !== state) say(`${upstream} is now ${words(state)}`);
  }
}

// --- the connection ------------------------------------------------------------

let stream = null;
let paused = false;
let retry = null;
let interval = 1000;
let heard = 0;
let version = null;

function show(event) {
  if (version && version !== event.page) {
    location.reload();
    return;
  }
  version = event.page;
  interval = event.interval_ms;
  heard = Date.now();
  put(byID("name"), event.name);
  document.title = `Fleet ${event.name}`;
  link("live", "Live");
  const { fleet } = event;
  byID("shown").hidden = !fleet;
  notice(fleet ? "" : `No config that is loaded has a policy with the fleet ${event.name}.`);
  if (!fleet) return;
  showTotals(event);
  showFirstOutput(event.first_output, interval);
  showUpstreams(fleet.upstreams);
  showPlacements(event.placements ?? []);
  sayStates(fleet.upstreams);
}

function notice(text) {
  put(byID("notice"), text);
  byID("notice").hidden = !text;
}

// link shows what the connection is like, and says so when that changes. What is
// on the page is not what is when there is none.
function link(state, text) {
  const was = byID("link").dataset.link;
  set(byID("link"), "data-link", state);
  put(byID("link-text"), text);
  byID("shown").classList.toggle("stale", state === "lost");
  if (was !== state && (state === "lost" || was === "lost")) say(text);
}

function connect() {
  disconnect();
  heard = Date.now();
  const own = (stream = new EventSource("?events"));
  own.onmessage = ({ data }) => show(JSON.parse(data));
  own.onerror = () => {
    link("lost", "Connection lost. Trying again");
    // otherwise the browser connects again by itself
    if (own.readyState === EventSource.CLOSED) refused(own);
  };
}

// refused finds out why the browser has given up, and tries again later.
async function refused(own) {
  const reason = await fetch("?events", { method: "HEAD", cache: "no-store" }).then(
    ({ ok, status }) => {
      if (status === 503) return "Too many viewers. Trying again";
      if (status === 401 || status === 403) return "Not allowed. Reload the page to sign in";
      return ok ? "" : `The server answers with status ${status}. Trying again`;
    },
    () => "",
  );
  if (stream !== own) return;
  if (reason) link("lost", reason);
  retry = setTimeout(connect, 5000);
}

function disconnect() {
  clearTimeout(retry);
  stream?.close();
  stream = null;
}

// a stream may break without a word: then no event comes
setInterval(() => {
  if (!stream || stream.readyState !== EventSource.OPEN) return;
  const since = Date.now() - heard;
  if (since < 3 * interval + 4000) return;
  link("lost", "No news from the server. Trying again");
  connect();
}, 1000);

// adjust connects while somebody looks.
function adjust() {
  if (paused || document.hidden) {
    disconnect();
    link("paused", "Paused");
  } else if (!stream) {
    link("connecting", "Connecting");
    connect();
  }
}

byID("pause").addEventListener("click", () => {
  paused = !paused;
  byID("pause").textContent = paused ? "Resume" : "Pause";
  adjust();
});
document.addEventListener("visibilitychange", adjust);
addEventListener("pagehide", disconnect);
addEventListener("pageshow", ({ persisted }) => persisted && adjust());
adjust();
