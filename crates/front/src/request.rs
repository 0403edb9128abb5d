//! The head of a request, as it crosses to the guest.

use http::header::{CONNECTION, HOST, HeaderMap, HeaderName, TE, UPGRADE};
use http::uri::Authority;
use http::{Method, Version, request};
use leasehold_exchange::{ExchangeLimits, Fields, RequestHead, Scheme};

/// Why a request goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// What is wrong with it.
    Malformed(&'static str),
    /// Its head is larger than the tenant's limit.
    TooLarge,
    /// It asks for a tunnel.
    Tunnel,
}

/// Fields of one connection, which go no further than it, besides those that `Connection` names.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "te",
];

/// The host that the request is for; empty if HTTP/1.0 gave none.
pub(crate) fn authority(parts: &request::Parts) -> Result<String, Rejection> {
    if parts.method == Method::CONNECT {
        return Err(Rejection::Tunnel);
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Rejection::Malformed("more than one field Host")),
        (host, None) => host,
    };
    if host.is_none() && parts.version == Version::HTTP_11 {
        return Err(Rejection::Malformed("no field Host"));
    }
    let host = match (parts.uri.authority(), host) {
        (Some(authority), _) => Some(authority.as_str().to_owned()),
        (None, Some(host)) => {
            let text = host
                .to_str()
                .ok()
                .filter(|text| text.is_empty() || text.parse::<Authority>().is_ok());
            Some(
                text.ok_or(Rejection::Malformed("a field Host that is no host"))?
                    .to_owned(),
            )
        }
        (None, None) => None,
    };
    match host {
        Some(host) if host.contains('@') => Err(Rejection::Malformed("a host with a user")),
        Some(host) => Ok(host),
        None if parts.version == Version::HTTP_10 => Ok(String::new()),
        None => Err(Rejection::Malformed("no host")),
    }
}

/// The head without the fields of the connection, if it fits the limits.
pub(crate) fn head(
    parts: &request::Parts,
    scheme: Scheme,
    authority: &str,
    limits: ExchangeLimits,
) -> Result<RequestHead, Rejection> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut fields = Fields::new(limits.head_bytes);
    fields.reserve(
        parts
            .headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 8)
            .sum(),
    );
    for (name, value) in end_to_end(&parts.headers) {
        if name != HOST {
            fields
                .push(name.as_str(), value.as_bytes())
                .map_err(|_| Rejection::TooLarge)?;
        }
    }
    // Of what a client takes, trailers are the one thing that goes through.
    let takes_trailers = parts
        .headers
        .get_all(TE)
        .iter()
        .any(|value| value.as_bytes() == b"trailers");
    if takes_trailers {
        fields
            .push("te", b"trailers")
            .map_err(|_| Rejection::TooLarge)?;
    }
    let head = RequestHead {
        method: parts.method.as_str().to_owned(),
        scheme,
        authority: authority.to_owned(),
        path_with_query: path.to_owned(),
        fields,
    };
    match head.bytes() <= limits.head_bytes as usize {
        true => Ok(head),
        false => Err(Rejection::TooLarge),
    }
}

/// Whether a field is one of its connection alone.
pub(crate) fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name)
}

fn end_to_end(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &http::HeaderValue)> {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        // A client names a few; a list that is longer names nothing that is needed.
        .take(16)
        .collect();
    headers.iter().filter(move |(name, _)| {
        let name = name.as_str();
        !is_hop_by_hop(name) && name != UPGRADE.as_str() && !named.iter().any(|other| other == name)
    })
}

/// Trailers of a request; those that do not fit are an error.
pub(crate) fn trailers(trailers: &HeaderMap, limits: ExchangeLimits) -> Option<Fields> {
    let mut fields = Fields::new(limits.head_bytes);
    for (name, value) in trailers {
        fields.push(name.as_str(), value.as_bytes()).ok()?;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::{Rejection, authority, head};
    use http::Request;
    use leasehold_exchange::{ExchangeLimits, Scheme};

    fn parts(build: http::request::Builder) -> http::request::Parts {
        build.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn fields_of_the_connection_go_no_further() {
        let parts = parts(
            Request::get("/a?b")
                .header("Host", "shop.example")
                .header("Connection", "keep-alive, X-Secret")
                .header("X-Secret", "1")
                .header("Keep-Alive", "5")
                .header("TE", "trailers")
                .header("Transfer-Encoding", "chunked")
                .header("Upgrade", "websocket")
                .header("Accept", "a")
                .header("Accept", "b"),
        );
        let host = authority(&parts).expect("a host");
        let head = head(&parts, Scheme::Http, &host, ExchangeLimits::default()).expect("it fits");
        let fields: Vec<_> = head.fields.iter().collect();
        assert_eq!(
            fields,
            [("accept", &b"a"[..]), ("accept", b"b"), ("te", b"trailers")]
        );
        assert_eq!(
            (host.as_str(), head.path_with_query.as_str()),
            ("shop.example", "/a?b")
        );
    }

    #[test]
    fn a_request_has_one_host() {
        let rows = [
            (
                Request::get("/"),
                Err(Rejection::Malformed("no field Host")),
            ),
            (
                Request::get("/").header("Host", "a").header("Host", "b"),
                Err(Rejection::Malformed("more than one field Host")),
            ),
            (
                Request::get("/").header("Host", "a b"),
                Err(Rejection::Malformed("a field Host that is no host")),
            ),
            (
                Request::get("/").header("Host", "u@a"),
                Err(Rejection::Malformed("a host with a user")),
            ),
            (
                Request::get("http://a:80/").header("Host", "b"),
                Ok("a:80".to_owned()),
            ),
            (
                Request::get("/").version(http::Version::HTTP_10),
                Ok(String::new()),
            ),
            (
                Request::builder().method("CONNECT").uri("a:1"),
                Err(Rejection::Tunnel),
            ),
        ];
        for (build, expected) in rows {
            assert_eq!(authority(&parts(build)), expected);
        }
    }

    #[test]
    fn a_head_that_does_not_fit_is_rejected() {
        let limits = ExchangeLimits {
            head_bytes: 64,
            window_bytes: 1,
        };
        let long = "x".repeat(60);
        for build in [
            Request::get("/").header("A", &long),
            Request::get(format!("/{long}")),
        ] {
            let parts = parts(build.header("Host", "a.example"));
            assert_eq!(
                head(&parts, Scheme::Http, "a.example", limits),
                Err(Rejection::TooLarge)
            );
        }
    }
}
