// Requests to the node's control interface. The token goes with each as a header, never in an address:
// streams are read with `fetch`, too, since an `EventSource` cannot send headers.

const KEY = "leasehold-token";

/** An answer that is an error, with the reason that the node gives. */
export class Refusal extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

/** Takes the token out of the address (`#token=…`), so that it is neither shown nor kept in the history. */
export function takeToken(): void {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(KEY, decodeURIComponent(found[1]!));
  history.replaceState(null, "", location.pathname + "#/");
}

export function setToken(token: string): void {
  sessionStorage.setItem(KEY, token);
}

/** Sends a request, and returns its answer once the head is there. Rejects with a `Refusal` from 400 on. */
async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const token = sessionStorage.getItem(KEY);
  const headers: Record<string, string> = token ? { authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "same-origin" });
  if (response.ok) return response;
  const text = await response.text();
  let message = text || response.statusText;
  try {
    message = JSON.parse(text).error.message ?? message;
  } catch {
    // The answer is not from the node itself: its text is all that is known.
  }
  throw new Refusal(response.status, message);
}

/** How long an ordinary request may take before the node counts as gone. */
const PATIENCE_MS = 5000;

export async function get<T>(path: string): Promise<T> {
  const response = await send(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
  return (await response.json()) as T;
}

/** Tells the node to do something. There is no time limit: an end takes as long as its bound allows. */
export async function post(path: string): Promise<unknown> {
  const text = await (await send(path, { method: "POST" })).text();
  return text ? JSON.parse(text) : null;
}

export const tenantPath = (name: string, rest = ""): string =>
  `/v1/tenants/${encodeURIComponent(name)}${rest}`;

/** Calls `each` for every line of an answer that stays open. Returns when it ends, rejects when it breaks. */
async function eachLine(path: string, signal: AbortSignal, each: (line: string) => void): Promise<void> {
  const response = await send(path, { signal });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    lines.forEach(each);
  }
}

/** Reads JSON lines until `signal` is aborted or the answer ends. */
export function follow<T>(path: string, signal: AbortSignal, each: (value: T) => void): Promise<void> {
  return eachLine(path, signal, (line) => {
    if (line.trim()) each(JSON.parse(line) as T);
  });
}

/** Reads server-sent events, each with JSON as its data. */
export function listen<T>(path: string, signal: AbortSignal, each: (value: T) => void): Promise<void> {
  let data = "";
  return eachLine(path, signal, (raw) => {
    const line = raw.replace(/\r$/, "");
    if (line.startsWith("data:")) data += line.slice(5);
    if (line !== "" || data === "") return;
    const value = JSON.parse(data) as T;
    data = "";
    each(value);
  });
}

/** Resolves after a time, or at once when `signal` is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
