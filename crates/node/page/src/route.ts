// Which view is shown: the part of the address after `#`.

import { useEffect, useState } from "preact/hooks";

export type Route = { view: "node" } | { view: "tenant"; name: string };

export const tenantLink = (name: string): string => `#/tenants/${encodeURIComponent(name)}`;

function current(): Route {
  const found = /^#\/tenants\/(.+)$/.exec(location.hash);
  return found ? { view: "tenant", name: decodeURIComponent(found[1]!) } : { view: "node" };
}

export function useRoute(): Route {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const changed = () => {
      setRoute(current());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
