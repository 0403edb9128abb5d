//! `leasehold demo` in its quick form: every guest has its row, and the picture is there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn demo(directory: &Path, guests: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["demo", "--quick", "--guests"])
        .arg(guests)
        .arg("--out")
        .arg(directory.join("demo.svg"))
        .env("LEASEHOLD_PROFILE", directory.join("profile.json"))
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

#[test]
fn every_guest_is_killed_in_mid_flight_beside_the_others_and_shown() {
    let directory = tempfile::tempdir().expect("directory");
    let guests = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests"));
    let output = demo(directory.path(), &guests);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);

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
        assert!(row.contains("2.00 s"), "no budget in {row}");
        // What both runtimes took, and what the witness felt of it.
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
    for name in ["leasehold", "wasmtime", "wordcount", "fill"] {
        assert!(picture.contains(&format!("\n{name}\n")), "no {name}");
    }
}

#[test]
fn without_its_guests_the_demonstration_says_how_to_build_them() {
    let directory = tempfile::tempdir().expect("directory");
    let output = demo(directory.path(), directory.path());
    assert_eq!(output.status.code(), Some(66));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("make guests"), "{error}");
}
