// All tenants at a glance: what each does, and how much of its three reservations it uses.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, percent, rate, size, sizeOf, time, timeOf } from "./format";
import { exitText } from "./ends";
import type { History, Sample } from "./history";
import { Meter, Spark } from "./meter";
import { tenantLink } from "./route";
import type { Tenant } from "./view";
import { useWatch } from "./watch";

const misses = (tenant: Tenant): number => tenant.processor?.supply.misses ?? 0;

type Order = (a: Tenant, b: Tenant) => number;

/** The orders that the list can have. Values that are unknown go last. */
function orders(history: History): Record<string, Order> {
  const most = (value: (tenant: Tenant) => number | undefined): Order =>
    (a, b) => (value(b) ?? -1) - (value(a) ?? -1);
  const latest = (name: string): Sample | undefined => history.latest(name);
  return {
    "lease file": () => 0,
    name: (a, b) => a.name.localeCompare(b.name),
    processor: most((tenant) => latest(tenant.name)?.share),
    memory: most((tenant) => tenant.memory.used_bytes),
    requests: most((tenant) => latest(tenant.name)?.rate),
    p99: most((tenant) => tenant.http?.latency.p99_ns),
    misses: most(misses),
    restarts: most((tenant) => tenant.restarts),
  };
}

export function StateMark({ tenant }: { tenant: Tenant }) {
  const text = tenant.state === "ended" && tenant.exit ? exitText(tenant.exit) : tenant.state;
  const bad = tenant.state === "restarting" ||
    (tenant.state === "ended" && tenant.exit !== undefined && !["killed", "code"].includes(tenant.exit.kind));
  return <span class={`state ${tenant.state}${bad ? " bad" : ""}`}><i aria-hidden="true" />{text}</span>;
}

/** The part of a processor that a tenant got of late, and what it has reserved. */
export function shareText(share: number | undefined, tenant: Tenant): string {
  return tenant.cpu ? `${percent(share)} of ${percent(tenant.cpu.utilization)}` : `${percent(share)}, background`;
}

function Row({ tenant, samples }: { tenant: Tenant; samples: readonly Sample[] }) {
  const now = samples.at(-1);
  const { reclaim, memory, http, cpu } = tenant;
  const reserved = cpu?.utilization;
  const charged = timeOf(reclaim.charged_ns, reclaim.budget_ns);
  const share = shareText(now?.share, tenant);
  const used = memory.used_bytes === undefined ? `– of ${size(memory.limit_bytes)}` : sizeOf(memory.used_bytes, memory.limit_bytes);
  return (
    <div role="row" class="tenant" data-tenant={tenant.name}>
      <div role="rowheader" class="who">
        <a href={tenantLink(tenant.name)}>{tenant.name}</a>
        <StateMark tenant={tenant} />
      </div>
      <div role="cell" class="use" data-label="reclaim">
        <Meter kind="reclaim" label={`Reclamation budget of ${tenant.name}`} value={reclaim.charged_ns}
          whole={reclaim.budget_ns} text={charged} />
        <span class="num">{charged}</span>
      </div>
      <div role="cell" class="use" data-label="processor">
        <div class="pair">
          <Meter kind="cpu" label={`Processor of ${tenant.name}`} value={now?.share} whole={reserved ?? 1} text={share} />
          <Spark samples={samples} of={(sample) => sample.share} top={reserved ?? 0.01} rule={reserved}
            label={`Part of a processor that ${tenant.name} got in the last two minutes`} />
        </div>
        <span class="num">{share}</span>
      </div>
      <div role="cell" class="use" data-label="memory">
        <Meter kind="memory" label={`Memory of ${tenant.name}`} value={memory.used_bytes} whole={memory.limit_bytes}
          mark={memory.reserve_bytes} text={used} />
        <span class="num">{used}</span>
      </div>
      <div role="cell" class="figure" data-label="req/s">{http ? rate(now?.rate) : "–"}</div>
      <div role="cell" class="figure" data-label="p99">{http && http.latency.count > 0 ? time(http.latency.p99_ns) : "–"}</div>
      <div role="cell" class={`figure${misses(tenant) > 0 ? " warn" : ""}`} data-label="misses">
        {tenant.processor ? count(misses(tenant)) : "–"}
      </div>
      <div role="cell" class={`figure${tenant.restarts > 0 ? " warn" : ""}`} data-label="restarts">{count(tenant.restarts)}</div>
    </div>
  );
}

const COLUMNS = ["tenant", "reclamation", "processor", "memory", "req/s", "p99", "misses", "restarts"];

/** Puts the cursor into the search when `/` is pressed outside of a field. */
function useSlash() {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const inField = event.target instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      if (event.key !== "/" || inField || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  return field;
}

export function Tenants() {
  const { snapshot, history } = useWatch();
  const [wanted, setWanted] = useState("");
  const [order, setOrder] = useState("lease file");
  const field = useSlash();
  const sorts = useMemo(() => orders(history), [history]);
  const all = snapshot?.tenants ?? [];
  const shown = all
    .filter((tenant) => tenant.name.toLowerCase().includes(wanted.toLowerCase()))
    .sort(sorts[order]!);
  return (
    <section class="panel tenants" aria-labelledby="tenants-title">
      <header>
        <h2 id="tenants-title">Tenants <span class="count">{all.length}</span></h2>
        <div class="tools">
          <input ref={field} type="search" placeholder="Find  /" aria-label="Find tenants by name" value={wanted}
            onInput={(event) => setWanted(event.currentTarget.value)} />
          <label>
            <span>by</span>
            <select aria-label="Order of the tenants" value={order}
              onChange={(event) => setOrder(event.currentTarget.value)}>
              {Object.keys(sorts).map((name) => <option key={name}>{name}</option>)}
            </select>
          </label>
        </div>
      </header>
      {shown.length === 0 && <p class="empty">{all.length === 0 ? "The node has no tenants." : "No tenant has such a name."}</p>}
      {shown.length > 0 && (
        <div role="table" aria-labelledby="tenants-title" class="list">
          <div role="row" class="tenant names">
            {COLUMNS.map((name) => <div key={name} role="columnheader">{name}</div>)}
          </div>
          {shown.map((tenant) => <Row key={tenant.name} tenant={tenant} samples={history.of(tenant.name)} />)}
        </div>
      )}
    </section>
  );
}
