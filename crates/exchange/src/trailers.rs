//! Which fields may come after a message, in both directions and all versions of HTTP.

use crate::hop_by_hop::is_hop_by_hop;

/// Fields that route a message, authenticate it, control what is done with it, or say how it is to be
/// understood: a recipient needs them before the body (RFC 9110 §6.5.1).
const NEVER: [&str; 31] = [
    // Routing and controls.
    "host",
    "max-forwards",
    "expect",
    "cache-control",
    "pragma",
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
    // Authentication, and what is trusted like it.
    "authorization",
    "proxy-authorization",
    "www-authenticate",
    "proxy-authenticate",
    "cookie",
    "set-cookie",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    // What a response is, and how long it is one.
    "age",
    "date",
    "expires",
    "location",
    "refresh",
    "retry-after",
    "vary",
    "warning",
    // What comes after the message.
    "trailer",
    "alt-svc",
];

/// Those fields of the content that are computed from it (RFC 9530).
const OF_CONTENT: &str = "content-digest";

/// Returns whether a field, whose name is in lower case, may be a trailer. Framing is the connection's, and `Content-*`
/// says what the content is.
pub fn may_be_trailer(name: &str) -> bool {
    let is_of_content = name.starts_with("content-") && name != OF_CONTENT;
    !is_of_content && !is_hop_by_hop(name) && !NEVER.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::may_be_trailer;

    #[test]
    fn a_field_that_is_needed_before_the_body_is_no_trailer() {
        for name in [
            "content-length",
            "content-type",
            "content-security-policy",
            "transfer-encoding",
            "connection",
            "te",
            "host",
            "authorization",
            "set-cookie",
            "cache-control",
            "trailer",
        ] {
            assert!(!may_be_trailer(name), "{name}");
        }
        for name in [
            "grpc-status",
            "digest",
            "content-digest",
            "server-timing",
            "etag",
        ] {
            assert!(may_be_trailer(name), "{name}");
        }
    }
}
