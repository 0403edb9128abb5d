//! The table of a listener's routes: the tenant of a host and a path.

use crate::site::Site;
use leasehold_lease::{Host, Http, Route};
use std::collections::HashMap;
use std::sync::Arc;

/// The routes of one host, or of all hosts that no route names.
#[derive(Default)]
struct Paths {
    exact: HashMap<String, Arc<Site>>,
    below: HashMap<String, Arc<Site>>,
    /// The most segments of a route in `below`.
    depth: usize,
}

/// The routes of a listener. A route with a host goes before one without, and then the longest path.
#[derive(Default)]
pub(crate) struct Routes {
    hosts: HashMap<Host, Paths>,
    others: Paths,
    /// The largest head that any of its tenants takes.
    head_bytes: u32,
}

impl Routes {
    /// Those of a listener.
    pub(crate) fn of(listener: &str, sites: &[(Arc<Site>, Http)]) -> Self {
        let mut routes = Self::default();
        for (site, http) in sites {
            if http.listeners.iter().any(|name| name == listener) {
                routes.head_bytes = routes.head_bytes.max(site.limits().head_bytes);
                http.routes.iter().for_each(|route| routes.add(route, site));
            }
        }
        routes
    }

    pub(crate) const fn head_bytes(&self) -> u32 {
        self.head_bytes
    }

    fn add(&mut self, route: &Route, site: &Arc<Site>) {
        let paths = match &route.host {
            Some(host) => self.hosts.entry(host.clone()).or_default(),
            None => &mut self.others,
        };
        if route.below {
            paths.depth = paths.depth.max(route.path.matches('/').count());
            paths.below.insert(route.path.clone(), site.clone());
        } else {
            paths.exact.insert(route.path.clone(), site.clone());
        }
    }

    /// The tenant for a path without its query. The work is bounded by the routes' segments,
    /// whatever the path has.
    pub(crate) fn find(&self, host: &Host, path: &str) -> Option<&Arc<Site>> {
        let named = self.hosts.get(host).and_then(|paths| paths.find(path));
        named.or_else(|| self.others.find(path))
    }
}

impl Paths {
    fn find(&self, path: &str) -> Option<&Arc<Site>> {
        if let Some(site) = self.exact.get(path) {
            return Some(site);
        }
        // The ends of the segments: of "/a/b" these are "", "/a" and "/a/b".
        let ends = path
            .match_indices('/')
            .map(|(at, _)| at)
            .chain([path.len()]);
        let prefixes: Vec<&str> = ends.take(self.depth + 1).map(|end| &path[..end]).collect();
        let mut longest_first = prefixes.iter().rev();
        longest_first.find_map(|prefix| self.below.get(*prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::Routes;
    use crate::site::Site;
    use leasehold_lease::{Host, LeaseFile};
    use std::path::Path;

    fn routes() -> Routes {
        let tenants = [
            ("any", "\"/*\""),
            ("shop", "\"shop.example/*\""),
            ("api", "\"shop.example/api/*\""),
            ("one", "\"shop.example/api/one\", \"/health\""),
            ("dotted", "\"Root.Example./*\""),
            ("six", "\"[0::1]/*\""),
        ];
        let tenant = |(name, routes): (&str, &str)| {
            format!(
                "[tenant.{name}]\ncomponent = \"a\"\nreclaim.budget = \"1ms\"\nhttp.routes = [{routes}]\n"
            )
        };
        let text: String = tenants.into_iter().map(tenant).collect();
        let text = format!("[listener.main]\naddress = \"127.0.0.1:0\"\n{text}");
        let file = LeaseFile::parse(&text, Path::new("lease.toml")).expect("a lease file");
        let mut routes = Routes::default();
        for tenant in &file.tenants {
            let http = tenant.http.as_ref().expect("it answers");
            let site = Site::new(&tenant.name, http, None);
            http.routes
                .iter()
                .for_each(|route| routes.add(route, &site));
        }
        routes
    }

    #[test]
    fn the_host_goes_first_and_then_the_longest_path() {
        let routes = routes();
        let rows = [
            ("shop.example", "/", "shop"),
            ("SHOP.example", "/x", "shop"),
            ("shop.example", "/api", "api"),
            ("shop.example", "/api/two", "api"),
            ("shop.example", "/apis", "shop"),
            ("shop.example", "/api/one", "one"),
            ("shop.example", "/api/one/more", "api"),
            ("shop.example", "/health", "shop"),
            ("other.example", "/health", "one"),
            ("shop.example.", "/", "shop"),
            ("root.example", "/", "dotted"),
            ("root.example.", "/", "dotted"),
            ("[::1]", "/", "six"),
            ("other.example", "/", "any"),
        ];
        for (host, path, expected) in rows {
            let named = Host::parse(host).expect(host);
            let found = routes.find(&named, path).map(|site| site.name());
            assert_eq!(found, Some(expected), "{host}{path}");
            assert!(Routes::default().find(&named, path).is_none());
        }
    }
}
