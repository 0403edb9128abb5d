// How a tenant was supplied with processor time in the last seconds, from its counters.

import { useRef } from "preact/hooks";
import { count, percent, time, timeOf } from "./format";
import { tenantPath } from "./interface";
import { Meter } from "./meter";
import { usePoll } from "./poll";
import type { Processor, Supply, Tenant } from "./view";

/** How often the counters are read: one column each. */
const EVERY_MS = 250;
/** Thirty seconds of columns. */
const COLUMNS = 120;

interface Column {
  /** Part of a processor that it got. */
  share: number;
  depleted: boolean;
  missed: boolean;
}

/** The columns of the last seconds, made of the differences of counters. */
class Columns {
  list: Column[] = [];
  #last: { at: number; supply: Supply } | undefined;

  add(supply: Supply): void {
    const at = performance.now();
    const before = this.#last;
    this.#last = { at, supply };
    // Counters that went back are those of another run of the program.
    if (!before || supply.used_ns < before.supply.used_ns) return;
    this.list.push({
      share: (supply.used_ns - before.supply.used_ns) / ((at - before.at) * 1e6),
      depleted: supply.depletions > before.supply.depletions,
      missed: supply.misses > before.supply.misses,
    });
    if (this.list.length > COLUMNS) this.list.shift();
  }
}

const W = 600;
const H = 96;
const FOOT = 14;

function Drawing({ columns, reserved, name }: { columns: Column[]; reserved: number | undefined; name: string }) {
  const top = Math.max((reserved ?? 0) * 1.5, ...columns.map((column) => column.share), 0.01);
  const height = (share: number) => (share / top) * (H - FOOT);
  const width = W / COLUMNS;
  const first = COLUMNS - columns.length;
  return (
    <svg class="schedule" viewBox={`0 0 ${W} ${H}`} preserveAspectRatio="none" role="img"
      aria-label={`Processor that ${name} got in the last 30 seconds, against its reservation`}>
      {columns.map((column, index) => {
        const x = (first + index) * width;
        return (
          <g key={index}>
            <rect class="got" x={x} width={width * 0.8} y={H - FOOT - height(column.share)} height={height(column.share)} />
            {column.depleted && <rect class="depleted" x={x} width={width * 0.8} y={H - FOOT + 4} height="3" />}
            {column.missed && <rect class="missed" x={x} width={width * 0.8} y={H - FOOT + 10} height="4" />}
          </g>
        );
      })}
      {reserved !== undefined &&
        <line x1="0" x2={W} y1={H - FOOT - height(reserved)} y2={H - FOOT - height(reserved)} />}
    </svg>
  );
}

const COUNTERS: [keyof Supply, string][] = [
  ["dispatches", "dispatches"],
  ["replenishments", "replenishments"],
  ["preemptions", "preemptions"],
  ["depletions", "depletions"],
  ["misses", "misses"],
];

export function Schedule({ tenant }: { tenant: Tenant }) {
  const columns = useRef(new Columns()).current;
  const processor = usePoll<Processor>(tenantPath(tenant.name, "/processor"), EVERY_MS, (value) => columns.add(value.supply))
    ?? tenant.processor;
  const { cpu } = tenant;
  const supply = tenant.processor ? processor?.supply : undefined;
  const left = processor?.left_ns;
  return (
    <section class="panel" aria-labelledby="processor-title">
      <header>
        <h2 id="processor-title">Processor</h2>
        <p class="sub">
          {cpu
            ? `${time(cpu.budget_ns)} in each ${time(cpu.period_ns)} (${percent(cpu.utilization)}), priority ${cpu.priority}, ${cpu.policy}`
            : "no reservation: it runs in the background"}
        </p>
      </header>
      <Drawing columns={columns.list} reserved={cpu?.utilization} name={tenant.name} />
      <p class="key" aria-hidden="true">
        <span><i class="k-got" /> got in 250 ms</span>
        {cpu && <span><i class="k-line" /> reserved</span>}
        {cpu && <span><i class="k-depleted" /> budget used up</span>}
        <span><i class="k-missed" /> missed</span>
        <span class="end">last 30 s</span>
      </p>
      {cpu && left !== undefined && supply && (
        <div class="use wide">
          <Meter kind="cpu" label="Budget left before the next replenishment" value={left} whole={cpu.budget_ns}
            text={timeOf(left, cpu.budget_ns)} />
          <span class="num">{timeOf(left, cpu.budget_ns)} left before the next replenishment</span>
        </div>
      )}
      {supply && (
        <dl class="counters">
          <div><dt>used</dt><dd>{time(supply.used_ns)}</dd></div>
          {COUNTERS.map(([key, label]) => (
            <div key={key} class={key === "misses" && supply[key] > 0 ? "warn" : ""}><dt>{label}</dt><dd>{count(supply[key])}</dd></div>
          ))}
          <div><dt>longest overrun</dt><dd>{time(supply.overrun_max_ns)}</dd></div>
        </dl>
      )}
    </section>
  );
}
