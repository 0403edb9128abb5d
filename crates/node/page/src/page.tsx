// The whole page: the node's header, and below it the view that the address names.

import { useEffect, useRef } from "preact/hooks";
import { Ends, EndKey, broken } from "./ends";
import { Events } from "./events";
import { plural } from "./format";
import { Header } from "./header";
import { setToken } from "./interface";
import { Latencies } from "./latencies";
import { useRoute } from "./route";
import { TenantView } from "./tenant";
import { Tenants } from "./tenants";
import { useWatch, watch } from "./watch";

/** How many ends the node's view shows. */
const ENDS_SHOWN = 8;

function Unknown() {
  const { connection } = useWatch();
  if (connection.kind === "lost") return <main><p class="empty">The node does not answer. The page goes on asking.</p></main>;
  return <main><p class="empty">Asking the node …</p></main>;
}

/** Asks for the token that the node printed, when the address had none or another. */
function TokenForm() {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const token = new FormData(event.currentTarget as HTMLFormElement).get("token");
    setToken(String(token).trim().replace(/^.*#token=/, ""));
    watch.refresh();
  };
  return (
    <main>
      <form class="panel token" onSubmit={submit}>
        <h2>This node wants its token</h2>
        <p>
          <code>leasehold serve</code> printed it with the address of this page, after <code>#token=</code>.
        </p>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="off" required />
        <button type="submit" class="primary">Open</button>
      </form>
    </main>
  );
}

function NodeView() {
  const { ends, events } = useWatch();
  const violations = ends.filter(broken).length;
  return (
    <main tabIndex={-1}>
      <Tenants />
      <div class="columns">
        <section class="panel" aria-labelledby="ends-title">
          <header>
            <h2 id="ends-title">Ends</h2>
            <EndKey />
          </header>
          {violations > 0 && <p class="alarm" role="alert">{violations} of {plural(ends.length, "end")} broke {violations === 1 ? "its bound" : "their bounds"}</p>}
          <Ends ends={ends.slice(0, ENDS_SHOWN)} />
        </section>
        <div class="stack">
          <Latencies />
          <section class="panel" aria-labelledby="events-title">
            <header><h2 id="events-title">Events</h2></header>
            <Events events={events} />
          </section>
        </div>
      </div>
    </main>
  );
}

/** Moves the focus to the view that came in place of another, so that the keyboard goes on there. */
function useFocusOnNewView(view: string): void {
  const before = useRef(view);
  useEffect(() => {
    if (before.current === view) return;
    before.current = view;
    document.querySelector("main")?.focus({ preventScroll: true });
  }, [view]);
}

export function Page() {
  const { snapshot, connection } = useWatch();
  const route = useRoute();
  useFocusOnNewView(route.view === "tenant" ? route.name : "");
  if (connection.kind === "forbidden") return <><Header /><TokenForm /></>;
  return (
    <>
      <Header />
      {!snapshot && <Unknown />}
      {snapshot && route.view === "node" && <NodeView />}
      {snapshot && route.view === "tenant" && <TenantView key={route.name} name={route.name} />}
    </>
  );
}
