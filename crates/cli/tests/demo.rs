//! `leasehold demo` in its quick form: two lines first, every guest has its row, and the picture is there.

mod calibrated;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn demo(directory: &Path, guests: &Path) -> Output {
    let profile = directory.join("profile.json");
    fs::write(&profile, calibrated::profile()).expect("written");
    Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["demo", "--quick", "--guests"])
        .arg(guests)
        .arg("--out")
        .arg(directory.join("demo.svg"))
        .env("LEASEHOLD_PROFILE", profile)
        .env("XDG_CACHE_HOME", directory)
        .output()
        .expect("runs")
}

/// Guests in the order in which they are killed, and whether stock wasmtime has such a guest.
const GUESTS: [(&str, bool); 15] = [
    ("wordcount", true),
    ("objects", true),
    ("jsonsort", true),
    ("pages", true),
    ("picture", true),
    ("timers", true),
    ("pollables", true),
    ("files", true),
    ("tenants", true),
    ("waits", false),
    ("delegations", false),
    ("table", true),
    ("instances", true),
    ("spin", true),
    ("fill", true),
];

/// Whether `line` is `pattern`, in which each `*` stands for a number with its unit, or a part of one.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut rest = line;
    pattern.split('*').enumerate().all(|(n, part)| {
        let found = match n {
            0 => rest.strip_prefix(part),
            _ => rest.split_once(part).and_then(|(number, rest)| {
                let is_number = number.starts_with(|c: char| c.is_ascii_digit());
                (part.is_empty() || is_number).then_some(rest)
            }),
        };
        found.map(|found| rest = found).is_some()
    })
}

#[test]
fn two_lines_come_first_and_every_guest_is_killed_in_mid_flight_and_the_code_says_whether_deadlines_held()
 {
    let directory = tempfile::tempdir().expect("directory");
    let guests = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests"));
    let output = demo(directory.path(), &guests);
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    // The demonstration measures the wall time of a deadline; a test does not.
    let is_broken = text.contains("BROKEN") || text.contains("deadline broken");
    let code = Some(i32::from(is_broken));
    assert_eq!(output.status.code(), code, "{error}\n{text}");

    let first: Vec<&str> = text.lines().take(2).collect();
    let stock = "wasmtime: kill took *s, the neighbour stalled *s";
    assert!(is_like(first[0], stock), "{text}");
    let leased = "Leasehold: budget 20 ms, took *s, the neighbour's p99 *×";
    assert!(is_like(first[1], leased), "{text}");

    let mut lines = text.lines();
    let rows = GUESTS.map(|(guest, in_stock)| {
        // In this order: `find` goes on where it stopped.
        let row = lines.find(|line| line.split_whitespace().next() == Some(guest));
        (
            row.unwrap_or_else(|| panic!("no {guest} in {text}")),
            in_stock,
        )
    });
    for (row, in_stock) in rows {
        // Killed, and not ended by itself before.
        assert_eq!(row.split_whitespace().nth(1), Some("1/1"), "{row}");
        let verdict = [" yes ", " host late ", " NO "].map(|said| row.contains(said));
        assert_eq!(
            verdict.into_iter().filter(|is_said| *is_said).count(),
            1,
            "{row}"
        );
        assert!(!verdict[2] || is_broken, "{row}");
        // The effect on the neighbour in both runtimes.
        assert_eq!(
            row.matches('×').count(),
            if in_stock { 2 } else { 1 },
            "{row}"
        );
        assert_eq!(
            row.matches('–').count(),
            if in_stock { 0 } else { 2 },
            "{row}"
        );
    }

    let picture = std::fs::read_to_string(directory.path().join("demo.svg")).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    // The same lines, and what is marked.
    for text in [first[0], first[1], "kill"] {
        let escaped = text.replace('\'', "&apos;");
        let is_in = |text: &str| picture.contains(&format!("\n{text}\n"));
        assert!(is_in(text) || is_in(&escaped), "no {text} in {picture}");
    }
    assert!(picture.contains("\ndeadline: "), "{picture}");
}

#[test]
fn without_its_guests_the_demonstration_says_how_to_build_them() {
    let directory = tempfile::tempdir().expect("directory");
    let output = demo(directory.path(), directory.path());
    assert_eq!(output.status.code(), Some(66));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("make guests"), "{error}");
}
