// What happened on the node, the newest first.

import { exitText } from "./ends";
import { clock, plural, time } from "./format";
import { tenantLink } from "./route";
import type { Event } from "./view";

const SHOWN = 60;

const BAD = new Set(["refused", "step-beyond-row", "drift", "lagged", "restarting"]);

/** The text of an event behind the tenant's name. */
function text(event: Event): string {
  switch (event.kind) {
    case "ended": {
      if (!event.end) return "ended";
      const { exit, wall_ns, bound_ns } = event.end;
      return `${exitText(exit)}, returned in ${time(wall_ns)}${bound_ns === undefined ? "" : ` of ${time(bound_ns)}`}`;
    }
    case "step-beyond-row": return "host step beyond its row";
    case "drift": return "ends cost more than is charged";
    case "lagged": return `${plural(event.missed ?? 0, "event")} were not received`;
    case "reloaded": return "the lease file was read again";
    case "put": return "put";
    case "draining": return "draining: takes no further request";
    default: return event.kind;
  }
}

export function Events({ events, named = true }: { events: readonly Event[]; named?: boolean }) {
  if (events.length === 0) return <p class="empty">Nothing has happened yet.</p>;
  return (
    <div class="events" role="log" aria-live="off" tabIndex={0} aria-label="Events, the newest first"><ol>
      {events.slice(0, SHOWN).map((event) => {
        const bad = BAD.has(event.kind) || event.end?.within_bound === false;
        return (
          <li key={`${event.at} ${event.seq}`} class={`${bad ? "bad " : ""}${event.kind}`}>
            <time dateTime={event.at}>{clock(event.at)}</time>
            <p>
              {named && event.tenant && <a href={tenantLink(event.tenant)}>{event.tenant}</a>}{" "}
              {text(event)}{event.message ? <span class="message">{event.message}</span> : null}
            </p>
          </li>
        );
      })}
    </ol></div>
  );
}
