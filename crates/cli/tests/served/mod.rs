//! A node that serves, in a directory of its own, operated by the program itself.

#![allow(dead_code, reason = "each test program uses a part of it")]

mod listening;

use crate::calibrated;
use listening::Listening;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The listener of the leases.
pub(crate) const LISTENER: &str = "[listener.main]\naddress = \"127.0.0.1:0\"\n";

/// A node in a directory of its own.
pub(crate) struct Node {
    directory: TempDir,
    pub(crate) child: Child,
    pub(crate) errors: Option<BufReader<ChildStderr>>,
    pub(crate) address: SocketAddr,
}

pub(crate) fn table(name: &str, route: &str, more: &str) -> String {
    format!(
        "[tenant.{name}]\ncomponent = \"web.wasm\"\nreclaim = {{ budget = \"200ms\" }}\n\
         env = {{ NAME = \"{name}\" }}\nhttp = {{ routes = [\"{route}\"] }}\n{more}\n"
    )
}

/// The command that serves the leases of a directory.
pub(crate) fn serve(directory: &Path, options: &[&str]) -> Command {
    let path = |name: &str| directory.join(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command
        .arg("--profile")
        .arg(path("profile.json"))
        .arg("serve")
        .arg(path("leases.toml"))
        .arg("--socket")
        .arg(path("node.sock"))
        .args(options)
        .env("XDG_STATE_HOME", path("state"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Node {
    /// A node with the tenant `shop`, which answers everything.
    pub(crate) fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let text = LISTENER.to_owned() + &table("shop", "/*", "");
        Self::start_in(directory, &text, options)
    }

    /// A node with these leases.
    pub(crate) fn start_in(directory: TempDir, leases: &str, options: &[&str]) -> Self {
        let path = |name: &str| directory.path().join(name);
        let guest = PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../target/guests/web.wasm"
        ));
        fs::copy(guest, path("web.wasm")).expect("copied");
        fs::write(path("leases.toml"), leases).expect("written");
        fs::write(path("profile.json"), calibrated::profile()).expect("written");
        let mut child = serve(directory.path(), options).spawn().expect("runs");
        let listening = Listening::wait(&mut child);
        Self {
            directory,
            child,
            errors: Some(listening.errors),
            address: listening.address,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("node.sock")
    }

    /// Has a command for operators done.
    ///
    /// # Panics
    /// When it fails, with what it said.
    #[track_caller]
    pub(crate) fn done(&self, words: &[&str]) {
        let (code, output, errors) = self.command(words);
        assert_eq!(code, Some(0), "{words:?}: {output}{errors}");
    }

    /// The exit code, standard output and standard error of a command for operators.
    pub(crate) fn command(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(words)
            .arg("--socket")
            .arg(self.socket())
            .output()
            .expect("runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let (code, out, error) = self.command(&[words, &["--json"]].concat());
        // On a busy machine an end may take longer than its bound, which the exit code of a kill says.
        let is_late = words[0] == "kill" && code == Some(1);
        assert!(is_late || code == Some(0), "{words:?}: {code:?}: {error}");
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("no JSON: {out}"))
    }

    pub(crate) fn put(&self, name: &str, text: &str) -> (Option<i32>, String, String) {
        let file = self.path("put.toml");
        fs::write(&file, text).expect("written");
        self.command(&["put", name, file.to_str().expect("text")])
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|text| text.parse().ok());
        (
            status.unwrap_or_else(|| panic!("no answer: {answer:?}")),
            answer,
        )
    }

    /// Writes the lease file that the next reload reads.
    pub(crate) fn leases(&self, text: &str) {
        // As editors and deployments do: the file is another one then.
        let next = self.path("leases.next");
        fs::write(&next, text).expect("written");
        fs::rename(next, self.path("leases.toml")).expect("renamed");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("sent");
    }

    /// Ends the node as a power failure does, and starts one in its place.
    pub(crate) fn again(mut self, options: &[&str]) -> Self {
        let directory = self.killed();
        let leases = fs::read_to_string(directory.path().join("leases.toml")).expect("read");
        Self::start_in(directory, &leases, options)
    }

    /// The directory of a node that is ended as a power failure does.
    pub(crate) fn killed(&mut self) -> TempDir {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        std::mem::replace(&mut self.directory, tempfile::tempdir().expect("directory"))
    }

    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        let mut text = String::new();
        let errors = self.errors.take();
        errors
            .expect("there")
            .read_to_string(&mut text)
            .expect("text");
        (self.child.wait().expect("ended").code(), text)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A request on the control socket, as any client makes it, and the answer.
pub(crate) fn raw(socket: &Path, head: &str) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("connected");
    let request = format!("{head}\r\nHost: a\r\nConnection: close\r\n\r\n");
    // A connection that is refused may be closed before all is written or read.
    let mut answer = Vec::new();
    let _ = stream
        .write_all(request.as_bytes())
        .and_then(|()| stream.read_to_end(&mut answer).map(drop));
    String::from_utf8_lossy(&answer).into_owned()
}
