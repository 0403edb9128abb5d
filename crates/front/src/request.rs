//! The head of a request, as it crosses to the guest.

use crate::trace::{TRACESTATE, Trace};
use http::header::{
    CONNECTION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Version, request};
use leasehold_exchange::{
    ExchangeLimits, FIELD_BYTES, Fields, RequestHead, Scheme, TRACEPARENT, is_hop_by_hop,
    may_be_trailer,
};
use leasehold_lease::{Authority, AuthorityFault, Destination};
use std::borrow::Cow;

/// Why a request goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// What is wrong with it.
    Malformed(&'static str),
    /// Its head is larger than the tenant's limit.
    TooLarge,
    /// It asks for a tunnel.
    Tunnel,
    /// Its body has a transfer coding that only the client knows.
    Coding,
}

/// How a request came here.
pub(crate) struct Arrival<'a> {
    pub(crate) scheme: Scheme,
    /// The host that it is for.
    pub(crate) authority: &'a str,
    /// Its span, if requests are traced; otherwise what the client says of a trace goes through.
    pub(crate) trace: Option<Trace>,
}

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The authority as the client wrote it, which is what the guest sees.
    pub(crate) text: String,
    /// What it stands for, which is what is compared.
    pub(crate) authority: Authority,
}

impl Target {
    fn parse(text: &str) -> Result<Self, Rejection> {
        match Authority::parse(text) {
            Ok(authority) => Ok(Self {
                text: text.to_owned(),
                authority,
            }),
            Err(_) if text.is_empty() => Err(Rejection::Malformed("no host")),
            Err(_) if text.contains('@') => {
                Err(Rejection::Malformed("a host with user information"))
            }
            Err(AuthorityFault::Host) => Err(NO_HOST_NAME),
            Err(AuthorityFault::Port) => {
                Err(Rejection::Malformed("a host with a port that is none"))
            }
        }
    }

    /// Whether both are one host and one port.
    fn is(&self, other: &Self, scheme: Scheme) -> bool {
        let port = Destination::port_of(scheme == Scheme::Https);
        let [own, other] = [&self.authority, &other.authority];
        own.host == other.host && own.port_or(port) == other.port_or(port)
    }
}

/// The one host that the request is for, with its port.
pub(crate) fn target(parts: &request::Parts, scheme: Scheme) -> Result<Target, Rejection> {
    if parts.method == Method::CONNECT {
        return Err(Rejection::Tunnel);
    }
    check_coding(&parts.headers)?;
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Rejection::Malformed("more than one field Host")),
        (host, None) => host,
    };
    if host.is_none() && parts.version == Version::HTTP_11 {
        return Err(Rejection::Malformed("no field Host"));
    }
    let text = |host: &HeaderValue| Target::parse(host.to_str().map_err(|_| NO_HOST_NAME)?);
    match (parts.uri.authority(), host) {
        // RFC 9112 §3.2.3 has it for CONNECT alone: who routed it by its field Host would be out of step.
        (Some(_), _) if parts.uri.scheme().is_none() => Err(Rejection::Malformed(
            "a target that is neither a path nor a whole address",
        )),
        // RFC 9113 §8.3.1; RFC 9112 §3.2.2 has the field ignored.
        (Some(authority), Some(host)) if parts.version == Version::HTTP_2 => {
            let target = Target::parse(authority.as_str())?;
            match target.is(&text(host)?, scheme) {
                true => Ok(target),
                false => Err(Rejection::Malformed(
                    "a field Host that is not the authority",
                )),
            }
        }
        (Some(authority), _) => Target::parse(authority.as_str()),
        (None, Some(host)) => text(host),
        (None, None) => Err(Rejection::Malformed("no host")),
    }
}

const NO_HOST_NAME: Rejection = Rejection::Malformed("a host that is neither name nor address");

/// Checks that a body is only chunked, if that. The codings are of this connection, so that the guest does not see
/// them: it would take what another coding made for the body.
fn check_coding(headers: &HeaderMap) -> Result<(), Rejection> {
    let fields = headers.get_all(TRANSFER_ENCODING).iter();
    let codings = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    let mut count = 0;
    for coding in codings {
        if !coding.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(Rejection::Coding);
        }
        count += 1;
    }
    match count {
        0 | 1 => Ok(()),
        // RFC 9112 §6.1.
        _ => Err(Rejection::Malformed("chunked more than once")),
    }
}

