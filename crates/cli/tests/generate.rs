//! `leasehold generate`: the other files of a package.

use std::process::Command;

fn leasehold(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(args)
        .output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_shell_completes_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = leasehold(&["generate", "completions", shell]);
        for command in ["run", "up", "admit", "advise", "calibrate", "generate"] {
            assert!(text.contains(command), "{shell} does not know {command}");
        }
        assert!(text.contains("kill-after"), "{shell} does not know options");
    }
}

#[test]
fn every_command_that_is_shown_has_a_manual_page() {
    let directory = tempfile::tempdir().expect("directory");
    let into = directory.path().join("man");
    leasehold(&[
        "generate",
        "manuals",
        "--into",
        into.to_str().expect("text"),
    ]);
    let help = leasehold(&["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        let page = std::fs::read_to_string(into.join(format!("leasehold-{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
            "{name}"
        );
    }
    assert!(into.join("leasehold.1").exists());
}
