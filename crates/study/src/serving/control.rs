//! A node's control interface: a request over its socket, and the JSON of the answer.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends `POST path`; the body of the answer, `null` if it has none.
///
/// # Errors
/// When the node does not answer, or with another status than success.
pub(super) fn post(socket: &Path, path: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(socket).context("the socket of a node")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!("POST {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 2"), "POST {path}: {answer}");
    match body.is_empty() {
        true => Ok(Value::Null),
        false => serde_json::from_str(body).with_context(|| format!("the answer {body:?}")),
    }
}
