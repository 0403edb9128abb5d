// What the page knows of the node: a snapshot each second, events as they happen, and whether the node
// answers at all. Both go on by themselves after the node was away.

import { useEffect, useReducer } from "preact/hooks";
import { History } from "./history";
import { get, listen, pause, Refusal } from "./interface";
import { shown, untilHidden } from "./shown";
import type { End, Event, Snapshot } from "./view";

/** How long the page waits between two snapshots. */
const EVERY_MS = 1000;
/** How many events and ends are kept. */
const KEPT = 200;

export type Connection =
  | { kind: "connecting" }
  | { kind: "connected" }
  /** The node does not answer; since when, milliseconds since 1970. */
  | { kind: "lost"; since: number; reason: string }
  /** The node wants another token. */
  | { kind: "forbidden" };

class Watch {
  connection: Connection = { kind: "connecting" };
  snapshot: Snapshot | undefined;
  /** The newest first. */
  events: Event[] = [];
  /** The newest first. */
  ends: End[] = [];
  readonly history = new History();

  /** The number of the last event that was read, of the process that began at `#startedAt`. */
  #last = 0;
  #startedAt: string | undefined;
  #hearing: AbortController | undefined;
  #listeners = new Set<() => void>();
  #wake = new AbortController();

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Asks for a snapshot now instead of at the next second. */
  refresh(): void {
    this.#wake.abort();
  }

  async run(): Promise<never> {
    for (;;) {
      await shown();
      await this.#poll();
      this.#wake = new AbortController();
      await pause(EVERY_MS, this.#wake.signal);
    }
  }

  async #poll(): Promise<void> {
    try {
      const snapshot = await get<Snapshot>("/v1/snapshot");
      this.#take(snapshot);
      this.connection = { kind: "connected" };
      this.#hearing ??= this.#hear();
    } catch (error) {
      this.#lose(error);
    }
    this.#changed();
  }

  #lose(error: unknown): void {
    this.#hearing?.abort();
    this.#hearing = undefined;
    if (error instanceof Refusal && (error.status === 401 || error.status === 403)) {
      this.connection = { kind: "forbidden" };
    } else if (this.connection.kind !== "lost") {
      const reason = error instanceof Refusal ? error.message : "it does not answer";
      this.connection = { kind: "lost", since: Date.now(), reason };
    }
  }

  #take(snapshot: Snapshot): void {
    const started = snapshot.node.started_at;
    if (this.#startedAt !== started) {
      // Another process numbers its events anew: all that it has are asked for.
      this.#hearing?.abort();
      this.#hearing = undefined;
      this.#last = 0;
      this.#startedAt = started;
    }
    this.snapshot = snapshot;
    this.history.add(snapshot);
    snapshot.ends.forEach((end) => this.#addEnd(end));
  }

  /** Reads events until the returned controller is aborted; begins again where it stopped. */
  #hear(): AbortController {
    const hearing = new AbortController();
    const loop = async () => {
      while (!hearing.signal.aborted) {
        await shown();
        const path = `/v1/events?since=${this.#last}`;
        await listen<Event>(path, untilHidden(hearing.signal), (event) => this.#addEvent(event)).catch(() => {});
        await pause(EVERY_MS, hearing.signal);
      }
    };
    void loop();
    return hearing;
  }

  #addEvent(event: Event): void {
    if (event.seq > this.#last) this.#last = event.seq;
    if (this.events.some((known) => known.seq === event.seq && known.at === event.at)) return;
    this.events = [event, ...this.events].slice(0, KEPT);
    if (event.end) this.#addEnd(event.end);
    this.#changed();
  }

  #addEnd(end: End): void {
    const same = (other: End) => other.tenant === end.tenant && other.at === end.at;
    if (this.ends.some(same)) return;
    this.ends = [end, ...this.ends].sort((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, KEPT);
  }
}

export const watch = new Watch();

/** Draws a component again whenever something is learned of the node. */
export function useWatch(): Watch {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  useEffect(() => watch.subscribe(() => redraw(undefined as never)), []);
  return watch;
}
