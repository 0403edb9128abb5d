// Whether the page can be seen. A browser keeps few connections to one address, for all its tabs together:
// a tab that is not shown holds none, and goes on where it stopped when it is shown again.

const visible = (): boolean => document.visibilityState === "visible";

/** Resolves when the page is shown, at once if it is. */
export function shown(): Promise<void> {
  if (visible()) return Promise.resolve();
  return new Promise((resolve) => {
    const changed = () => {
      if (!visible()) return;
      document.removeEventListener("visibilitychange", changed);
      resolve();
    };
    document.addEventListener("visibilitychange", changed);
  });
}

/** A signal that is aborted when the page is hidden, or with `signal`. */
export function untilHidden(signal: AbortSignal): AbortSignal {
  const hidden = new AbortController();
  const stop = () => {
    if (!signal.aborted && visible()) return;
    hidden.abort();
    document.removeEventListener("visibilitychange", stop);
    signal.removeEventListener("abort", stop);
  };
  document.addEventListener("visibilitychange", stop);
  signal.addEventListener("abort", stop);
  stop();
  return hidden.signal;
}