/// The head without the fields of the connection, if it fits the limits.
pub(crate) fn head(
    parts: &request::Parts,
    arrival: &Arrival<'_>,
    limits: ExchangeLimits,
) -> Result<RequestHead, Rejection> {
    let trace = arrival.trace.as_ref();
    let traceparent = trace.map(Trace::to_string).unwrap_or_default();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut fields = Fields::new(limits.head_bytes);
    fields.reserve(
        parts
            .headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES)
            .sum::<usize>()
            + TRACEPARENT.len()
            + traceparent.len()
            + FIELD_BYTES,
    );
    let mut cookies = Some(cookies(&parts.headers));
    for (name, value) in end_to_end(&parts.headers) {
        if name == HOST || is_replaced(name, trace) {
            continue;
        }
        let joined = match name == COOKIE {
            true => match cookies.take() {
                Some(all) => Cow::Owned(all),
                None => continue,
            },
            false => Cow::Borrowed(value.as_bytes()),
        };
        fields
            .push(name.as_str(), &joined)
            .map_err(|_| Rejection::TooLarge)?;
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
    let mut head = RequestHead {
        method: parts.method.as_str().to_owned(),
        scheme: arrival.scheme,
        authority: arrival.authority.to_owned(),
        path_with_query: path.to_owned(),
        fields,
    };
    let left = (limits.head_bytes as usize).checked_sub(head.bytes());
    let left = left.ok_or(Rejection::TooLarge)?;
    // A request that fits does not fail for being traced.
    if trace.is_some() && TRACEPARENT.len() + traceparent.len() + FIELD_BYTES <= left {
        let _ = head.fields.push(TRACEPARENT, traceparent.as_bytes());
    }
    Ok(head)
}

/// The cookies as one field: HTTP/2 sends each as it likes, and no guest has to know it (RFC 9113 §8.2.3).
fn cookies(headers: &HeaderMap) -> Vec<u8> {
    let all: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    all.join(&b"; "[..])
}

/// Whether the front says of a trace what this field says.
fn is_replaced(name: &HeaderName, trace: Option<&Trace>) -> bool {
    trace.is_some_and(|trace| name == TRACEPARENT || trace.parent.is_none() && name == TRACESTATE)
}

