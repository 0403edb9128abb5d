//! The attacks are programs: each of them compiles.

use super::common::cell;
use std::path::Path;

#[test]
fn every_attack_compiles() {
    let cell = cell();
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks");
    let mut found = 0;
    for entry in std::fs::read_dir(&attacks).expect("a directory of attacks") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|kind| kind == "wat") {
            let program = cell.load(&path);
            assert!(program.is_ok(), "{}: {:?}", path.display(), program.err());
            found += 1;
        }
    }
    assert!(found > 0, "no attack in {}", attacks.display());
}
