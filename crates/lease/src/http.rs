//! `[tenant.NAME.http]`: how a tenant answers requests, and which.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;

use crate::authority::Host;
use crate::byte_size::ByteSize;
use crate::error::{LeaseError, excerpt};
use crate::listener::{Listener, parse_timeout};
use crate::nanoseconds::Nanoseconds;
use crate::node::Node;

const KEYS: &str =
    "routes, listeners, fresh, reuse, concurrency, queue, timeout, head, window, server_timing";
const ROUTES: &str = "an array of 1 to 256 routes, such as [\"shop.example/api/*\"]";
const ROUTE: &str = "a host or nothing, then a path from \"/\" on, with \"/*\" at its end for all below it: \
                     \"shop.example/api/*\", \"/*\"";
const LISTENERS: &str = "an array of names of listeners, at least one, each once";
const FRESH: &str = "\"instance\" or \"tenant\"";
const COUNT: &str = "a whole number from 1 to 65536";
const CONCURRENCY: &str = "a whole number from 1 to 64";
const REUSE: &str = "a whole number from 1 to 1000000; 1 with fresh = \"tenant\"";
const HEAD: &str = "a size from 1KiB to 16KiB";
pub(crate) const WINDOW: &str = "a size from 4KiB to 16MiB";
pub(crate) const HOST_ALLOWED: &str = "the name of a host, without a port";

/// How a tenant answers requests: its `http` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Which requests it gets; never empty.
    pub routes: Vec<Route>,
    /// The listeners that they come from, by name; never empty, and all of them are in the file.
    pub listeners: Vec<String>,
    /// What is new for a request.
    pub fresh: Fresh,
    /// How many requests an instance answers before it is replaced.
    pub reuse: u32,
    /// How many requests it answers at a time.
    pub concurrency: u32,
    /// How many requests wait for it beside those.
    pub queue: u32,
    /// How long a request may take, from its head to the end of its response.
    pub timeout: Nanoseconds,
    /// The most bytes of a head, in each direction, with 32 for each field; at most 16 KiB: a guest is given all
    /// fields in one step.
    pub head: ByteSize,
    /// The most bytes of a body that are on their way, in each direction.
    pub window: ByteSize,
    /// Whether responses say in `Server-Timing` what they took.
    pub server_timing: bool,
}

/// What is new for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fresh {
    /// An instance of the tenant's program.
    #[default]
    Instance,
    /// A child tenant with a reclamation group of its own, which ends with the request.
    Tenant,
}

/// Which requests a tenant gets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// The host, without a port; `None`: any that no other route names.
    pub host: Option<Host>,
    /// The path, from its `/` on, without the `/*` at its end.
    pub path: String,
    /// Whether all paths below it are meant, too.
    pub below: bool,
}

impl Route {
    fn named(text: &str) -> Option<Self> {
        let (host, path) = text.split_at(text.find('/')?);
        let legal = |byte: u8| byte.is_ascii_graphic() && !b"?#*\"<>\\^`{|}".contains(&byte);
        let (path, below) = match path.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let host = match host {
            "" => None,
            host => Some(Host::parse(host)?),
        };
        path.bytes().all(legal).then(|| Self {
            host,
            path: path.to_owned(),
            below,
        })
    }
}

/// The route as a lease file states it.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.below { "/*" } else { "" };
        write!(
            f,
            "{}{}{below}",
            self.host.as_ref().map(Host::as_str).unwrap_or_default(),
            self.path
        )
    }
}

impl Http {
    const COUNTS: RangeInclusive<u64> = 1..=65_536;
    const REUSES: RangeInclusive<u64> = 1..=1_000_000;
    const ROUTES_MOST: usize = 256;

    const CONCURRENCY: u32 = 16;
    const QUEUE: u32 = 128;
    const TIMEOUT: Nanoseconds = Nanoseconds::new(30_000_000_000).expect("in range");
    const HEAD: ByteSize = ByteSize::new(16 << 10).expect("in range");
    const WINDOW: ByteSize = ByteSize::new(64 << 10).expect("in range");
}

