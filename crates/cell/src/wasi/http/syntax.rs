//! What names and values of HTTP may be, as `wasmtime-wasi-http` has it (RFC 9110, RFC 3986).

/// Headers that a guest neither sees nor sets: they are the connection's.
const FORBIDDEN: [&[u8]; 9] = [
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
    b"host",
    b"http2-settings",
];

/// The header that states the length of a body.
pub(super) const CONTENT_LENGTH: &[u8] = b"content-length";

/// Whether a name, in lower case, is one of the connection's.
pub(super) fn is_forbidden(name: &[u8]) -> bool {
    FORBIDDEN.contains(&name)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The name in lower case, if it is one.
pub(super) fn field_name(name: &str) -> Option<String> {
    let is_name = !name.is_empty() && name.len() < 1 << 16 && name.bytes().all(is_token);
    is_name.then(|| name.to_ascii_lowercase())
}

/// Whether a field may have this value.
pub(super) fn is_field_value(value: &[u8]) -> bool {
    let is_visible = |byte: &u8| (*byte >= b' ' && *byte != 0x7f) || *byte == b'\t';
    value.len() < 1 << 16 && value.iter().all(is_visible)
}

/// The length that a `content-length` states, if it is one.
pub(super) fn content_length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    number.parse().ok()
}

/// Whether it is a method.
pub(super) fn is_method(method: &str) -> bool {
    !method.is_empty() && method.bytes().all(is_token)
}

/// Whether it is a scheme.
pub(super) fn is_scheme(scheme: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    scheme.len() <= 64 && scheme.bytes().all(is_part)
}

/// Whether it is the authority of a URI.
pub(super) fn is_authority(authority: &str) -> bool {
    let is_part =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@[]%".contains(&byte);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let is_port = |rest: &str| match rest.strip_prefix(':') {
        Some(digits) => {
            digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok()
        }
        None => rest.is_empty(),
    };
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').is_some_and(|(_, rest)| is_port(rest)),
        None => {
            let at = host.find(':').unwrap_or(host.len());
            !host.contains(['[', ']', '%']) && is_port(&host[at..])
        }
    };
    !host.is_empty() && authority.bytes().all(is_part) && is_host
}

/// Whether it is a path, and a query.
pub(super) fn is_path(path: &str) -> bool {
    let begins = path.is_empty() || path.starts_with(['/', '?']);
    // A fragment is not sent.
    let path = path.split_once('#').map_or(path, |(path, _)| path);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let in_path = |byte: u8| matches!(byte, 0x21..=0x22 | 0x24..=0x3b | 0x3d | 0x40..=0x5f | 0x61..=0x7e | 0x80..=0xff);
    let in_query = |byte: u8| matches!(byte, 0x21 | 0x24..=0x3b | 0x3d | 0x3f..=0x7e | 0x80..=0xff);
    begins && path.bytes().all(in_path) && query.bytes().all(in_query)
}

#[cfg(test)]
mod tests {
    use super::{content_length, field_name, is_authority, is_field_value, is_path, is_scheme};

    #[test]
    fn a_name_is_a_token_and_becomes_lower_case() {
        assert_eq!(field_name("Content-Type").as_deref(), Some("content-type"));
        for bad in ["", "a b", "a:", "ä", "a\n"] {
            assert_eq!(field_name(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_value_has_no_control_characters() {
        assert!(is_field_value(b"a\tb \xff") && is_field_value(b""));
        assert!(!is_field_value(b"a\r\nb") && !is_field_value(b"\0") && !is_field_value(b"\x7f"));
    }

    #[test]
    fn a_content_length_is_digits() {
        assert_eq!(content_length(b"0012"), Some(12));
        for bad in [
            &b""[..],
            b"+5",
            b"-5",
            b" 5",
            b"5 ",
            b"99999999999999999999",
        ] {
            assert_eq!(content_length(bad), None);
        }
    }

    #[test]
    fn parts_of_a_uri_are_checked() {
        assert!(is_authority("example.com:80") && is_authority("u@[::1]:8"));
        assert!(!is_authority("") && !is_authority("a b") && !is_authority("a/b"));
        assert!(!is_authority("a:1:2") && !is_authority("[::1"));
        assert!(is_authority("a:65535") && !is_authority("a:65536") && !is_authority("a:"));
        assert!(!is_authority("[::1]:99999") && !is_authority("a:+1"));
        assert!(is_path("") && is_path("/a?b=c&d") && is_path("?x"));
        assert!(!is_path("http://a/") && !is_path("a") && !is_path("/a b"));
        assert!(is_scheme("ftp") && !is_scheme("a:"));
    }
}
