//! Causal isolation where it is known which lock slows the neighbour. Needs a kernel whose lock functions can be
//! probed, two processors, and a clock that the load of the host does not move.

#![cfg(feature = "tracer")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use common::{example, loaded, lockscope, until};
use serde_json::Value;

/// What `causes` says of two commands, with the options `more`.
fn causes(directory: &Path, a: &str, b: &str, more: &[&str]) -> Vec<Value> {
    let output = lockscope()
        .args(["causes", "--json", "--pin", "--a", a, "--b", b])
        .args(["--for", "300ms", "--each", "250ms", "--blocks", "3"])
        .arg("--out")
        .arg(directory.join("trace"))
        .args(more)
        .output()
        .expect("started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let causes = result["causes"].as_array().expect("causes").clone();
    for cause in &causes {
        let shown = |name: &str| format!("{name} {}", cause[name]);
        let all = [
            "lock",
            "holds_per_second",
            "measured",
            "own",
            "predicted",
            "finding",
        ];
        println!("{}", all.map(shown).join(", "));
    }
    causes
}

/// A workload that uses `object`, in rounds of ten.
fn contender(object: &str, directory: &Path) -> String {
    let program = example("contender");
    format!("exec {program} {object} 0 {} 10", directory.display())
}

fn number(cause: &Value, path: &str) -> f64 {
    let found = cause.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{path}: {cause}"))
}

/// In memory: the files of a disk have locks of their own.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory")
}

#[test]
#[ignore = "needs such a kernel, two processors and such a clock: lab/run --deterministic --cpus 32"]
fn a_longer_hold_of_a_directory_that_both_change_slows_the_neighbour_by_about_as_much() {
    let directory = in_memory();
    let files = contender("directory", directory.path());
    let more = ["--locks", "1", "--private", "0"];
    let found = causes(directory.path(), &files, &files, &more);
    let [cause] = found.as_slice() else {
        panic!("{found:?}");
    };
    // The lock that costs most is the one that the two meet at.
    let name = cause["lock"]["name"].as_str().expect("a name");
    assert!(name.ends_with("vfs_inode.i_rwsem"), "{name}");
    assert_eq!(cause["finding"], "channel");
    // The neighbour takes the lock as often as it is held: it may meet each hold, and meets many of them.
    let most = number(cause, "/holds_per_second") / 1e6;
    let slope = number(cause, "/measured/all");
    assert!(
        (0.4 * most..1.3 * most).contains(&slope),
        "{slope} of {most}"
    );
    assert!(number(cause, "/own/least") > 0.0);
}

#[test]
#[ignore = "needs such a kernel, two processors and such a clock: lab/run --deterministic --cpus 32"]
fn a_longer_hold_of_a_directory_of_its_own_slows_its_holder_alone() {
    let directory = in_memory();
    let [a, b] = ["a", "b"].map(|name| {
        let own = directory.path().join(name);
        fs::create_dir(&own).expect("made");
        contender("directory", &own)
    });
    let more = ["--locks", "0", "--private", "1", "--lock", "i_rwsem"];
    let found = causes(directory.path(), &a, &b, &more);
    let [cause] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(cause["lock"]["shared"], false);
    let (slope, own) = (number(cause, "/measured/all"), number(cause, "/own/all"));
    assert!(number(cause, "/own/least") > 0.0);
    assert!(slope.abs() < 0.15 * own, "{slope} of {own}");
    // Each hold is of the holder's own time.
    let most = number(cause, "/holds_per_second") / 1e6;
    assert!((0.6 * most..1.4 * most).contains(&own), "{own} of {most}");
}

#[test]
#[ignore = "needs such a kernel, two processors and such a clock: lab/run --deterministic --cpus 32"]
fn what_is_injected_is_what_was_asked_for_and_a_little() {
    let directory = in_memory();
    let files = contender("file", directory.path());
    let more = ["--locks", "1", "--private", "0", "--delay", "10us,50us"];
    let found = causes(directory.path(), &files, &files, &more);
    let points = found[0]["blocks"].as_array().expect("blocks").iter();
    for block in points {
        let none = number(block, "/none/mean_ns");
        assert!(none < 2_000.0, "{none}");
        for (at, asked) in [(0, 10_000.0), (1, 50_000.0)] {
            let injected = number(block, &format!("/delayed/{at}/mean_ns"));
            // An interrupt may come in between.
            assert!((asked..1.5 * asked).contains(&injected), "{injected}");
        }
    }
}

#[test]
#[ignore = "needs a kernel whose lock functions can be probed, such as the lab"]
fn a_command_that_is_killed_leaves_no_delay() {
    let directory = in_memory();
    let files = contender("directory", directory.path());
    let mut running = lockscope()
        .args(["causes", "--pin", "--a", &files, "--b", &files])
        .args(["--for", "300ms", "--each", "100ms", "--blocks", "1000"])
        .arg("--out")
        .arg(directory.path().join("trace"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    // The trace is written before the first delay.
    until(|| directory.path().join("trace").exists());
    assert!(loaded("lock_kept") > 0);
    running.kill().expect("killed");
    running.wait().expect("waited for");
    until(|| loaded("lock_kept") == 0);
}
