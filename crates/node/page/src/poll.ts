// Values of a tenant that are asked for only while its page is shown.

import { useEffect, useState } from "preact/hooks";
import { get, pause } from "./interface";
import { shown } from "./shown";

/**
 * Asks for `path` every `everyMs` while the component is shown. An answer that fails leaves the last one
 * in place: the header says that the node is away.
 */
export function usePoll<T>(path: string, everyMs: number, take?: (value: T) => void): T | undefined {
  const [value, setValue] = useState<T>();
  useEffect(() => {
    const stop = new AbortController();
    const loop = async () => {
      while (!stop.signal.aborted) {
        await shown();
        try {
          const next = await get<T>(path);
          if (stop.signal.aborted) return;
          take?.(next);
          setValue(next);
        } catch {
          await pause(1000, stop.signal);
        }
        await pause(everyMs, stop.signal);
      }
    };
    void loop();
    return () => stop.abort();
  }, [path]);
  return value;
}
