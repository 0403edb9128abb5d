//! A server that has said where it listens.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr};

/// A server's standard error up to the line that names its first address, and that address, which may be
/// behind the host of a route there.
pub(crate) struct Listening {
    pub(crate) errors: BufReader<ChildStderr>,
    pub(crate) text: String,
    pub(crate) address: SocketAddr,
}

impl Listening {
    /// Waits for the line; fails if the server ends without it.
    pub(crate) fn wait(child: &mut Child) -> Self {
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        let mut text = String::new();
        let port = loop {
            let read = errors.read_line(&mut text).expect("a line");
            assert!(read > 0, "it ended: {text}");
            let url = text.split("http://").nth(1).unwrap_or_default();
            let authority = url.split('/').next().unwrap_or_default();
            if let Some(port) = authority
                .split(':')
                .nth(1)
                .and_then(|port| port.parse().ok())
            {
                break port;
            }
        };
        Self {
            errors,
            text,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
        }
    }
}