/// A tenant's `http` table, whose listeners are not known yet.
pub(crate) struct HttpTable<'a> {
    node: Node<'a>,
    routes: Vec<(Route, Node<'a>)>,
    listeners: Option<(Vec<String>, Vec<Node<'a>>)>,
    http: Http,
}

impl<'a> HttpTable<'a> {
    pub(crate) fn parse(node: Node<'a>) -> Result<Self, LeaseError> {
        let mut routes = Vec::new();
        let mut listeners = None;
        let mut reuse = None;
        let mut http = Http {
            routes: Vec::new(),
            listeners: Vec::new(),
            fresh: Fresh::default(),
            reuse: 1,
            concurrency: Http::CONCURRENCY,
            queue: Http::QUEUE,
            timeout: Http::TIMEOUT,
            head: Http::HEAD,
            window: Http::WINDOW,
            server_timing: false,
        };
        // The ranges are of 32 bits.
        let count = |entry: &Node<'_>| Ok(entry.integer(Http::COUNTS, COUNT)? as u32);
        for entry in node.entries()? {
            match entry.name() {
                "routes" => routes = parse_routes(&entry)?,
                "listeners" => listeners = Some(parse_listeners(&entry)?),
                "fresh" => http.fresh = entry.keyword(FRESH, fresh_named)?,
                "reuse" => {
                    http.reuse = entry.integer(Http::REUSES, REUSE)? as u32;
                    reuse = Some(entry);
                }
                "concurrency" => http.concurrency = entry.integer(1..=64, CONCURRENCY)? as u32,
                "queue" => http.queue = count(&entry)?,
                "timeout" => http.timeout = parse_timeout(&entry)?,
                "head" => http.head = size(&entry, 1 << 10..=16 << 10, HEAD)?,
                "window" => http.window = size(&entry, 4 << 10..=16 << 20, WINDOW)?,
                "server_timing" => http.server_timing = entry.boolean()?,
                _ => return Err(entry.unknown(KEYS)),
            }
        }
        if routes.is_empty() {
            return Err(node.missing("routes", ROUTES));
        }
        if let (Some(stated), Fresh::Tenant, 2..) = (reuse, http.fresh, http.reuse) {
            return Err(stated.refused(REUSE));
        }
        Ok(Self {
            node,
            routes,
            listeners,
            http,
        })
    }
}

fn fresh_named(name: &str) -> Option<Fresh> {
    match name {
        "instance" => Some(Fresh::Instance),
        "tenant" => Some(Fresh::Tenant),
        _ => None,
    }
}

pub(crate) fn size(
    node: &Node<'_>,
    range: RangeInclusive<u64>,
    allowed: &str,
) -> Result<ByteSize, LeaseError> {
    let size: ByteSize = node.quantity_of(allowed)?;
    match range.contains(&size.get()) {
        true => Ok(size),
        false => Err(node.refused(allowed)),
    }
}

fn parse_routes<'a>(node: &Node<'a>) -> Result<Vec<(Route, Node<'a>)>, LeaseError> {
    let elements = node.elements(ROUTES)?;
    if !(1..=Http::ROUTES_MOST).contains(&elements.len()) {
        let found = format!("{} routes", elements.len());
        return Err(node.refused_as(found, ROUTES));
    }
    let route = |element: Node<'a>| Ok((element.keyword(ROUTE, Route::named)?, element));
    elements.into_iter().map(route).collect()
}

fn parse_listeners<'a>(node: &Node<'a>) -> Result<(Vec<String>, Vec<Node<'a>>), LeaseError> {
    let mut names: Vec<String> = Vec::new();
    let elements = node.elements(LISTENERS)?;
    for element in &elements {
        let name = element.string(LISTENERS, |_| true)?;
        if names.iter().any(|other| other == name) {
            return Err(element.refused(LISTENERS));
        }
        names.push(name.to_owned());
    }
    match names.is_empty() {
        true => Err(node.refused(LISTENERS)),
        false => Ok((names, elements)),
    }
}

/// The `http` tables of a file's tenants, in order, once all listeners are known: each route
/// belongs to one tenant on each listener.
pub(crate) fn assigned(
    tables: Vec<(String, Option<HttpTable<'_>>)>,
    listeners: &[Listener],
) -> Result<Vec<Option<Http>>, LeaseError> {
    let is_listener = |name: &str| listeners.iter().any(|listener| listener.name == name);
    let allowed = || {
        let names: Vec<_> = listeners
            .iter()
            .map(|listener| excerpt(&listener.name))
            .collect();
        match names.is_empty() {
            true => "a table [listener.NAME] in this file".to_owned(),
            false => format!("of this file's listeners: {}", names.join(", ")),
        }
    };
    // On a listener, a route: the tenant and the line that have it.
    let mut taken: HashMap<(String, Route), (String, usize)> = HashMap::new();
    let mut all = Vec::with_capacity(tables.len());
    for (tenant, table) in tables {
        let Some(HttpTable {
            node,
            routes,
            listeners: stated,
            mut http,
        }) = table
        else {
            all.push(None);
            continue;
        };
        http.listeners = match (stated, listeners) {
            (Some((names, nodes)), _) => {
                if let Some(at) = names.iter().position(|name| !is_listener(name)) {
                    return Err(nodes[at].refused(&allowed()));
                }
                names
            }
            (None, [only]) => vec![only.name.clone()],
            (None, _) => return Err(node.missing("listeners", &allowed())),
        };
        for (route, stated) in routes {
            for listener in &http.listeners {
                let place = (tenant.clone(), stated.line());
                if let Some((other, line)) = taken.insert((listener.clone(), route.clone()), place)
                {
                    return Err(stated.refused(&format!(
                        "a route that is free on the listener {listener}: tenant.{other} has this one, in line {line}"
                    )));
                }
            }
            http.routes.push(route);
        }
        all.push(Some(http));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::Route;

    #[test]
    fn a_route_is_displayed_as_it_was_stated() {
        for text in [
            "/",
            "/*",
            "/api",
            "/api/*",
            "shop.example/*",
            "[::1]/a/b",
            "127.0.0.1/x",
        ] {
            assert_eq!(Route::named(text).expect(text).to_string(), text);
        }
        for text in [
            "",
            "shop.example",
            "a b/",
            "/a*",
            "/*/b",
            "/a?b",
            "shop:80/",
            "/ü",
            "//*?",
        ] {
            assert_eq!(Route::named(text), None, "{text:?}");
        }
    }
}
