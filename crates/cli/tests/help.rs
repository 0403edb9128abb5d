//! The help of each command: what it does, its options, examples, exit codes.

use std::process::Command;

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("help")
        .args(arguments)
        .output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The commands that the help of the program lists.
fn commands() -> Vec<String> {
    let all = help(&[]);
    let listed = all.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<String> = listed
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 20, "{names:?}");
    names
}

#[test]
fn the_help_of_every_command_has_an_example_of_it_and_its_exit_codes_in_this_order() {
    for name in commands() {
        let text = help(&[&name]);
        let example = text.find(&format!("Examples:\n  leasehold {name}"));
        let codes = text.find("\nExit codes: ");
        assert!(example.is_some(), "{name}: no example:\n{text}");
        assert!(example < codes, "{name}: no exit codes below them:\n{text}");
    }
}

#[test]
fn a_command_whose_options_take_a_time_or_a_size_says_how_one_is_written() {
    for name in commands() {
        let text = help(&[&name]);
        for (placeholder, said) in [
            ("<TIME>", "TIME is a number and a unit"),
            ("<SIZE>", "SIZE as 64KiB"),
        ] {
            let needs = text.contains(placeholder);
            assert!(
                !needs || text.contains(said),
                "{name}: {placeholder}\n{text}"
            );
        }
    }
}

#[test]
fn no_line_of_help_is_wider_than_a_hundred_characters() {
    for name in commands() {
        for line in help(&[&name]).lines() {
            assert!(line.chars().count() <= 100, "{name}: {line}");
        }
    }
}
