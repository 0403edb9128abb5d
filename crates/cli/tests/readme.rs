//! The example in the README is what the program prints: `LEASEHOLD_WRITE_DOCS=1` pastes the output of a run
//! into it, and without that a run has the same lines. Numbers are the host's, and are not compared.

mod calibrated;

use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The text before and after the command and its output.
const BEGIN: &str = "```console\n$ leasehold run ";
const END: &str = "$ echo $?\n";

/// The example: where its command begins and its output ends, and both.
struct Example<'a> {
    command: &'a str,
    output: &'a str,
    exit: &'a str,
}

impl<'a> Example<'a> {
    fn of(readme: &'a str) -> Self {
        let (_, example) = readme.split_once(BEGIN).expect("a console with a run");
        let (command, rest) = example.split_once('\n').expect("a command");
        let (output, rest) = rest.split_once(END).expect("an exit code");
        let exit = rest.lines().next().unwrap_or_default();
        Self {
            command,
            output,
            exit,
        }
    }
}

/// The subject of a line: the text before its first number or gap. Rules have none, and the lines
/// on host steps depend on how busy the host is.
fn labels(output: &str) -> Vec<&str> {
    output
        .lines()
        .map(|line| {
            let line = line.trim();
            let gap = line.find("  ").unwrap_or(line.len());
            let number = line
                .find(|c: char| c.is_ascii_digit() || c == ':')
                .unwrap_or(line.len());
            line[..gap.min(number)].trim()
        })
        .filter(|label| !label.is_empty() && !label.starts_with(['─', '═']))
        .filter(|label| !label.starts_with("host step"))
        .collect()
}

#[test]
fn the_example_of_the_readme_has_the_lines_that_the_program_prints() {
    let path = Path::new(ROOT).join("README.md");
    let readme = std::fs::read_to_string(&path).expect("a README");
    let example = Example::of(&readme);

    let directory = tempfile::tempdir().expect("directory");
    let profile = directory.path().join("profile.json");
    std::fs::write(&profile, calibrated::profile()).expect("written");
    let run = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("run")
        .args(example.command.split(' '))
        .current_dir(ROOT)
        .env("LEASEHOLD_PROFILE", &profile)
        .env("XDG_CACHE_HOME", directory.path())
        .output()
        .expect("runs");
    let printed = [run.stdout, run.stderr].map(|text| String::from_utf8(text).expect("text"));
    let printed = printed.concat();
    let exit = run.status.code().expect("an exit code").to_string();

    if std::env::var_os("LEASEHOLD_WRITE_DOCS").is_some() {
        let (before, after) = (
            format!(
                "{}\n{}{END}{}",
                example.command, example.output, example.exit
            ),
            format!("{}\n{printed}{END}{exit}", example.command),
        );
        std::fs::write(&path, readme.replace(&before, &after)).expect("written");
        return;
    }
    assert_eq!(exit, example.exit, "{printed}");
    assert_eq!(
        labels(&printed),
        labels(example.output),
        "the README differs from this run: LEASEHOLD_WRITE_DOCS=1 pastes it\n{printed}"
    );
}

#[test]
fn lines_are_compared_by_what_they_are_about() {
    let run = "got 81791 refused\n───\n semaphore       81791       1.12 ms \nreclamation budget        5.00 ms\nhost step x: of 3\n";
    assert_eq!(labels(run), ["got", "semaphore", "reclamation budget"]);
    assert_eq!(labels(run), labels(&run.replace("81791", "7")));
    assert_ne!(labels(run), labels(&run.replace("semaphore", "channel")));
}
