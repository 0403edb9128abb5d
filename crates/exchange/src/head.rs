//! The heads of a request and of a response.

use crate::fields::Fields;

/// How the client reached the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In plain text.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As a URL begins.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Everything of a request before its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method, as the client wrote it.
    pub method: String,
    /// How the client reached the listener.
    pub scheme: Scheme,
    /// The host, with a port if the client gave one.
    pub authority: String,
    /// The path, and the query after a `?`.
    pub path_with_query: String,
    /// The fields, without those of the connection alone.
    pub fields: Fields,
}

impl RequestHead {
    /// The head of an exchange in which none is sent: what it is for comes with the [`Call`](crate::Call).
    pub fn empty() -> Self {
        Self {
            method: String::new(),
            scheme: Scheme::Http,
            authority: String::new(),
            path_with_query: String::new(),
            fields: Fields::new(0),
        }
    }

    /// What it counts, bytes.
    pub fn bytes(&self) -> usize {
        self.method.len() + self.authority.len() + self.path_with_query.len() + self.fields.bytes()
    }
}

/// Everything of a response before its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, from 200 to 599: nothing is sent before the one response.
    pub status: u16,
    /// The fields.
    pub fields: Fields,
}

/// Returns whether a response with this status to a request with this method has a body (RFC 9110 §6.4.1).
/// A `Content-Length` of one that has none states the length of another response's body, or nothing.
pub fn has_body(method: &str, status: u16) -> bool {
    method != "HEAD" && !matches!(status, 204 | 205 | 304)
}

#[cfg(test)]
mod tests {
    use super::has_body;

    #[test]
    fn answers_to_head_and_of_some_statuses_have_no_body() {
        assert!(has_body("GET", 200) && has_body("head", 404));
        for (method, status) in [("HEAD", 200), ("GET", 204), ("PUT", 205), ("GET", 304)] {
            assert!(!has_body(method, status), "{method} {status}");
        }
    }
}
