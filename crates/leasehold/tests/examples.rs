//! Each example runs, and prints what it should.

use std::path::PathBuf;
use std::process::Command;

/// What an example writes. `cargo test --package leasehold` builds it, beside this test.
fn run(name: &str) -> String {
    let mut path = std::env::current_exe().expect("this test is a program");
    path.pop();
    path.pop();
    let path: PathBuf = path.join("examples").join(name);
    let output = Command::new(&path).output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{}: {error}: cargo test --package leasehold builds it",
            path.display()
        )
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {text}{errors}");
    text
}

#[test]
fn a_plugin_host_calls_functions_and_survives_one_that_never_returns() {
    let text = run("plugin_host");
    for line in [
        "words: 6",
        "sum: 6",
        "as text: 60",
        "killed, and everything is back",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

#[test]
fn a_host_starts_again_what_crashed_and_gives_up_what_is_hopeless() {
    let text = run("restart");
    for line in [
        "steady: over after 1 lives: Code(0)",
        "crashes: over after 3 lives: Code(0)",
        "hopeless: over after 4 lives: Trap",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
}

#[test]
fn a_kernel_of_ones_own_takes_everything_back_in_a_few_steps() {
    let text = run("kernel");
    assert!(text.contains("semaphores, then: "), "{text}");
    assert!(
        text.contains("at 2000000 ns: runs false, next decision Some(10000000)"),
        "{text}"
    );
    assert!(text.contains("taken back in "), "{text}");
}
