//! What is said of how far scores come true follows from the traces in the tree.

use std::path::Path;
use std::process::Command;

#[test]
fn the_picture_of_the_results_is_what_the_archive_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("pairs.svg");
    let output = Command::new(root.join("lab/pairs-picture"))
        .arg(&picture)
        .env("LOCKSCOPE", env!("CARGO_BIN_EXE_lockscope"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    // As docs/results/lab.md has it.
    assert!(printed.contains("median factor 1.61"), "{printed}");
    assert!(printed.contains("median factor 2.05"), "{printed}");
    let made = std::fs::read_to_string(picture).unwrap();
    let kept = std::fs::read_to_string(root.join("docs/results/pairs.svg")).unwrap();
    assert!(made == kept, "run lab/pairs-picture");
}
