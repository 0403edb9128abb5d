// A server for work on the page alone: it plays a node with tenants that are made up, and builds the page
// anew for each visit. Nothing but development uses it: tests start a real node.
//   node dev.mjs [PORT]
import { execFileSync } from "node:child_process";
import { readFileSync, mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MS = 1e6;
const MIB = 2 ** 20;
const built = mkdtempSync(join(tmpdir(), "leasehold-page-"));
const startedAt = new Date();
const now = () => new Date().toISOString();
const wave = (span, from, to) => from + (to - from) * (0.5 + 0.5 * Math.sin(Date.now() / span));
const noise = (part) => 1 + part * (Math.random() - 0.5);

/** A tenant's made-up habits: how much of each reservation it uses. */
const habits = {
  cart: { budget: 30, cpu: [2, 10, 20], charged: 0.42, share: 0.7, used: 22, limit: 64, rate: 180, p99: 4.2 },
  catalog: { budget: 50, cpu: [3, 10, 18], charged: 0.61, share: 0.9, used: 48, limit: 128, rate: 640, p99: 2.1 },
  checkout: { budget: 20, cpu: [1, 10, 22], charged: 0.3, share: 0.35, used: 9, limit: 32, rate: 22, p99: 11 },
  thumbnail: { budget: 10, cpu: [2, 20, 10], charged: 0.95, share: 1.02, used: 61, limit: 64, rate: 8, p99: 88, misses: 3 },
  "search-index": { budget: 80, cpu: [4, 40, 5], charged: 0.5, share: 0.98, used: 180, limit: 256, rate: 40, p99: 31, paging: true },
  nightly: { budget: 15, charged: 0.2, share: 0.05, used: 12, limit: 64 },
  hostile: { budget: 10, cpu: [1, 20, 1], charged: 0.99, share: 1, used: 30, limit: 32, rate: 3, p99: 900, dies: true },
  legacy: { budget: 10, cpu: [1, 20, 1], charged: 0, share: 0, used: 0, limit: 16, ended: true },
};

const tenants = new Map();
const ends = [];
const events = [];
const watchers = new Set();
const logs = new Map();

function say(kind, tenant, more = {}) {
  const event = { seq: events.length + 1, at: now(), kind, tenant, ...more };
  events.push(event);
  for (const response of watchers) sendEvent(response, event);
}

const sendEvent = (response, event) =>
  response.write(`id: ${event.seq}\nevent: ${event.kind}\ndata: ${JSON.stringify(event)}\n\n`);

function log(name, stream, line, request) {
  const lines = logs.get(name) ?? [];
  logs.set(name, [...lines, { at: now(), stream, line, request }].slice(-200));
}

for (const [name, habit] of Object.entries(habits)) {
  const [budget, period, priority] = habit.cpu ?? [];
  tenants.set(name, {
    name,
    desired: habit.ended ? "stopped" : "running",
    state: habit.ended ? "ended" : "running",
    since: now(),
    component: `target/guests/${name}.wasm`,
    restarts: 0,
    exit: habit.ended
      ? { kind: "trap", message: "wasm trap: out of bounds memory access\n  0: legacy::parse\n  1: legacy::main" } : undefined,
    reclaim: { budget_ns: habit.budget * MS },
    cpu: habit.cpu && {
      budget_ns: budget * MS, period_ns: period * MS, priority, policy: "sporadic", utilization: budget / period,
    },
    memory: { reserve_bytes: habit.limit * MIB * 0.5, limit_bytes: habit.limit * MIB },
    end_bound: { effect_ns: 340_300, returned_ns: habit.cpu ? habit.budget * 6.3 * MS : undefined },
    http: habit.rate && {
      routes: [`/${name}/*`], listeners: ["main"], concurrency: 16, queue: 64, waiting: 0, active: 0,
      outcomes: { answered: 0, trapped: 0, "queue-full": 0 }, latency: { count: 0, sum_ns: 0 },
    },
    supply: { used_ns: 0, dispatches: 0, replenishments: 0, preemptions: 0, depletions: 0, misses: 0, overrun_max_ns: 0 },
    requests: [],
  });
}

function step(tenant, habit, span) {
  if (tenant.state === "ended") return;
  const share = (tenant.cpu?.utilization ?? 1) * Math.min(1.1, habit.share * noise(0.3) * wave(7000 + habit.budget * 200, 0.5, 1));
  tenant.supply.used_ns += Math.round(share * span * 1e9);
  tenant.supply.dispatches += Math.round(90 * span);
  tenant.supply.replenishments += Math.round(80 * span);
  tenant.supply.preemptions += Math.round(12 * span);
  if (habit.share > 0.95 && Math.random() < 0.3) tenant.supply.depletions++;
  if (habit.misses && Math.random() < 0.02) tenant.supply.misses++;
  tenant.supply.overrun_max_ns = 41_000;
  tenant.reclaim.charged_ns = Math.round(tenant.reclaim.budget_ns * Math.min(1, habit.charged * noise(0.1)));
  tenant.memory.used_bytes = Math.round(habit.used * MIB * noise(0.02));
  tenant.processor = {
    state: "running", budget_ns: tenant.cpu?.budget_ns, period_ns: tenant.cpu?.period_ns,
    left_ns: tenant.cpu && Math.round(tenant.cpu.budget_ns * Math.random()), supply: tenant.supply,
  };
  if (tenant.http) serve(tenant, habit, span);
}

function serve(tenant, habit, span) {
  const done = Math.round(habit.rate * span * noise(0.5));
  const p99 = habit.p99 * MS * noise(0.3) * wave(11000, 0.8, 1.5);
  const { latency, outcomes } = tenant.http;
  outcomes.answered += done;
  if (habit.dies) outcomes["queue-full"] += 2;
  Object.assign(latency, {
    count: latency.count + done, sum_ns: latency.sum_ns + done * p99 * 0.3, p50_ns: p99 * 0.22, p90_ns: p99 * 0.6, p99_ns: p99, max_ns: p99 * 3,
  });
  tenant.http.active = Math.round(Math.random() * 5);
  tenant.http.waiting = habit.dies ? 60 : 0;
  for (let i = 0; i < Math.min(done, 3); i++) {
    const id = outcomes.answered + i;
    tenant.requests.push({
      id, at: now(), remote: "192.0.2.7:40112", listener: "main", method: i ? "GET" : "POST", host: "shop.example",
      path: `/${tenant.name}/items/${id % 97}`, status: habit.dies && i ? 502 : 200, body_bytes: 812 * (i + 1),
      elapsed_ns: p99 * 0.3, queued_ns: p99 * 0.02, guest_ns: p99 * 0.1, outcome: habit.dies && i ? "trapped" : "answered",
    });
  }
  tenant.requests = tenant.requests.slice(-100);
  if (Math.random() < 0.2) log(tenant.name, Math.random() < 0.1 ? "stderr" : "stdout", `answered item ${outcomes.answered % 97} in ${(p99 / MS / 4).toFixed(2)} ms`, outcomes.answered);
}

function end(tenant, exit, broken = false) {
  const bound = tenant.end_bound.returned_ns;
  const wall = broken ? bound * 1.3 : (bound ?? 40 * MS) * (0.02 + Math.random() * 0.3);
  const over = {
    tenant: tenant.name, at: now(), exit, predicted_ns: tenant.reclaim.charged_ns ?? 0,
    measured_ns: Math.round((tenant.reclaim.charged_ns ?? 0) * (0.15 + Math.random() * 0.3)), effect_ns: 120_000, reusable_ns: 210_000,
    wall_ns: Math.round(wall), bound_ns: bound, within_bound: bound === undefined ? undefined : wall <= bound,
    budget_ns: tenant.reclaim.budget_ns, calls_under_way: 0,
  };
  ends.push(over);
  Object.assign(tenant, { exit, last_end: over, since: now(), state: "ended" });
  delete tenant.processor;
  delete tenant.reclaim.charged_ns;
  delete tenant.memory.used_bytes;
  if (tenant.http) tenant.http.waiting = tenant.http.active = 0;
  say("ended", tenant.name, { end: over });
  log(tenant.name, "host", `ended: ${exit.kind}`);
  return over;
}

function start(tenant, kind = "started") {
  Object.assign(tenant, { state: "running", desired: "running", since: now(), exit: undefined });
  for (const key of Object.keys(tenant.supply)) tenant.supply[key] = 0;
  say(kind, tenant.name);
}

for (const tenant of tenants.values()) if (tenant.state !== "ended") start(tenant);

setInterval(() => {
  for (const tenant of tenants.values()) step(tenant, habits[tenant.name], 0.25);
}, 250);

let deaths = 0;
setInterval(() => {
  const hostile = tenants.get("hostile");
  if (hostile.desired === "stopped") return;
  end(hostile, { kind: "trap", message: "wasm trap: call stack exhausted" }, ++deaths % 4 === 2);
  hostile.state = "restarting";
  hostile.restarts++;
  say("restarting", "hostile", { message: "in 1 s" });
  setTimeout(() => start(hostile), 1000);
}, 6000);

function view(tenant) {
  const { supply, requests, ...shown } = tenant;
  return shown;
}

const node = () => ({
  version: "0.1.0", started_at: startedAt.toISOString(), uptime_ns: (Date.now() - startedAt) * MS, order: "fixed-priority",
  realtime: "granted", own_core: 1, confinement: "no privileges, system calls by kind of thread, files of leases only (Landlock 7)",
  schedulable: true, utilization: [...tenants.values()].reduce((sum, tenant) => sum + (tenant.cpu?.utilization ?? 0), 0),
  listeners: [{ name: "main", address: "0.0.0.0:8080", tls: false }, { name: "public", address: "0.0.0.0:8443", tls: true }],
});

const CLASSES = ["semaphore", "capability table leaf", "root group", "memory_page", "instance", "store", "descriptor", "host_page"];

const details = {
  statement: ({ reclaim: { budget_ns, charged_ns = 0 } }) => ({
    budget_ns, charged_ns, left_ns: budget_ns - charged_ns,
    rows: CLASSES.map((name, i) => ({ class: name, count: 40000 >> (i * 2), reclamation_ns: Math.round(charged_ns / 2 ** (i + 1)) })),
  }),
  processor: (tenant) => tenant.processor,
  memory: ({ name, memory }) => ({
    linear_bytes: memory.used_bytes ?? 0, ...memory, shared_bytes: 4 * MIB, swapped_bytes: 0,
    paging: habits[name].paging && {
      owned_bytes: memory.reserve_bytes * 0.6, conserved_bytes: memory.reserve_bytes * 0.2, locked_bytes: memory.reserve_bytes * 0.05,
      free_bytes: memory.reserve_bytes * 0.15, borrowed_bytes: 0, zero_faults: 8201, minor_faults: 118, major_faults: 40, evicted: 12, written: 9,
    },
  }),
  requests: ({ http, requests }) => ({ ...http, last: requests }),
};

const commands = {
  kill: (tenant) => { tenant.desired = "stopped"; return end(tenant, { kind: "killed" }); },
  start: (tenant) => { start(tenant); return view(tenant); },
  replace: (tenant) => { end(tenant, { kind: "killed" }); start(tenant, "replaced"); return view(tenant); },
  drain: (tenant) => { tenant.state = "draining"; say("draining", tenant.name); return null; },
};

function answer(request, response) {
  const url = new URL(request.url, "http://node");
  const json = (status, body) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(body === null ? undefined : JSON.stringify(body));
  };
  if (url.pathname === "/") {
    execFileSync("node", [join(import.meta.dirname, "build.mjs"), built], { stdio: "inherit" });
    response.writeHead(200, {
      "content-type": "text/html; charset=utf-8",
      "content-security-policy": readFileSync(join(built, "policy.txt"), "utf8"),
    });
    return response.end(readFileSync(join(built, "index.html")));
  }
  if (request.headers.authorization !== "Bearer dev") return json(401, { error: { kind: "unauthorized", message: "the token is missing" } });
  if (url.pathname === "/v1/snapshot") {
    return json(200, {
      at: now(), node: node(), tenants: [...tenants.values()].map(view), ends: ends.slice(-100), last_event: events.length, costs: [], control: [],
      steps: [{ row: "leasehold_kernel semaphore_create", steps: 305936, longest_ns: 167800, limit_ns: 283700, exceeded: 0, disturbed: 1 }],
    });
  }
  if (url.pathname === "/v1/events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    events.filter((event) => event.seq > Number(url.searchParams.get("since"))).forEach((event) => sendEvent(response, event));
    watchers.add(response);
    return response.on("close", () => watchers.delete(response));
  }
  const [, name, what] = /^\/v1\/tenants\/([^/]+)\/(\w+)$/.exec(url.pathname) ?? [];
  const tenant = tenants.get(decodeURIComponent(name ?? ""));
  if (!tenant) return json(404, { error: { kind: "not-found", message: `no ${url.pathname}` } });
  if (request.method === "POST" && commands[what]) return setTimeout(() => json(200, commands[what](tenant)), 200);
  if (what === "logs") return followLogs(tenant.name, response);
  const found = details[what]?.(tenant);
  return found ? json(200, found) : json(409, { error: { kind: "conflict", message: "it does not run" } });
}

function followLogs(name, response) {
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  let seen = "";
  const timer = setInterval(() => {
    for (const line of (logs.get(name) ?? []).filter((line) => line.at > seen)) {
      seen = line.at;
      response.write(JSON.stringify(line) + "\n");
    }
  }, 200);
  response.on("close", () => clearInterval(timer));
}

const server = createServer(answer).listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/#token=dev`);
});
