//! The collector that spans are sent to.

use std::net::{SocketAddr, ToSocketAddrs};

/// The port of OTLP over HTTP, and the path of traces there.
const PORT: u16 = 4318;
const PATH: &str = "/v1/traces";
const ALLOWED: &str = "http://HOST[:PORT][/PATH], without a user: a collector on this machine or behind a proxy for TLS";

/// A collector that takes OTLP over HTTP. Its address is looked up once, before a process is confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) authority: String,
    pub(super) path: String,
}

/// Why a text names no collector.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It has another form.
    #[error("found \"{0}\"; allowed: {ALLOWED}")]
    Form(String),
    /// The host has no address.
    #[error("{host}: {source}")]
    Host {
        /// The host and port.
        host: String,
        /// What the look-up said.
        source: std::io::Error,
    },
}

impl Endpoint {
    /// Reads a URL, and looks up its host. Without a path it is `/v1/traces`.
    ///
    /// # Errors
    /// When it has another form, or its host has no address.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let form = || EndpointError::Form(text.to_owned());
        let uri: http::Uri = text.parse().map_err(|_| form())?;
        let authority = uri.authority().ok_or_else(form)?;
        let is_plain = uri.scheme_str() == Some("http") && uri.query().is_none();
        if !is_plain || authority.as_str().contains('@') {
            return Err(form());
        }
        let port = authority.port_u16().unwrap_or(PORT);
        let bare = authority.host().trim_matches(['[', ']']);
        let host = format!("{}:{port}", authority.host());
        let found = (bare, port).to_socket_addrs().and_then(|mut found| {
            let missing = || std::io::Error::other("it has no address");
            found.next().ok_or_else(missing)
        });
        let address = found.map_err(|source| EndpointError::Host {
            host: host.clone(),
            source,
        })?;
        let path = match uri.path() {
            "/" | "" => PATH,
            path => path,
        };
        Ok(Self {
            address,
            path: path.to_owned(),
            authority: host,
        })
    }

    /// Returns the port that spans are sent to.
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn a_collector_is_a_plain_url_with_the_port_and_path_of_otlp_unless_it_says_others() {
        let rows = [
            ("http://127.0.0.1", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:9/", "http://127.0.0.1:9/v1/traces"),
            ("http://[::1]:9/a/b", "http://[::1]:9/a/b"),
        ];
        for (text, url) in rows {
            assert_eq!(Endpoint::parse(text).expect(text).url(), url);
        }
        for text in [
            "",
            "127.0.0.1:4318",
            "https://127.0.0.1",
            "http://u@127.0.0.1",
            "http://127.0.0.1/?a",
        ] {
            let error = Endpoint::parse(text).expect_err(text).to_string();
            assert!(error.contains("allowed: http://"), "{error}");
        }
    }
}
