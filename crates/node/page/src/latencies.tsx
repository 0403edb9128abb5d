// Times of requests of all tenants that answer any, over the last minutes.

import { useState } from "preact/hooks";
import { Chart } from "./chart";
import { time } from "./format";
import type { Sample } from "./history";
import { useWatch } from "./watch";

/** More lines than this cannot be told apart. */
const LINES = 6;

const QUANTILES = ["mean", "p50", "p90", "p99"] as const;
type Quantile = (typeof QUANTILES)[number];

/** The values of several tenants at the same times; `null` where a tenant has none. */
export function aligned(tracks: (readonly Sample[])[], of: (sample: Sample) => number | undefined) {
  const times = [...new Set(tracks.flatMap((track) => track.map((sample) => sample.at)))].sort((a, b) => a - b);
  const values = tracks.map((track) => {
    const known = new Map(track.map((sample) => [sample.at, of(sample)]));
    return times.map((at) => known.get(at) ?? null);
  });
  return { times, values };
}

export function Latencies() {
  const { snapshot, history } = useWatch();
  const [quantile, setQuantile] = useState<Quantile>("p99");
  const serving = (snapshot?.tenants ?? []).filter((tenant) => (tenant.http?.latency.count ?? 0) > 0);
  const busiest = [...serving]
    .sort((a, b) => b.http!.latency.count - a.http!.latency.count)
    .slice(0, LINES)
    .map((tenant) => tenant.name)
    .sort();
  const { times, values } = aligned(busiest.map((name) => history.of(name)), (sample) => sample[quantile]);
  return (
    <section class="panel" aria-labelledby="latencies-title">
      <header>
        <h2 id="latencies-title">Latencies</h2>
        <fieldset class="choice">
          <legend class="hidden">Which time of requests</legend>
          {QUANTILES.map((name) => (
            <label key={name}>
              <input type="radio" name="quantile" checked={quantile === name} onChange={() => setQuantile(name)} />
              <span>{name}</span>
            </label>
          ))}
        </fieldset>
      </header>
      {busiest.length === 0
        ? <p class="empty">No request was answered yet.</p>
        : <Chart label={`${quantile} of requests in the last five minutes, by tenant`} logarithmic times={times}
            format={time}
            lines={busiest.map((name, index) => ({ label: name, color: `--line-${index + 1}`, values: values[index]! }))} />}
      {serving.length > LINES && <p class="note">The {LINES} tenants with the most requests of {serving.length}.</p>}
    </section>
  );
}
