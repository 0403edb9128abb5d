// Ends of tenants: what each was predicted to cost, what it cost, and the bound that it was promised.

import { Fragment } from "preact";
import { clock, plural, time } from "./format";
import { tenantLink } from "./route";
import type { End, Exit } from "./view";

export function exitText(exit: Exit): string {
  switch (exit.kind) {
    case "code": return exit.code === 0 || exit.code === undefined ? "finished" : `exit code ${exit.code}`;
    case "killed": return "killed";
    case "trap": return "trapped";
    case "lease": return "stopped by its lease";
    case "memory": return "lost its memory";
  }
}

export const broken = (end: End): boolean =>
  end.within_bound === false || end.predicted_ns > end.budget_ns;

/** A bar of what was measured on a track that ends a little after the bound. */
function Track({ label, measured, expected, bound, text }: {
  label: string;
  measured: number;
  /** Drawn as an outline around what was measured. */
  expected?: number;
  bound: number | undefined;
  text: string;
}) {
  const most = Math.max(bound ?? 0, measured, expected ?? 0) * 1.04 || 1;
  const at = (value: number) => `${(value / most) * 100}%`;
  const over = bound !== undefined && measured > bound;
  return (
    <div class={`track${over ? " over" : ""}`} role="img" aria-label={`${label}: ${text}`}>
      {bound !== undefined && <s style={{ width: at(bound) }} />}
      {expected !== undefined && <em style={{ width: at(expected) }} />}
      <i style={{ width: at(measured) }} />
      {bound !== undefined && <b style={{ left: at(bound) }} />}
    </div>
  );
}

/** The two promises of an end, each with what was measured. */
export function EndBars({ end }: { end: End }) {
  const { bound_ns: bound } = end;
  return (
    <dl class="end-bars">
      <dt>wall time</dt>
      <dd>
        <Track label="Wall time until everything was returned" measured={end.wall_ns} bound={bound}
          text={`${time(end.wall_ns)}, bound ${bound === undefined ? "none" : time(bound)}`} />
        <span class="num">
          <strong>{time(end.wall_ns)}</strong> {bound === undefined ? "unbounded" : `bound ${time(bound)}`}
        </span>
      </dd>
      <dt>processor</dt>
      <dd>
        <Track label="Processor time of reclamation" measured={end.measured_ns} expected={end.predicted_ns}
          bound={end.budget_ns}
          text={`${time(end.measured_ns)}, predicted ${time(end.predicted_ns)}, budget ${time(end.budget_ns)}`} />
        <span class="num">
          <strong>{time(end.measured_ns)}</strong> predicted {time(end.predicted_ns)} of {time(end.budget_ns)}
        </span>
      </dd>
    </dl>
  );
}

export function EndItem({ end, named }: { end: End; named: boolean }) {
  return (
    <li class={`end${broken(end) ? " broken" : ""}`}>
      <p class="line">
        {named && <Fragment><a href={tenantLink(end.tenant)}>{end.tenant}</a>{" "}</Fragment>}
        <span>{exitText(end.exit)}</span>
        {broken(end) && <strong class="alarm">bound broken</strong>}
        <time dateTime={end.at}>{clock(end.at)}</time>
      </p>
      <EndBars end={end} />
      {end.calls_under_way > 0 && <p class="note">{plural(end.calls_under_way, "blocking call")} had not returned yet</p>}
    </li>
  );
}

export function Ends({ ends, named = true }: { ends: readonly End[]; named?: boolean }) {
  if (ends.length === 0) return <p class="empty">Nothing has ended yet.</p>;
  return <ol class="ends">{ends.map((end) => <EndItem key={end.tenant + end.at} end={end} named={named} />)}</ol>;
}

/** The meaning of the marks on the bars. */
export function EndKey() {
  return (
    <p class="key" aria-hidden="true">
      <span><i class="k-measured" /> measured</span>
      <span><i class="k-predicted" /> predicted</span>
      <span><i class="k-bound" /> bound</span>
    </p>
  );
}
