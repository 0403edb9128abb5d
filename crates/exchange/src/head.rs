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
