// The lines that a tenant writes, as it writes them.

import { useEffect, useRef, useState } from "preact/hooks";
import { clock, sortable } from "./format";
import { follow, pause, tenantPath } from "./interface";
import { shown, untilHidden } from "./shown";
import type { LogLine } from "./view";

const KEPT = 500;
/** How many earlier lines are asked for. */
const EARLIER = 100;
/** Lines are drawn together, so that a tenant that writes fast does not stop the page. */
const DRAW_MS = 200;

/** Lines of a tenant, read again from where they stopped when the answer broke. */
function useLines(name: string): LogLine[] {
  const [lines, setLines] = useState<LogLine[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    let waiting: LogLine[] = [];
    let newest = "";
    const draw = setInterval(() => {
      if (waiting.length === 0) return;
      const more = waiting;
      waiting = [];
      setLines((before) => [...before, ...more].slice(-KEPT));
    }, DRAW_MS);
    const loop = async () => {
      while (!stop.signal.aborted) {
        await shown();
        const seen = newest;
        const path = tenantPath(name, `/logs?follow=true&lines=${EARLIER}`);
        await follow<LogLine>(path, untilHidden(stop.signal), (line) => {
          const at = sortable(line.at);
          if (at <= seen) return;
          newest = at;
          waiting = [...waiting, line].slice(-KEPT);
        }).catch(() => {});
        await pause(1000, stop.signal);
      }
    };
    void loop();
    return () => {
      stop.abort();
      clearInterval(draw);
    };
  }, [name]);
  return lines;
}

export function Logs({ name }: { name: string }) {
  const lines = useLines(name);
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current!;
    atEnd.current = scrollHeight - scrollTop - clientHeight < 24;
  };
  useEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  return (
    <section class="panel" aria-labelledby="logs-title">
      <header>
        <h2 id="logs-title">Logs</h2>
        <p class="sub">live, the last {KEPT} lines</p>
      </header>
      {lines.length === 0
        ? <p class="empty">It has written nothing.</p>
        : (
          <div class="logs" ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-live="off" aria-label={`Logs of ${name}`}><ol>
            {lines.map((line, index) => (
              <li key={`${line.at} ${index}`} class={line.stream}>
                <time dateTime={line.at}>{clock(line.at)}</time>
                <span class="from">{line.request === undefined ? line.stream : `#${line.request}`}</span>
                <code>{line.line}</code>
              </li>
            ))}
          </ol></div>
        )}
    </section>
  );
}
