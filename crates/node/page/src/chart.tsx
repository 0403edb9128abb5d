// A chart over time, drawn by uPlot in the colours of the page.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export interface Line {
  label: string;
  /** The name of a colour of the page: `--cpu`. */
  color: string;
  dash?: number[];
  width?: number;
  fill?: boolean;
  values: (number | null)[];
}

interface ChartProps {
  /** What it shows, for readers that do not see it. */
  label: string;
  /** Seconds since 1970. */
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  height?: number;
  logarithmic?: boolean;
  /** A value that the scale reaches at least. */
  top?: number;
}

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Leaves the powers of ten of a logarithmic axis. */
const decades = (_plot: uPlot, ticks: number[]): (number | null)[] =>
  ticks.map((value) => (Number.isInteger(Math.log10(value)) ? value : null));

const FONT = "12px system-ui, sans-serif";

function options(props: ChartProps, width: number): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: () => color("--soft"),
    grid: { stroke: () => color("--rule"), width: 1 },
    ticks: { show: false },
    font: FONT,
  };
  return {
    width,
    height: props.height ?? 200,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    padding: [8, 24, 0, 0],
    scales: {
      x: { time: true },
      y: props.logarithmic
        ? { distr: 3, log: 10 }
        : { range: (_plot, _low, high) => [0, Math.max(high ?? 0, props.top ?? 0) * 1.05 || 1] },
    },
    axes: [
      { ...axis, size: 28, space: 70, values: (_plot, ticks) => ticks.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB")) },
      {
        ...axis,
        size: 68,
        ...(props.logarithmic ? { grid: { ...axis.grid, filter: decades } } : {}),
        values: (_plot, ticks) => ticks.map((value) => (value === null ? "" : props.format(value))),
      },
    ],
    series: [
      {},
      ...props.lines.map((line): uPlot.Series => ({
        label: line.label,
        stroke: () => color(line.color),
        width: line.width ?? 1.5,
        points: { show: false },
        spanGaps: false,
        ...(line.dash ? { dash: line.dash } : {}),
        ...(line.fill ? { fill: () => color(line.color) + "22" } : {}),
      })),
    ],
  };
}

export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = props.lines.map((line) => line.label + line.color).join("|");
  const data = [props.times, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const box = place.current!;
    const made = new uPlot(options(props, box.clientWidth), data, box);
    plot.current = made;
    const sizes = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height: props.height ?? 200 }));
    sizes.observe(box);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => made.redraw(false, true);
    scheme.addEventListener("change", redraw);
    return () => {
      sizes.disconnect();
      scheme.removeEventListener("change", redraw);
      made.destroy();
    };
  }, [shape]);

  useEffect(() => plot.current?.setData(data));

  const latest = (line: Line) => line.values.findLast((value) => value !== null);
  return (
    <figure class="chart">
      <div ref={place} role="img" aria-label={props.label} />
      <figcaption>
        {props.lines.map((line) => {
          const value = latest(line);
          return (
            <span key={line.label}>
              <i class={line.dash ? "dashed" : ""} style={{ color: `var(${line.color})` }} />
              {line.label} <b class="num">{value == null ? "–" : props.format(value)}</b>
            </span>
          );
        })}
      </figcaption>
    </figure>
  );
}
