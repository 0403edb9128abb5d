//! Signals that ask `leasehold` to end: the tenants are killed, and the report follows; and what a service manager is
//! told meanwhile.

mod calibrated;

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const SPIN: &str = r#"(module (func (export "_start") (loop (br 0))))"#;

/// A command on a directory with an endless program, a lease file and a profile.
fn command(directory: &Path, args: &[&str]) -> Command {
    std::fs::write(directory.join("spin.wat"), SPIN).expect("written");
    let lease = "[tenant.spin]\ncomponent = \"spin.wat\"\nreclaim = { budget = \"20ms\" }\n";
    std::fs::write(directory.join("leases.toml"), lease).expect("written");
    std::fs::write(directory.join("profile.json"), calibrated::profile()).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command
        .args(args)
        .current_dir(directory)
        .env("LEASEHOLD_PROFILE", directory.join("profile.json"))
        .env("XDG_CACHE_HOME", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Sends a signal when the tenants run, and returns what is written until the end, and how it ends.
fn ended_by(signal: Signal, mut child: Child) -> (String, std::process::ExitStatus) {
    std::thread::sleep(Duration::from_secs(2));
    let pid = Pid::from_child(&child);
    kill_process(pid, signal).expect("sent");
    let mut text = String::new();
    let stderr = child.stderr.as_mut().expect("a pipe");
    stderr.read_to_string(&mut text).expect("text");
    (text, child.wait().expect("an end"))
}

#[test]
fn a_run_that_is_told_to_end_kills_the_program_and_reports() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().expect("directory");
        let child = command(directory.path(), &["run", "--report", "spin.wat"])
            .spawn()
            .expect("runs");
        let (text, status) = ended_by(signal, child);
        assert_eq!(status.signal(), None, "{signal:?} ended it: {text}");
        assert_eq!(status.code(), Some(137), "{signal:?}: {text}");
        assert!(text.contains("spin: killed"), "{signal:?}: {text}");
        assert!(text.contains("predicted (charged)"), "{signal:?}: {text}");
    }
}

#[test]
fn tenants_of_up_are_killed_and_reported_by_every_signal_that_asks_for_the_end() {
    for signal in [Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().expect("directory");
        let args = ["up", "--unadmitted", "--quiet", "leases.toml"];
        let child = command(directory.path(), &args).spawn().expect("runs");
        let (text, status) = ended_by(signal, child);
        assert_eq!(status.code(), Some(0), "{signal:?}: {text}");
        assert!(
            text.contains("spin") && text.contains("killed"),
            "{signal:?}: {text}"
        );
    }
}

#[test]
fn a_service_manager_is_told_when_the_tenants_run_and_when_they_are_being_ended() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_nonblocking(true).expect("a socket");
    let args = ["up", "--unadmitted", "--quiet", "leases.toml"];
    let mut command = command(directory.path(), &args);
    let mut child = command.env("NOTIFY_SOCKET", &path).spawn().expect("runs");
    let told = |what: &str| {
        let until = Instant::now() + Duration::from_secs(60);
        let mut buffer = [0; 256];
        loop {
            match manager.recv(&mut buffer) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    assert!(text.lines().any(|line| line == what), "{text}");
                    return text;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            assert!(Instant::now() < until, "not told {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let text = told("READY=1");
    assert!(text.contains("STATUS=1 tenants run"), "{text}");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("sent");
    told("STOPPING=1");
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(0));
}
