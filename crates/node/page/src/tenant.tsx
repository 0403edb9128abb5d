// The page of one tenant.

import { Chart } from "./chart";
import { Commands } from "./command";
import { EndKey, Ends, exitText } from "./ends";
import { Events } from "./events";
import { age, clock, count, rate, size, sizeOf, time, timeOf } from "./format";
import { tenantPath } from "./interface";
import { Logs } from "./logs";
import { Meter } from "./meter";
import { usePoll } from "./poll";
import { Schedule } from "./schedule";
import { StateMark } from "./tenants";
import type { MemoryUse, Requests, Statement, Tenant } from "./view";
import { useWatch } from "./watch";

function Reclamation({ tenant }: { tenant: Tenant }) {
  const found = usePoll<Statement>(tenantPath(tenant.name, "/statement"), 1000);
  const charged = tenant.reclaim.charged_ns;
  // A statement stays on the page after its tenant has ended; then it is no longer true.
  const statement = charged === undefined ? undefined : found;
  const whole = tenant.reclaim.budget_ns;
  const rows = [...(statement?.rows ?? [])].sort((a, b) => b.reclamation_ns - a.reclamation_ns);
  const most = rows[0]?.reclamation_ns || 1;
  return (
    <section class="panel" aria-labelledby="statement-title">
      <header>
        <h2 id="statement-title">Reclamation</h2>
        <p class="sub">what taking everything back is charged</p>
      </header>
      <div class="use wide">
        <Meter kind="reclaim" label="Reclamation budget that is charged" value={charged} whole={whole} text={timeOf(charged, whole)} />
        <span class="num">{timeOf(charged, whole)}{statement && `, ${time(statement.left_ns)} left`}</span>
      </div>
      {statement
        ? (
          <table>
            <thead><tr><th scope="col">class</th><th scope="col" class="figure">count</th><th scope="col" class="figure">reclamation</th><th aria-hidden="true" /></tr></thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.class}>
                  <th scope="row">{row.class.replaceAll("_", " ")}</th>
                  <td class="figure">{count(row.count)}</td>
                  <td class="figure">{time(row.reclamation_ns)}</td>
                  <td class="bar" aria-hidden="true"><i style={{ width: `${(row.reclamation_ns / most) * 100}%` }} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        )
        : <p class="empty">It does not run: nothing is charged.</p>}
    </section>
  );
}

/** Where the frames of a tenant that pages are, as one bar. */
function Frames({ paging, reserve }: { paging: NonNullable<MemoryUse["paging"]>; reserve: number }) {
  const parts: [string, number][] = [
    ["owned", paging.owned_bytes],
    ["conserved", paging.conserved_bytes],
    ["locked", paging.locked_bytes],
    ["free", paging.free_bytes],
  ];
  const text = parts.map(([name, bytes]) => `${name} ${size(bytes)}`).join(", ");
  return (
    <>
      <h3>Frames of its reservation</h3>
      <div class="frames" role="img" aria-label={text}>
        {parts.map(([name, bytes]) => <i key={name} class={name} style={{ width: `${(bytes / reserve) * 100}%` }} />)}
      </div>
      <p class="key">
        {parts.map(([name, bytes]) => <span key={name}><i class={`k-${name}`} /> {name} {size(bytes)}</span>)}
      </p>
      <dl class="counters">
        <div><dt>borrowed</dt><dd>{size(paging.borrowed_bytes)}</dd></div>
        <div><dt>new pages</dt><dd>{count(paging.zero_faults)}</dd></div>
        <div><dt>shared faults</dt><dd>{count(paging.minor_faults)}</dd></div>
        <div><dt>read back</dt><dd>{count(paging.major_faults)}</dd></div>
        <div><dt>evicted</dt><dd>{count(paging.evicted)}</dd></div>
        <div><dt>written</dt><dd>{count(paging.written)}</dd></div>
      </dl>
    </>
  );
}

function MemoryPanel({ tenant }: { tenant: Tenant }) {
  const found = usePoll<MemoryUse>(tenantPath(tenant.name, "/memory"), 1000);
  const { used_bytes: used, limit_bytes: limit, reserve_bytes: reserve } = tenant.memory;
  const use = used === undefined ? undefined : found;
  const text = sizeOf(used, limit);
  return (
    <section class="panel" aria-labelledby="memory-title">
      <header>
        <h2 id="memory-title">Memory</h2>
        <p class="sub">{size(reserve)} reserved, limit {size(limit)}</p>
      </header>
      <div class="use wide">
        <Meter kind="memory" label="Linear memory" value={used} whole={limit} mark={reserve} text={text} />
        <span class="num">{text}</span>
      </div>
      {use && (
        <dl class="counters">
          <div><dt>shared</dt><dd>{size(use.shared_bytes)}</dd></div>
          <div><dt>in the swap file</dt><dd>{size(use.swapped_bytes)}</dd></div>
        </dl>
      )}
      {use?.paging && <Frames paging={use.paging} reserve={use.reserve_bytes} />}
    </section>
  );
}

