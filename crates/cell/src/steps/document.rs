//! The table of host steps as a page of the book.

use super::table::{CEILING_NS, Longest, RowId};
use std::fmt::Write as _;

/// The text above the table.
const HEAD: &str = "\
# Host steps

Generated from the table in `crates/cell/src/steps/table.rs`; a test keeps it equal.

Everything that a cell's thread does for a guest is a host step with a row here. A program that imports
what has no row is refused. The functions enforce the caps, but for the known gaps of the [invariants](invariants.md#7-a-guest-cannot-panic-the-host-block-a-cell-allocate-uncharged-or-reach-another-tenant). A step is timed from where the engine leaves
the guest to where it goes back, the canonical ABI included and the guest's own allocator excluded; one that
is longer than its row, and than what the host itself adds, is counted (`Cell::steps`). `leasehold calibrate`
[measures](reference/profile.md#host-steps) the rows at their caps: where the column says *measured*, a step may
take what the profile has, and the ceiling without one; *as* another row, if both are counted under that one.
A bound is above the ceiling only where 99 of 100 steps took no less when they were measured. The longest row that a program reaches is its tenant's longest step in the admission test.
";

/// The page.
pub fn document() -> String {
    let mut page = format!("{HEAD}\nThe ceiling is {} µs.\n\n", CEILING_NS / 1000);
    page.push_str("| interface | step | caps: beyond them | longest | takes | holds | runs on |\n");
    page.push_str("|---|---|---|---|---|---|---|\n");
    for id in RowId::all() {
        line(&mut page, id);
    }
    page
}

fn line(page: &mut String, id: RowId) {
    let row = id.row();
    let caps = row.caps.iter().map(|cap| {
        let (most, what, beyond) = (cap.most, cap.what, cap.beyond.name());
        format!("{most} {what}: {beyond}")
    });
    let caps: Vec<_> = caps.collect();
    let takes: Vec<_> = row.takes.iter().map(|held| held.name()).collect();
    let counted = id.counted_as();
    let longest = match row.longest {
        Longest::Fault => "a fault of this host".to_owned(),
        Longest::Ceiling if counted != id => format!("as `{}`", counted.row().name),
        Longest::Ceiling => "measured".to_owned(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "| `{}` | `{}` | {} | {longest} | {} | {} | {} |",
        row.interface,
        row.name,
        caps.join("; "),
        takes.join(", "),
        row.holds,
        row.runs.name(),
    );
}

#[cfg(test)]
mod tests {
    use super::document;

    #[test]
    fn the_page_of_the_book_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/host-steps.md");
        if std::env::var_os("LEASEHOLD_WRITE_DOCS").is_some() {
            std::fs::write(path, document()).expect("written");
        }
        let page = std::fs::read_to_string(path).expect("a page");
        assert!(
            page == document(),
            "docs/host-steps.md differs from the table: LEASEHOLD_WRITE_DOCS=1 writes it"
        );
    }
}
