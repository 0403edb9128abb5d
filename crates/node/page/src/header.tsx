// What is known of the node, and whether it answers.

import { useEffect, useState } from "preact/hooks";
import { age, count, percent } from "./format";
import { Meter } from "./meter";
import type { Node, Snapshot } from "./view";
import { useWatch, type Connection } from "./watch";

/** The time, drawn again each second. */
function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

function Link({ connection }: { connection: Connection }) {
  const now = useNow();
  const texts: Record<Connection["kind"], string> = {
    connecting: "connecting",
    connected: "live",
    forbidden: "not connected: the token is wrong",
    lost: connection.kind === "lost"
      ? `not connected for ${age(now - connection.since)}: ${connection.reason}` : "",
  };
  return (
    <p class={`connection ${connection.kind}`} role="status" aria-live="polite">
      <i aria-hidden="true" />{texts[connection.kind]}
    </p>
  );
}

function Fact({ name, children, warn }: { name: string; children: preact.ComponentChildren; warn?: boolean }) {
  return <div class={warn ? "warn" : ""}><dt>{name}</dt><dd>{children}</dd></div>;
}

function Facts({ node }: { node: Node }) {
  const granted = node.realtime === "granted";
  return (
    <dl class="facts">
      <Fact name="Version">{node.version}</Fact>
      <Fact name="Up">{age(node.uptime_ns / 1e6)}</Fact>
      <Fact name="Order">{node.order}</Fact>
      <Fact name="Real-time priority" warn={!granted}>
        {node.realtime}{node.own_core !== null && node.own_core !== undefined ? `, core ${node.own_core}` : ""}
      </Fact>
      <Fact name="Reserved" warn={!node.schedulable}>
        <Meter kind="cpu" label="Part of the processor that is reserved" value={node.utilization} whole={1}
          text={percent(node.utilization)} />
        {percent(node.utilization)} of a processor, {node.schedulable ? "schedulable" : "not schedulable"}
      </Fact>
      <Fact name={node.listeners.length === 1 ? "Listener" : "Listeners"}>
        {node.listeners.length === 0 && "none"}
        {node.listeners.map((listener) => (
          <span class="listener" key={listener.name}>{listener.name} {listener.address}{listener.tls ? " TLS" : ""}</span>
        ))}
      </Fact>
      <Fact name="Confinement">{node.confinement}</Fact>
    </dl>
  );
}

/** Says what the node itself found to be beyond its promises. */
function Findings({ snapshot }: { snapshot: Snapshot }) {
  const steps = snapshot.steps.filter((step) => step.exceeded > 0);
  const costs = snapshot.costs.filter((cost) => cost.drifts > 0);
  if (steps.length + costs.length === 0) return null;
  return (
    <ul class="findings">
      {steps.map((step) => (
        <li key={step.row}>host step {step.row}: {count(step.exceeded)} of {count(step.steps)} beyond the row</li>
      ))}
      {costs.map((cost) => (
        <li key={cost.class}>{cost.class} costs more than its profile: new leases are charged {cost.price.toFixed(2)} times</li>
      ))}
    </ul>
  );
}

export function Header() {
  const { snapshot, connection } = useWatch();
  return (
    <header class={`node${connection.kind === "lost" ? " stale" : ""}`}>
      <div class="title">
        <h1><a href="#/">Leasehold</a></h1>
        <Link connection={connection} />
      </div>
      {snapshot && <Facts node={snapshot.node} />}
      {snapshot && <Findings snapshot={snapshot} />}
    </header>
  );
}
