// Numbers, times and sizes as text.

const TIMES: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const SIZES: [number, string][] = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

/** Three digits that count, no more than the number has. */
function digits(value: number): string {
  if (value >= 100 || value === 0) return Math.round(value).toString();
  return Number(value.toPrecision(3)).toString();
}

function scaled(value: number, units: [number, string][]): string {
  const [size, unit] = units.find(([size]) => value >= size) ?? units[units.length - 1]!;
  return `${digits(value / size)} ${unit}`;
}

/** A span of time: "1.68 ms". */
export const time = (ns: number | undefined): string => (ns === undefined ? "–" : scaled(ns, TIMES));

/** A size: "24 MiB". */
export const size = (bytes: number | undefined): string => (bytes === undefined ? "–" : scaled(bytes, SIZES));

/** Two values in the unit of the second: "3.2 of 10 ms". */
function of(value: number | undefined, whole: number, units: [number, string][]): string {
  const [unitSize, unit] = units.find(([size]) => whole >= size) ?? units[units.length - 1]!;
  const shown = value === undefined ? "–" : digits(Math.round((value / unitSize) * 100) / 100);
  return `${shown} of ${digits(whole / unitSize)} ${unit}`;
}

export const timeOf = (ns: number | undefined, whole: number): string => of(ns, whole, TIMES);
export const sizeOf = (bytes: number | undefined, whole: number): string => of(bytes, whole, SIZES);

/** A part of one: "12.5 %". */
export function percent(part: number | undefined): string {
  if (part === undefined) return "–";
  const value = part * 100;
  return `${value >= 10 || value === 0 ? Math.round(value) : value.toFixed(1)} %`;
}

/** Events in a second: "1,240", "3.2". */
export function rate(perSecond: number | undefined): string {
  if (perSecond === undefined) return "–";
  if (perSecond >= 10 || perSecond === 0) return count(Math.round(perSecond));
  return perSecond.toFixed(1);
}

/** A whole number with its thousands marked. */
export const count = (value: number): string => value.toLocaleString("en");

/** A long time: "3 d 4 h", "12 min". */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).map(([value, unit]) => `${value} ${unit}`).join(" ");
}

/** An instant as text that sorts: fractions of a second are written as short as they can be. */
export const sortable = (at: string): string =>
  at.replace(/(?:\.(\d+))?Z$/, (_all, fraction = "") => `.${fraction.padEnd(9, "0")}`);

/** The time of day of an instant. */
export function clock(at: string): string {
  const date = new Date(at);
  return date.toLocaleTimeString("en-GB");
}

export const plural = (value: number, one: string, many = one + "s"): string =>
  `${count(value)} ${value === 1 ? one : many}`;
