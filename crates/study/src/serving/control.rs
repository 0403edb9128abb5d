//! A node's control interface: a request over its socket, and the JSON of the answer.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request with this body; the body of the answer, `null` if it has none.
///
/// # Errors
/// When the node does not answer, or with another status than success.
pub(super) fn send(socket: &Path, method: &str, path: &str, body: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(socket).context("the socket of a node")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\ncontent-type: application/toml\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
    match body.is_empty() {
        true => Ok(Value::Null),
        false => serde_json::from_str(body).with_context(|| format!("the answer {body:?}")),
    }
}
