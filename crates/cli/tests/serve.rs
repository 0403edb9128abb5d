//! Tests of `leasehold serve`: real sockets, the real cell, and a guest built with wstd.

mod calibrated;
#[path = "served/listening.rs"]
mod listening;

use listening::Listening;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);

fn guests() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests"))
}

/// A directory with a lease file and a profile.
struct Leases(TempDir);

impl Leases {
    fn new(listener: &str, tenants: &[(&str, &str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let mut text = format!("[listener.main]\naddress = \"127.0.0.1:0\"\n{listener}\n");
        for (name, guest, http) in tenants {
            let component = guests().join(guest);
            text += &format!(
                "[tenant.{name}]\ncomponent = {component:?}\nreclaim = {{ budget = \"200ms\" }}\nenv = {{ NAME = \"{name}\" }}\nhttp = {{ {http} }}\n"
            );
        }
        fs::write(directory.path().join("leases.toml"), text).expect("written");
        fs::write(directory.path().join("profile.json"), calibrated::profile()).expect("written");
        Self(directory)
    }

    fn command(&self, command: &str, options: &[&str]) -> Command {
        let path = |name: &str| self.0.path().join(name);
        let mut program = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        program
            .arg("--profile")
            .arg(path("profile.json"))
            .arg(command)
            .arg(path("leases.toml"))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        program
    }

    fn refuses(&self, command: &str, code: i32, words: &[&str]) {
        let output = self.command(command, &[]).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
    }

    fn serve(&self, options: &[&str]) -> Server {
        let mut child = self.command("serve", options).spawn().expect("runs");
        let listening = Listening::wait(&mut child);
        Server { child, listening }
    }
}

struct Server {
    child: Child,
    listening: Listening,
}

impl Server {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("sent");
    }

    /// Its exit code, standard output, and standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut out = String::new();
        let stdout = self.child.stdout.take();
        stdout
            .expect("piped")
            .read_to_string(&mut out)
            .expect("text");
        let Listening {
            mut errors,
            mut text,
            ..
        } = self.listening;
        errors.read_to_string(&mut text).expect("text");
        (self.child.wait().expect("ended").code(), out, text)
    }

    fn request(&self, text: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.listening.address).expect("connected");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        stream.write_all(text.as_bytes()).expect("written");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|text| text.parse().ok());
        (
            status.unwrap_or_else(|| panic!("no answer: {answer:?}")),
            answer,
        )
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.request(&format!(
            "GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"
        ))
    }
}

#[test]
fn a_guest_answers_and_one_that_fails_harms_no_other_request() {
    answers_and_fails_alone("instance");
}

#[test]
fn the_same_holds_with_a_tenant_for_each_request() {
    answers_and_fails_alone("tenant");
}

