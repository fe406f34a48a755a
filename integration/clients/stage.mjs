// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// A stage is simulated servers and Caddy in front of them, with the production
// example or another config, each a process of its own on a port that the kernel
// gives. The variables CADDY and VLLMSIM name the programs; ./run builds them.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

// patience is how long a condition may take on a busy machine before it counts
// as never, in milliseconds.
export const patience = 30_000;

const children = new Set();

// a test file that fails or is stopped leaves no process behind
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

// start runs three simulated servers and Caddy. flags go to each server, and
// sites writes a Caddyfile without global options for an address to listen on and
// the servers.
export async function start(flags = [], sites = production) {
  try {
    return await startAll(flags, sites);
  } catch (err) {
    // the runner waits for them otherwise
    children.forEach((child) => child.kill("SIGKILL"));
    throw err;
  }
}

async function startAll(flags, sites) {
  const dir = mkdtempSync(join(tmpdir(), "clients-"));
  process.on("exit", () => rmSync(dir, { recursive: true, force: true }));
  const servers = await Promise.all([1, 2, 3].map((seed) => startServer(seed, flags)));
  const [site, admin] = await freeAddresses(2);
  const config = join(dir, "Caddyfile");
  await writeFile(config, globals(admin) + (await sites(site, servers)));
  const caddy = launch(process.env.CADDY, ["run", "--config", config], {
    // Caddy keeps files where these say
    env: { PATH: process.env.PATH, HOME: dir, XDG_CONFIG_HOME: dir, XDG_DATA_HOME: dir },
  });
  const said = [];
  createInterface(caddy.stderr).on("line", (line) => said.push(line));
  const stage = new Stage(caddy, servers, site, admin);
  await eventually(async () => {
    if (caddy.exitCode !== null) throw new Error(`Caddy has ended:\n${said.join("\n")}`);
    return stage.ask("/config/").then((res) => res.ok, () => false);
  }, () => `Caddy does not start:\n${said.join("\n")}`);
  return stage;
}

async function startServer(seed, flags) {
  const child = launch(process.env.VLLMSIM, ["-listen", "127.0.0.1:0", "-speed", "20", "-seed", String(seed), ...flags]);
  child.stderr.pipe(process.stderr);
  for await (const line of createInterface(child.stdout)) {
    return new Server(child, line.replace(/.*listening on /, ""));
  }
  throw new Error("a simulated server has ended");
}

function launch(program, args, options) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  children.add(child);
  child.on("exit", () => children.delete(child));
  return child;
}

// freeAddresses returns addresses that nobody listens on. All stay open until
// the last is known: the kernel may give a closed one out again.
async function freeAddresses(n) {
  const open = Array.from({ length: n }, () => createServer().listen(0, "127.0.0.1"));
  await Promise.all(open.map((server) => once(server, "listening")));
  const addresses = open.map((server) => `127.0.0.1:${server.address().port}`);
  await Promise.all(open.map((server) => once(server.close(), "close")));
  return addresses;
}

function globals(admin) {
  return `{\n\tadmin ${admin}\n\tpersist_config off\n\tgrace_period 1s\n\tlog {\n\t\tlevel ERROR\n\t}\n}\n`;
}

// production is the production example with other addresses.
async function production(site, servers) {
  let text = await readFile(process.env.CADDYFILE, "utf8");
  const put = (name, address) => {
    if (!text.includes(name)) throw new Error(`the example has no ${name}`);
    text = text.replace(name, address);
  };
  put("llm.example.com", `http://${site}`);
  put("localhost:9181", (await freeAddresses(1))[0]);
  servers.forEach((server, i) => put(`vllm-${i}:8000`, server.address));
  return text;
}

// Server is a simulated server.
class Server {
  constructor(child, url) {
    Object.assign(this, { child, url, address: new URL(url).host });
  }

  // metric returns the value of a metric of the engine.
  async metric(name) {
    const page = await (await fetch(`${this.url}/metrics`)).text();
    const found = page.match(new RegExp(`^${name}\\{.*\\} (\\S+)$`, "m"));
    if (!found) throw new Error(`no metric ${name}`);
    return Number(found[1]);
  }

  // requests returns how many requests with a prompt the server has not ended.
  async requests() {
    return (await (await fetch(`${this.url}/load`)).json()).server_load;
  }

  // setFault breaks the server, and repairs it without an argument.
  async setFault(fault = {}) {
    const res = await fetch(`${this.url}/sim/fault`, { method: "POST", body: JSON.stringify(fault) });
    if (!res.ok) throw new Error(await res.text());
  }
}

// persist is fetch for what Caddy itself answers. A reload closes connections that
// are kept, and what is sent on one in that moment has no answer: it is sent again.
export async function persist(url, options) {
  for (let tries = 1; ; tries++) {
    try {
      return await fetch(url, options);
    } catch (err) {
      if (tries === 5) throw err;
    }
  }
}

// Stage is Caddy with its servers.
class Stage {
  constructor(caddy, servers, site, admin) {
    Object.assign(this, { caddy, servers, admin, url: `http://${site}` });
  }

  // ask fetches a path of Caddy's admin API. It takes fetch for a browser, by
  // its Sec-Fetch-Mode, and wants it to name an origin that is allowed.
  ask(path) {
    return persist(`http://${this.admin}${path}`, { headers: { Origin: `http://${this.admin}` } });
  }

  // load has Caddy run another config, as start takes one, and even the same one
  // anew.
  async load(sites) {
    const res = await persist(`http://${this.admin}/load`, {
      method: "POST",
      headers: { Origin: `http://${this.admin}`, "Content-Type": "text/caddyfile", "Cache-Control": "must-revalidate" },
      body: globals(this.admin) + (await sites(new URL(this.url).host, this.servers)),
    });
    if (!res.ok) throw new Error(await res.text());
  }

  // fleet returns the upstreams as Caddy's admin API shows them, in the order
  // of the servers.
  async fleet() {
    const fleets = await (await this.ask("/llm_loadaware/fleets")).json();
    const upstreams = fleets.flatMap((fleet) => fleet.upstreams);
    return this.servers.map(({ address }) => upstreams.find(({ upstream }) => upstream === address));
  }

  // placements returns how many requests Caddy has placed on each server. One
  // that has had none may not be known yet.
  async placements() {
    return (await this.fleet()).map((upstream) => (upstream ? sum(upstream.placements) : 0));
  }

  // setFault breaks or repairs all servers.
  async setFault(fault) {
    await Promise.all(this.servers.map((server) => server.setFault(fault)));
  }

  // settled waits until Caddy counts nothing as in flight and the servers have
  // no request left. What was placed must have been released as often.
  async settled() {
    let last;
    await eventually(async () => {
      last = (await this.fleet()).filter(Boolean);
      const left = await Promise.all(this.servers.map((server) => server.requests()));
      return left.every((n) => n === 0) && last.every((u) =>
        u.requests_in_flight === 0 && u.requests_waiting === 0 && u.prefill_tokens === 0 &&
        sum(u.placements) === sum(u.releases));
    }, () => `counters do not return to 0: ${JSON.stringify(last)}`);
  }

  // stop ends Caddy and the servers, and waits for them.
  async stop() {
    const all = [this.caddy, ...this.servers.map(({ child }) => child)];
    await Promise.all(all.map(async (child) => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill("SIGTERM");
      await once(child, "exit");
    }));
  }
}

export function sum(counts) {
  return Object.values(counts).reduce((a, b) => a + b, 0);
}

// eventually polls a condition until it holds.
export async function eventually(holds, otherwise) {
  const deadline = Date.now() + patience;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(otherwise());
    await pause(10);
  }
}
