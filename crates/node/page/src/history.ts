// What the page remembers of each tenant: a sample for each snapshot, over the last minutes.

import type { Snapshot, Tenant } from "./view";

/** How many samples are kept: five minutes, one a second. */
const KEPT = 300;
/** Samples closer than this, in seconds, would give rates that are noise. */
const CLOSEST = 0.5;

export interface Sample {
  /** Seconds since 1970, by the node's clock. */
  at: number;
  /** Part of a processor that it got since the sample before. */
  share?: number | undefined;
  charged?: number | undefined;
  memory?: number | undefined;
  /** Requests that ended, in a second. */
  rate?: number | undefined;
  failed?: number | undefined;
  /** Times of requests: the mean since the sample before, and the node's quantiles. */
  mean?: number | undefined;
  p50?: number | undefined;
  p90?: number | undefined;
  p99?: number | undefined;
}

/** Outcomes that are no failure of the tenant or of the node. */
const FINE = new Set(["answered"]);

interface Track {
  samples: Sample[];
  last: { at: number; used: number | undefined; ended: number; failed: number; count: number; sum: number };
}

/** A difference of counters; unknown if they began anew. */
function grown(now: number | undefined, before: number | undefined): number | undefined {
  return now === undefined || before === undefined || now < before ? undefined : now - before;
}

const per = (value: number | undefined, span: number): number | undefined =>
  value === undefined || span <= 0 ? undefined : value / span;

export class History {
  #tracks = new Map<string, Track>();

  /** Adds a snapshot, and forgets tenants that are not in it. */
  add(snapshot: Snapshot): void {
    const at = Date.parse(snapshot.at) / 1000;
    const names = new Set(snapshot.tenants.map((tenant) => tenant.name));
    for (const name of this.#tracks.keys()) if (!names.has(name)) this.#tracks.delete(name);
    for (const tenant of snapshot.tenants) this.#addTenant(tenant, at);
  }

  #addTenant(tenant: Tenant, at: number): void {
    const outcomes = Object.entries(tenant.http?.outcomes ?? {});
    const total = (entries: [string, number][]) => entries.reduce((sum, [, n]) => sum + n, 0);
    const latency = tenant.http?.latency;
    const now: Track["last"] = {
      at,
      used: tenant.processor?.supply.used_ns,
      ended: total(outcomes),
      failed: total(outcomes.filter(([name]) => !FINE.has(name))),
      count: latency?.count ?? 0,
      sum: latency?.sum_ns ?? 0,
    };
    const track = this.#tracks.get(tenant.name);
    if (track && at - track.last.at < CLOSEST) return;
    const before = track?.last;
    const span = before ? at - before.at : 0;
    const answered = grown(now.count, before?.count);
    const seen = latency !== undefined && latency.count > 0;
    const sample: Sample = {
      at,
      share: per(grown(now.used, before?.used), span * 1e9),
      charged: tenant.reclaim.charged_ns,
      memory: tenant.memory.used_bytes,
      rate: tenant.http ? per(grown(now.ended, before?.ended), span) : undefined,
      failed: tenant.http ? per(grown(now.failed, before?.failed), span) : undefined,
      mean: answered ? per(grown(now.sum, before?.sum), answered) : undefined,
      p50: seen ? latency.p50_ns : undefined,
      p90: seen ? latency.p90_ns : undefined,
      p99: seen ? latency.p99_ns : undefined,
    };
    const samples = track?.samples ?? [];
    samples.push(sample);
    if (samples.length > KEPT) samples.shift();
    this.#tracks.set(tenant.name, { samples, last: now });
  }

  /** The samples of a tenant, the newest last. */
  of(name: string): readonly Sample[] {
    return this.#tracks.get(name)?.samples ?? [];
  }

  latest(name: string): Sample | undefined {
    return this.of(name).at(-1);
  }
}