function RequestsPanel({ tenant }: { tenant: Tenant }) {
  const { history } = useWatch();
  const requests = usePoll<Requests>(tenantPath(tenant.name, "/requests"), 1000);
  const http = tenant.http!;
  const samples = history.of(tenant.name);
  const values = (of: "mean" | "p50" | "p90" | "p99") => samples.map((sample) => sample[of] ?? null);
  const last = [...(requests?.last ?? [])].reverse();
  return (
    <section class="panel" aria-labelledby="requests-title">
      <header>
        <h2 id="requests-title">Requests</h2>
        <p class="sub">{http.routes.join(", ") || "no route"}{http.listeners.length > 0 && ` on ${http.listeners.join(", ")}`}</p>
      </header>
      <dl class="counters">
        <div><dt>a second</dt><dd>{rate(samples.at(-1)?.rate)}</dd></div>
        <div><dt>under way</dt><dd>{http.active} of {http.concurrency}</dd></div>
        <div><dt>waiting</dt><dd>{http.waiting} of {http.queue}</dd></div>
        {Object.entries(http.outcomes).filter(([, n]) => n > 0).map(([name, n]) => (
          <div key={name} class={name === "answered" ? "" : "warn"}><dt>{name.replaceAll("_", " ").replaceAll("-", " ")}</dt><dd>{count(n)}</dd></div>
        ))}
      </dl>
      {http.latency.count > 0 && (
        <Chart label={`Times of requests of ${tenant.name} in the last five minutes`} height={170} logarithmic
          times={samples.map((sample) => sample.at)} format={time}
          lines={[
            { label: "p50", color: "--line-1", values: values("p50") },
            { label: "p90", color: "--line-2", values: values("p90") },
            { label: "p99", color: "--line-3", values: values("p99") },
            { label: "mean of a second", color: "--soft", dash: [3, 3], values: values("mean") },
          ]} />
      )}
      {last.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="The last requests">
          <table class="requests">
            <thead>
              <tr>
                <th scope="col">at</th><th scope="col">request</th><th scope="col">outcome</th>
                <th scope="col" class="figure">took</th><th scope="col" class="figure">waited</th><th scope="col" class="figure">guest</th>
                <th scope="col" class="figure">body</th>
              </tr>
            </thead>
            <tbody>
              {last.map((request) => (
                <tr key={request.id} class={request.outcome === "answered" && (request.status ?? 0) < 500 ? "" : "bad"}>
                  <td><time dateTime={request.at}>{clock(request.at)}</time></td>
                  <th scope="row" title={`${request.host}${request.path} from ${request.remote}`}><code>{request.method} {request.path}</code></th>
                  <td>{request.status ?? "–"} {request.outcome.replaceAll("_", " ")}</td>
                  <td class="figure">{time(request.elapsed_ns)}</td>
                  <td class="figure">{time(request.queued_ns)}</td>
                  <td class="figure">{time(request.guest_ns)}</td>
                  <td class="figure">{size(request.body_bytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** The bound of its end as a sentence for the head of the page. */
function BoundText({ tenant }: { tenant: Tenant }) {
  const bound = tenant.end_bound;
  if (!bound) return null;
  return (
    <p class="bound">
      A kill takes effect within <strong>{time(bound.effect_ns)}</strong>,{" "}
      {bound.returned_ns === undefined
        ? "and nothing bounds when everything is returned."
        : <>and returns everything within <strong>{time(bound.returned_ns)}</strong>.</>}
    </p>
  );
}

export function TenantView({ name }: { name: string }) {
  const { snapshot, ends, events } = useWatch();
  const tenant = snapshot?.tenants.find((tenant) => tenant.name === name);
  if (!tenant) {
    return <main><p class="back"><a href="#/">All tenants</a></p><p class="empty">The node has no tenant {name}.</p></main>;
  }
  const own = ends.filter((end) => end.tenant === name);
  return (
    <main class="one" tabIndex={-1} data-tenant={name}>
      <p class="back"><a href="#/">All tenants</a></p>
      <div class="headline">
        <div>
          <h2 class="name">{name} <StateMark tenant={tenant} /></h2>
          <p class="sub">
            <code>{tenant.component}</code> · {tenant.state} for {age(Date.parse(snapshot!.at) - Date.parse(tenant.since))}
            {tenant.restarts > 0 && ` · started again ${count(tenant.restarts)} times`}
            {tenant.desired === "stopped" && tenant.state !== "ended" && " · is to stop"}
          </p>
          {tenant.exit?.message && (
            <div class="exit"><p>{exitText(tenant.exit)}</p><pre>{tenant.exit.message}</pre></div>
          )}
          {tenant.state !== "ended" && <BoundText tenant={tenant} />}
        </div>
        <Commands tenant={tenant} />
      </div>
      <div class="columns">
        <div class="stack">
          <Schedule tenant={tenant} />
          {tenant.http && <RequestsPanel tenant={tenant} />}
          <Logs name={name} />
        </div>
        <div class="stack">
          <Reclamation tenant={tenant} />
          <MemoryPanel tenant={tenant} />
          <section class="panel" aria-labelledby="own-ends-title">
            <header><h2 id="own-ends-title">Ends</h2><EndKey /></header>
            <Ends ends={own.slice(0, 6)} named={false} />
          </section>
          <section class="panel" aria-labelledby="own-events-title">
            <header><h2 id="own-events-title">Events</h2></header>
            <Events events={events.filter((event) => event.tenant === name)} named={false} />
          </section>
        </div>
      </div>
    </main>
  );
}
