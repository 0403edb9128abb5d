// What an operator can tell a tenant, each asked for again with the tenant's name and the bound.

import { useEffect, useRef, useState } from "preact/hooks";
import { EndBars, exitText } from "./ends";
import { plural, size, time } from "./format";
import { post, Refusal, tenantPath } from "./interface";
import type { End, Tenant } from "./view";
import { watch } from "./watch";

export type Command = "kill" | "replace" | "drain" | "start";

const NAMES: Record<Command, string> = { kill: "Kill", replace: "Replace", drain: "Drain", start: "Start" };

/** The commands that fit what a tenant does now. */
export function commands(tenant: Tenant): Command[] {
  if (tenant.state === "ended") return ["start"];
  if (tenant.state === "ending") return [];
  if (tenant.state === "restarting" || tenant.state === "starting") return ["kill"];
  return ["drain", "replace", "kill"];
}

/** The promise about its end: "Everything that cart holds is returned within 63 ms, and …". */
function promise(tenant: Tenant): string {
  const bound = tenant.end_bound;
  if (!bound) return "Nothing bounds how long that takes.";
  const effect = `Nothing of it runs any more after ${time(bound.effect_ns)}`;
  return bound.returned_ns === undefined
    ? `${effect}. Nothing bounds when everything is returned: it has no processor reservation.`
    : `${effect}, and everything that it holds is returned within ${time(bound.returned_ns)}.`;
}

function Explanation({ command, tenant }: { command: Command; tenant: Tenant }) {
  const { name, http } = tenant;
  const underWay = (http?.active ?? 0) + (http?.waiting ?? 0);
  const requests = underWay > 0 ? ` ${plural(underWay, "request")} of it ${underWay === 1 ? "is" : "are"} under way.` : "";
  switch (command) {
    case "kill": return <><p><strong>{name}</strong> ends now, and stays stopped until it is started again.{requests}</p><p class="promise">{promise(tenant)}</p></>;
    case "replace": return <><p>Its program is loaded again. Requests go to the new <strong>{name}</strong> once it runs, then the old one ends.</p><p class="promise">{promise(tenant)}</p></>;
    case "drain": return <><p><strong>{name}</strong> takes no further request, and ends when those under way are over.{requests}</p><p class="promise">{promise(tenant)}</p></>;
    case "start": return (
      <p>
        <strong>{name}</strong> is started again under its lease: {time(tenant.reclaim.budget_ns)} of reclamation,{" "}
        {tenant.cpu ? `${time(tenant.cpu.budget_ns)} of processor in ${time(tenant.cpu.period_ns)}` : "no processor reservation"},{" "}
        {size(tenant.memory.limit_bytes)} of memory.
      </p>
    );
  }
}

type Progress =
  | { kind: "asked" }
  | { kind: "sent" }
  | { kind: "done"; end: End | undefined }
  | { kind: "refused"; message: string };

const isEnd = (answer: unknown): answer is End =>
  typeof answer === "object" && answer !== null && "wall_ns" in answer;

function Result({ command, tenant, end }: { command: Command; tenant: Tenant; end: End | undefined }) {
  if (!end) {
    const texts: Record<Command, string> = {
      kill: "has ended", replace: "was replaced", drain: "takes no further request", start: "was started",
    };
    return <p role="status"><strong>{tenant.name}</strong> {texts[command]}.</p>;
  }
  const kept = end.within_bound === undefined ? "Nothing bounded it." : end.within_bound ? "The bound was kept." : "The bound was broken.";
  return (
    <div role="status" class={end.within_bound === false ? "broken" : ""}>
      <p><strong>{tenant.name}</strong> was {exitText(end.exit)}; everything was returned after {time(end.wall_ns)}. {kept}</p>
      <EndBars end={end} />
    </div>
  );
}

function Dialog({ command, tenant, close }: { command: Command; tenant: Tenant; close: () => void }) {
  // The tenant as it was when the operator was asked: its bound must not change under the question.
  const [asked] = useState(tenant);
  const [progress, setProgress] = useState<Progress>({ kind: "asked" });
  const [grace, setGrace] = useState("10s");
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);

  const send = async () => {
    setProgress({ kind: "sent" });
    const query = command === "drain" ? `?grace=${encodeURIComponent(grace)}` : "";
    try {
      const answer = await post(tenantPath(asked.name, `/${command}${query}`));
      setProgress({ kind: "done", end: command === "kill" && isEnd(answer) ? answer : undefined });
    } catch (error) {
      const message = error instanceof Refusal ? error.message : "The node does not answer: whether it was done is not known.";
      setProgress({ kind: "refused", message });
    }
    watch.refresh();
  };

  const over = progress.kind === "done" || progress.kind === "refused";
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="command-title">
      <h2 id="command-title">{NAMES[command]} {asked.name}{over ? "" : "?"}</h2>
      {!over && <Explanation command={command} tenant={asked} />}
      {!over && command === "drain" && (
        <label class="grace">After <input value={grace} size={6} aria-label="Grace, such as 10s"
          onInput={(event) => setGrace(event.currentTarget.value)} /> it ends in any case.</label>
      )}
      {progress.kind === "done" && <Result command={command} tenant={asked} end={progress.end} />}
      {progress.kind === "refused" && <p class="alarm" role="alert">Refused: {progress.message}</p>}
      <div class="buttons">
        {over
          ? <button type="button" autofocus onClick={close}>Close</button>
          : <>
              <button type="button" autofocus onClick={close}>Cancel</button>
              <button type="button" class={command === "kill" ? "danger" : "primary"} disabled={progress.kind === "sent"}
                data-confirm={command} onClick={send}>
                {progress.kind === "sent" ? "Under way …" : `${NAMES[command]} ${asked.name}`}
              </button>
            </>}
      </div>
    </dialog>
  );
}

export function Commands({ tenant }: { tenant: Tenant }) {
  const [command, setCommand] = useState<Command>();
  return (
    <div class="commands" role="group" aria-label={`Commands for ${tenant.name}`}>
      {commands(tenant).map((name) => (
        <button key={name} type="button" class={name === "kill" ? "danger" : ""} data-command={name}
          onClick={() => setCommand(name)}>{NAMES[name]}</button>
      ))}
      {command && <Dialog command={command} tenant={tenant} close={() => setCommand(undefined)} />}
    </div>
  );
}