fn answers_and_fails_alone(fresh: &str) {
    let http =
        format!("routes = [\"/*\"], timeout = \"1s\", server_timing = true, fresh = \"{fresh}\"");
    let leases = Leases::new(
        "",
        &[
            ("any", "web.wasm", &http),
            ("shop", "web.wasm", "routes = [\"/env\"]"),
        ],
    );
    let server = leases.serve(&["--log", "json"]);
    let (status, answer) = server.get("/");
    assert_eq!(status, 200, "{answer}");
    assert!(
        answer.contains("hello\n") && answer.contains("server-timing: queue;dur="),
        "{answer}"
    );
    assert!(
        server.get("/env").1.contains("NAME=shop\n"),
        "the longest route's tenant"
    );
    let body = "x".repeat(10_000);
    let (_, echo) = server.request(&format!(
        "POST /echo HTTP/1.0\r\nHost: shop.example\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert!(echo.ends_with(&body), "{} bytes", echo.len());
    assert_eq!(server.get("/trap").0, 502);
    assert_eq!(server.get("/spin").0, 504);
    assert_eq!(server.get("/").0, 200);
    server.signal(Signal::TERM);
    let (code, _, text) = server.end();
    assert_eq!(code, Some(0), "{text}");
    // Every line: of requests, of tenants and of the host.
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}")))
        .collect();
    let of = |path: &str| {
        lines
            .iter()
            .find(|line| line["path"] == path)
            .unwrap_or_else(|| panic!("{path} in {text}"))
    };
    assert_eq!(
        (&of("/env")["tenant"], &of("/env")["outcome"]),
        (&"shop".into(), &"answered".into())
    );
    assert_eq!(
        (&of("/trap")["status"], &of("/trap")["outcome"]),
        (&502.into(), &"failed".into())
    );
    // The reason of a trap is a line of the host.
    let said = lines.iter().find(|line| line["stream"] == "host");
    let said = said.unwrap_or_else(|| panic!("no line of the host: {text}"));
    assert_eq!(said["tenant"], "any", "{said}");
    let line = said["line"].as_str().expect("text");
    assert!(
        line.starts_with("a request failed: the program trapped: "),
        "{said}"
    );
    assert_eq!(
        (&of("/spin")["status"], &of("/spin")["outcome"]),
        (&504.into(), &"timeout".into())
    );
}

#[test]
fn told_to_end_it_finishes_what_is_under_way_and_reports() {
    let leases = Leases::new("", &[("shop", "web.wasm", "routes = [\"/*\"]")]);
    for signal in [Signal::TERM, Signal::INT] {
        let server = leases.serve(&["--json"]);
        let address = server.listening.address;
        thread::scope(|scope| {
            let slow = scope.spawn(|| server.get("/sleep?ms=800"));
            thread::sleep(Duration::from_millis(400));
            server.signal(signal);
            assert_eq!(slow.join().expect("answered").0, 200);
        });
        let (code, out, text) = server.end();
        assert_eq!(code, Some(0), "{text}");
        let report: Value = serde_json::from_str(&out).expect("a report");
        assert_eq!(
            report["serving"]["tenants"]["shop"]["requests"]["answered"],
            1
        );
        assert_eq!(report["tenants"][0]["state"], "killed");
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let leases = Leases::new("", &[("shop", "web.wasm", "routes = [\"/*\"]")]);
    let server = leases.serve(&["--grace", "60s"]);
    let mut stream = TcpStream::connect(server.listening.address).expect("connected");
    stream
        .write_all(b"GET /sleep?ms=20000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("written");
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    server.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(200));
    server.signal(Signal::TERM);
    let (code, _, text) = server.end();
    assert_eq!(code, Some(1), "a request was given up: {text}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_tenant_that_fails_is_started_again_after_pauses_that_grow() {
    let leases = Leases::new("", &[("shop", "web.wasm", "routes = [\"/*\"]")]);
    let path = leases.0.path();
    let traps = "(module (memory (export \"memory\") 1) (func (export \"_start\") unreachable))";
    fs::write(path.join("traps.wat"), traps).expect("written");
    let mut text = fs::read_to_string(path.join("leases.toml")).expect("read");
    let reserved = "cpu = { budget = \"1ms\", period = \"400ms\" }\n";
    for (name, restart, cpu) in [
        ("again", "on-failure", ""),
        ("reserved", "on-failure", reserved),
        ("once", "never", ""),
    ] {
        text += &format!(
            "[tenant.{name}]\ncomponent = \"traps.wat\"\nreclaim = {{ budget = \"50ms\" }}\nrestart = {restart:?}\n{cpu}"
        );
    }
    fs::write(path.join("leases.toml"), text).expect("written");
    let output = leases
        .command("serve", &["--for", "1s", "--json"])
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "tenants failed: {error}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let restarts = |name: &str| report["serving"]["tenants"][name]["restarts"].as_u64();
    // After 100, 300 and 700 ms.
    assert!(matches!(restarts("again"), Some(2..=3)), "{report}");
    assert_eq!((restarts("once"), restarts("shop")), (Some(0), Some(0)));
    assert!(
        error.contains("tenant.again: trapped; started again in 0.1 s"),
        "{error}"
    );
    // Not before the budget that it used would have come back.
    assert!(
        error.contains("tenant.reserved: trapped; started again in 0.4 s"),
        "{error}"
    );
}

#[test]
fn a_tenant_that_is_started_again_has_what_is_left_of_its_disk_share() {
    let leases = Leases::new("", &[("shop", "web.wasm", "routes = [\"/*\"]")]);
    let path = leases.0.path();
    // Makes files with random names until it is refused, and fails.
    let fills = r#"(module
      (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "_start")
        (loop $more
          (drop (call $random (i32.const 0) (i32.const 8)))
          ;; Letters.
          (i64.store (i32.const 0) (i64.add (i64.const 0x6161616161616161)
            (i64.and (i64.load (i32.const 0)) (i64.const 0x0f0f0f0f0f0f0f0f))))
          (br_if $more (i32.eqz (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 8)
            (i32.const 1) (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 16)))))
        unreachable))"#;
    fs::write(path.join("fills.wat"), fills).expect("written");
    fs::create_dir(path.join("share")).expect("made");
    let mut text = fs::read_to_string(path.join("leases.toml")).expect("read");
    text += r#"
[tenant.fills]
component = "fills.wat"
reclaim = { budget = "50ms" }
restart = "on-failure"
dirs = [{ host = "share", guest = "/", write = true }]
disk = { files = 3, bytes = "1MiB" }
"#;
    fs::write(path.join("leases.toml"), text).expect("written");
    let output = leases.command("serve", &["--for", "1s"]).output();
    let output = output.expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("tenant.fills: trapped; started again in 0.2 s"),
        "{error}"
    );
    let made = fs::read_dir(path.join("share")).expect("read").count();
    assert_eq!(made, 3, "in all its lives: {error}");
}

