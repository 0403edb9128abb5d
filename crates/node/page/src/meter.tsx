// Bars and lines that show a value against what is reserved for it.

import type { Sample } from "./history";

export type Kind = "reclaim" | "cpu" | "memory" | "plain";

interface MeterProps {
  kind: Kind;
  label: string;
  /** Absent: nothing is known, as of a tenant that does not run. */
  value: number | undefined;
  whole: number;
  /** What a reader is told instead of numbers. */
  text: string;
  /** A value to mark on the bar, as the part of the limit that is reserved. */
  mark?: number;
}

const part = (value: number, whole: number): number => (whole > 0 ? Math.min(1, value / whole) : 0);

/** A bar that is full when the whole is used. */
export function Meter({ kind, label, value, whole, text, mark }: MeterProps) {
  const full = value !== undefined && value > whole;
  const near = value !== undefined && !full && whole > 0 && value / whole >= 0.9;
  return (
    <div class={`meter ${kind}${full ? " over" : ""}${near ? " near" : ""}`} role="meter" aria-label={label}
      aria-valuemin={0} aria-valuemax={100}
      aria-valuenow={value === undefined ? 0 : Math.round(part(value, whole) * 100)} aria-valuetext={text}>
      <i style={{ width: `${part(value ?? 0, whole) * 100}%` }} />
      {mark !== undefined && mark > 0 && mark < whole && <b style={{ left: `${part(mark, whole) * 100}%` }} />}
    </div>
  );
}

interface SparkProps {
  samples: readonly Sample[];
  of: (sample: Sample) => number | undefined;
  /** The value at the top of the line's box, at least. */
  top: number;
  /** A value to draw a rule at. */
  rule?: number | undefined;
  label: string;
  /** How many samples the width stands for. */
  span?: number;
}

const W = 100;
const H = 20;

/** A small line of the last minutes, without axes. */
export function Spark({ samples, of, top, rule, label, span = 120 }: SparkProps) {
  const shown = samples.slice(-span);
  const highest = Math.max(top, ...shown.map((sample) => of(sample) ?? 0));
  const y = (value: number) => H - 1 - (highest > 0 ? value / highest : 0) * (H - 2);
  let path = "";
  let drawing = false;
  shown.forEach((sample, index) => {
    const value = of(sample);
    if (value === undefined) {
      drawing = false;
      return;
    }
    const x = ((span - shown.length + index) / (span - 1)) * W;
    path += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y(value).toFixed(1)}`;
    drawing = true;
  });
  return (
    <svg class="spark" viewBox={`0 0 ${W} ${H}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {rule !== undefined && <line x1="0" x2={W} y1={y(rule)} y2={y(rule)} />}
      <path d={path} />
    </svg>
  );
}