fn end_to_end(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
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

/// Trailers of a request, without fields that may be none; those that do not fit are an error.
pub(crate) fn trailers(trailers: &HeaderMap, limits: ExchangeLimits) -> Option<Fields> {
    let mut fields = Fields::new(limits.head_bytes);
    let allowed = trailers
        .iter()
        .filter(|(name, _)| may_be_trailer(name.as_str()));
    for (name, value) in allowed {
        fields.push(name.as_str(), value.as_bytes()).ok()?;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::{Arrival, NO_HOST_NAME, Rejection, head, target, trailers};
    use crate::trace::Trace;
    use http::Request;
    use leasehold_exchange::{ExchangeLimits, Scheme};

    fn arrival(authority: &str) -> Arrival<'_> {
        Arrival {
            scheme: Scheme::Http,
            authority,
            trace: None,
        }
    }

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
        let host = target(&parts, Scheme::Http).expect("a host").text;
        let head = head(&parts, &arrival(&host), ExchangeLimits::default()).expect("it fits");
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
            (Request::get("/").header("Host", "a b"), Err(NO_HOST_NAME)),
            (Request::get("/").header("Host", "a,b"), Err(NO_HOST_NAME)),
            (
                Request::get("/").header("Host", "[a.example]"),
                Err(NO_HOST_NAME),
            ),
            (
                Request::get("http://a,b/").version(http::Version::HTTP_2),
                Err(NO_HOST_NAME),
            ),
            (
                Request::get("http://a:80/").header("Host", "b"),
                Ok("a:80".to_owned()),
            ),
            (
                Request::get("/").version(http::Version::HTTP_10),
                Err(Rejection::Malformed("no host")),
            ),
            (
                Request::builder().method("CONNECT").uri("a:1"),
                Err(Rejection::Tunnel),
            ),
            (
                Request::get("http://a/")
                    .version(http::Version::HTTP_2)
                    .header("Host", "b"),
                Err(Rejection::Malformed(
                    "a field Host that is not the authority",
                )),
            ),
            (
                Request::get("http://a/")
                    .version(http::Version::HTTP_2)
                    .header("Host", "a"),
                Ok("a".to_owned()),
            ),
            (
                Request::get("http://g.example/")
                    .version(http::Version::HTTP_2)
                    .header("Host", "G.example.:80"),
                Ok("g.example".to_owned()),
            ),
            (
                Request::get("http://g.example/")
                    .version(http::Version::HTTP_2)
                    .header("Host", "g.example:81"),
                Err(Rejection::Malformed(
                    "a field Host that is not the authority",
                )),
            ),
            (
                Request::get("/").header("Host", "a:65536"),
                Err(Rejection::Malformed("a host with a port that is none")),
            ),
            (
                Request::get("/").header("Host", "a:+80"),
                Err(Rejection::Malformed("a host with a port that is none")),
            ),
            (
                Request::get("http://a:+80/").version(http::Version::HTTP_2),
                Err(Rejection::Malformed("a host with a port that is none")),
            ),
            (
                Request::get("/").header("Host", ""),
                Err(Rejection::Malformed("no host")),
            ),
            (
                Request::get("/").header("Host", "a@b"),
                Err(Rejection::Malformed("a host with user information")),
            ),
            (
                Request::get("http://u:p@x/").version(http::Version::HTTP_2),
                Err(Rejection::Malformed("a host with user information")),
            ),
        ];
        for (build, expected) in rows {
            let found = target(&parts(build), Scheme::Http);
            assert_eq!(found.map(|target| target.text), expected);
        }
    }

    #[test]
    fn a_body_has_no_transfer_coding_but_chunked() {
        let host = |codings: &[&str]| {
            let build = Request::post("/").header("Host", "a");
            let build = codings.iter().fold(build, |build, coding| {
                build.header("Transfer-Encoding", *coding)
            });
            target(&parts(build), Scheme::Http).map(drop)
        };
        assert_eq!((host(&[]), host(&["Chunked"])), (Ok(()), Ok(())));
        for codings in [
            &["gzip, chunked"][..],
            &["gzip", "chunked"],
            &["chunked, identity"],
            &["xchunked"],
            &[""],
        ] {
            assert_eq!(host(codings), Err(Rejection::Coding), "{codings:?}");
        }
        for codings in [&["chunked, chunked"][..], &["chunked", "chunked"]] {
            let twice = Rejection::Malformed("chunked more than once");
            assert_eq!(host(codings), Err(twice), "{codings:?}");
        }
    }

    #[test]
    fn a_guest_sees_the_span_of_its_request_where_there_is_room_for_it() {
        let parts = parts(
            Request::get("/")
                .header("Host", "a")
                .header("Traceparent", "sent")
                .header("Tracestate", "a=b"),
        );
        let traced = |trace, head_bytes| {
            let arrival = Arrival {
                trace,
                ..arrival("a")
            };
            let limits = ExchangeLimits {
                head_bytes,
                window_bytes: 1,
            };
            let fields = head(&parts, &arrival, limits).expect("it fits").fields;
            let value = |name| {
                let value = fields.get(name);
                value.map(|value| String::from_utf8_lossy(value).into_owned())
            };
            (value("traceparent"), value("tracestate"))
        };
        let trace = Trace {
            trace_id: 10,
            span_id: 11,
            parent: Some(12),
            is_sampled: true,
        };
        let own = format!("00-{:032x}-{:016x}-01", 10, 11);
        let sent = |text: &str| Some(text.to_owned());
        assert_eq!(traced(None, 1024), (sent("sent"), sent("a=b")));
        assert_eq!(traced(Some(trace), 1024), (sent(&own), sent("a=b")));
        let begun = Trace {
            parent: None,
            ..trace
        };
        assert_eq!(traced(Some(begun), 1024), (sent(&own), None));
        assert_eq!(traced(Some(begun), 64), (None, None));
    }

    #[test]
    fn cookies_are_one_field() {
        let parts = parts(
            Request::get("/")
                .header("Cookie", "a=1")
                .header("Accept", "x")
                .header("Cookie", "b=2; c=3"),
        );
        let head = head(&parts, &arrival("a"), ExchangeLimits::default()).expect("it fits");
        let mut fields: Vec<_> = head.fields.iter().collect();
        fields.sort_unstable();
        assert_eq!(
            fields,
            [("accept", &b"x"[..]), ("cookie", b"a=1; b=2; c=3")]
        );
    }

    #[test]
    fn fields_that_frame_a_message_are_no_trailers() {
        let mut sent = http::HeaderMap::new();
        for name in ["content-length", "transfer-encoding", "host", "digest"] {
            sent.insert(name, http::HeaderValue::from_static("7"));
        }
        let taken = trailers(&sent, ExchangeLimits::default()).expect("they fit");
        assert_eq!(taken.iter().collect::<Vec<_>>(), [("digest", &b"7"[..])]);
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
                head(&parts, &arrival("a.example"), limits),
                Err(Rejection::TooLarge)
            );
        }
    }
}