#[test]
fn what_cannot_be_served_is_named_before_anything_starts() {
    let route = "routes = [\"/*\"]";
    let twice = Leases::new("", &[("a", "web.wasm", route), ("b", "web.wasm", route)]);
    twice.refuses(
        "serve",
        78,
        &[
            "tenant.b.http.routes[0]: found \"/*\"",
            "tenant.a has this one",
        ],
    );
    let tls = Leases::new(
        "tls = { certificate = \"none.pem\", key = \"none.key\" }",
        &[("a", "web.wasm", route)],
    );
    tls.refuses(
        "serve",
        66,
        &["listener.main.tls: cannot read ", "none.pem"],
    );
    let admitted = tls.command("admit", &[]).output().expect("runs");
    let text = String::from_utf8_lossy(&admitted.stdout);
    assert_eq!(admitted.status.code(), Some(1), "{text}");
    assert!(text.contains("listener.main.tls: cannot read "), "{text}");
    let twice = Leases::new(
        "",
        &[(
            "a",
            "web.wasm",
            "routes = [\"/*\"], fresh = \"tenant\", reuse = 2",
        )],
    );
    twice.refuses("serve", 78, &["tenant.a.http.reuse: found the number 2"]);
    let command = Leases::new("", &[("a", "hello-p2.wasm", route)]);
    command.refuses("serve", 65, &["tenant.a: "]);
    let other = Leases::new("", &[("a", "web.wasm", route)]);
    other.refuses("up", 78, &["tenant.a.http: only `leasehold serve`"]);
}

#[test]
fn clients_take_no_descriptor_that_a_lease_has() {
    let served = |connections: u32, command: &str| {
        let listener = format!("connections = {connections}");
        let leases = Leases::new(&listener, &[("a", "web.wasm", "routes = [\"/*\"]")]);
        let own = leases.command(command, &[]);
        // The process may have 700 descriptors, of which 256 are the host's.
        let mut limited = Command::new("sh");
        limited
            .arg("-c")
            .arg("ulimit -Sn 700 && ulimit -Hn 700 && exec \"$@\"")
            .arg("sh");
        limited.arg(own.get_program()).args(own.get_args());
        limited
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        (leases, limited)
    };
    for command in ["serve", "admit"] {
        let (_leases, mut limited) = served(1024, command);
        let output = limited.output().expect("runs");
        let said = [&*output.stdout, &*output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!output.status.success(), "{command}: {said}");
        for word in [
            "listener.main.connections: found 1024",
            "1026 descriptors",
            "444 left",
        ] {
            assert!(said.contains(word), "{command}: no {word:?} in {said}");
        }
    }
    let (_leases, mut limited) = served(400, "serve");
    let mut child = limited.spawn().expect("runs");
    let listening = Listening::wait(&mut child);
    let server = Server { child, listening };
    assert_eq!(server.get("/").0, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_confined_server_needs_no_system_call_that_is_on_no_list() {
    let leases = Leases::new("", &[("shop", "web.wasm", "routes = [\"/*\"]")]);
    let server = leases.serve(&["--confinement", "trap"]);
    for path in ["/", "/big?bytes=300000", "/trap"] {
        server.get(path);
    }
    server.signal(Signal::TERM);
    let (code, _, text) = server.end();
    assert_eq!(code, Some(0), "{text}");
}
