//! A client of the control interface, on its unix socket.

use crate::view::{ErrorBody, ErrorKind};
use leasehold_lease::decimal;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The longest line of a head, and the most lines.
const LINE: u64 = 16 << 10;
const LINES: usize = 100;
/// The most bytes of an answer that is read as a whole.
const ANSWER: u64 = 64 << 20;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No node answers there.
    #[error("{}: {source}: does a node run there? --socket says where", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The connection was lost.
    #[error("the connection to the node: {0}")]
    Lost(#[from] io::Error),
    /// The answer cannot be understood.
    #[error("the node's answer: {0}")]
    Strange(String),
    /// The node refused it.
    #[error("{message}")]
    Refused {
        /// The kind of the error.
        kind: ErrorKind,
        /// What the node found, and what it allows.
        message: String,
    },
}

/// A client. Each request has a connection of its own.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

/// The lines of an answer, as they come.
pub struct Lines(BufReader<Body>);

impl Client {
    /// Creates a client of the node with this socket.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    /// Makes a request, and returns the status and the body of the answer.
    ///
    /// # Errors
    /// When no node answers, or it refuses the request.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &str)>,
    ) -> Result<(u16, String), ClientError> {
        let (status, lines) = self.begin(method, path, body)?;
        let mut text = String::new();
        lines.0.take(ANSWER).read_to_string(&mut text)?;
        match status {
            200..=299 => Ok((status, text)),
            _ => Err(refused(status, &text)),
        }
    }

    /// Sends a request as [`send`](Self::send), and reads the answer as this type.
    ///
    /// # Errors
    /// Those of `send`, and an answer that is not of this type.
    pub fn ask<T: DeserializeOwned>(&self, method: &str, path: &str) -> Result<T, ClientError> {
        let (_, text) = self.send(method, path, None)?;
        serde_json::from_str(&text).map_err(|error| ClientError::Strange(error.to_string()))
    }

    /// Makes a request whose answer has lines that come one by one.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn lines(&self, path: &str) -> Result<Lines, ClientError> {
        let (status, mut lines) = self.begin("GET", path, None)?;
        if status != 200 {
            let mut text = String::new();
            lines.0.read_to_string(&mut text)?;
            return Err(refused(status, &text));
        }
        Ok(lines)
    }

    fn begin(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &str)>,
    ) -> Result<(u16, Lines), ClientError> {
        let unreachable = |source| ClientError::Unreachable {
            path: self.socket.clone(),
            source,
        };
        let mut stream = UnixStream::connect(&self.socket).map_err(unreachable)?;
        let (kind, text) = body.unwrap_or(("text/plain", ""));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: leasehold\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(text.as_bytes())?;
        let mut reader = BufReader::new(stream);
        let strange =
            |line: &str| ClientError::Strange(format!("found {line:?}; allowed: HTTP/1.1"));
        let line = line(&mut reader)?;
        let status = line
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| decimal(rest.get(..3)?));
        let status = status.ok_or_else(|| strange(&line))?;
        let mut framing = Framing::UntilClosed;
        for _ in 0..LINES {
            let line = self::line(&mut reader)?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((status, Lines(BufReader::new(Body { reader, framing }))));
            }
            if let Some(("content-length", length)) = line.split_once(": ") {
                framing = Framing::Left(decimal(length).ok_or_else(|| strange(&line))?);
            } else if line == "transfer-encoding: chunked" {
                framing = Framing::Chunks(0);
            }
        }
        Err(strange("a head with too many lines"))
    }
}

impl Iterator for Lines {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(Ok(line.trim_end_matches(['\r', '\n']).to_owned())),
            Err(error) => Some(Err(error)),
        }
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.take(LINE).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn refused(status: u16, text: &str) -> ClientError {
    match serde_json::from_str::<ErrorBody>(text) {
        Ok(ErrorBody { error }) => ClientError::Refused {
            kind: error.kind,
            message: error.message,
        },
        Err(_) => ClientError::Strange(format!("status {status}: {text}")),
    }
}

enum Framing {
    UntilClosed,
    /// The body has so many bytes left.
    Left(u64),
    /// The present chunk has so many bytes left; 0 before each.
    Chunks(u64),
}

/// The body of an answer.
struct Body {
    reader: BufReader<UnixStream>,
    framing: Framing,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Framing::Chunks(0) = self.framing {
            let size = line(&mut self.reader)?;
            let size = size.split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size.trim(), 16);
            let size = size.map_err(|_| io::Error::other("a chunk without a size"))?;
            if size == 0 {
                self.framing = Framing::Left(0);
            } else {
                self.framing = Framing::Chunks(size);
            }
        }
        match &mut self.framing {
            Framing::UntilClosed => self.reader.read(buffer),
            Framing::Left(0) => Ok(0),
            Framing::Left(left) => {
                let read = (&mut self.reader).take(*left).read(buffer)?;
                *left -= read as u64;
                Ok(read)
            }
            Framing::Chunks(left) => {
                let read = (&mut self.reader).take(*left).read(buffer)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *left -= read as u64;
                if *left == 0 {
                    line(&mut self.reader)?;
                }
                Ok(read)
            }
        }
    }
}
