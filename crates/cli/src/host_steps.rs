//! Host steps that were longer than their rows, for reports.

use crate::report::nanos;
use leasehold_cell::steps::StepUse;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The steps that were too long, a line for each row; nothing if there were none.
pub(crate) fn text(seen: &[StepUse]) -> String {
    let mut text = String::new();
    for step in seen
        .iter()
        .filter(|step| step.exceeded + step.disturbed > 0)
    {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "host step {row}: of {steps}, {exceeded} were longer than {limit}, with {added} that the host itself may \
             add (longest {longest}), and {disturbed} perhaps only since the host took the processor",
            row = step.row.row().title(),
            steps = step.steps,
            exceeded = step.exceeded,
            limit = nanos(step.limit_ns),
            added = nanos(step.added_ns),
            longest = nanos(step.longest_ns),
            disturbed = step.disturbed,
        );
        if let Some(raised_ns) = step.raised_ns {
            let _ = writeln!(
                text,
                "host step {}: tenants from now on are admitted with {}, {} with what the host may add, since too many \
                 were longer; `leasehold calibrate` measures it anew",
                step.row.row().title(),
                nanos(raised_ns),
                nanos(raised_ns.saturating_add(step.added_ns))
            );
        }
    }
    text
}

/// All rows that had steps, for programs.
pub(crate) fn json(seen: &[StepUse]) -> Value {
    let rows = seen.iter().map(|step| {
        json!({
            "row": step.row.row().title(),
            "steps": step.steps,
            "longest_ns": step.longest_ns,
            "limit_ns": step.limit_ns,
            "added_ns": step.added_ns,
            "exceeded": step.exceeded,
            "raised_ns": step.raised_ns,
            "disturbed": step.disturbed,
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::text;
    use leasehold_cell::steps::{RowId, StepUse};

    #[test]
    fn only_rows_that_were_exceeded_are_told_to_people() {
        let row = RowId::find("engine", "store drop").expect("a row");
        let step = StepUse {
            row,
            steps: 7,
            longest_ns: 90_000,
            limit_ns: 100_000,
            added_ns: 40_000,
            exceeded: 0,
            raised_ns: None,
            disturbed: 0,
        };
        assert_eq!(text(&[step]), "");
        let told = text(&[StepUse {
            exceeded: 2,
            ..step
        }]);
        assert!(
            told.contains("engine store drop: of 7, 2 were longer"),
            "{told}"
        );
    }

    #[test]
    fn a_raised_row_is_told_on_the_scale_of_the_limit_that_was_exceeded_too() {
        let told = text(&[StepUse {
            row: RowId::find("engine", "store drop").expect("a row"),
            steps: 7,
            longest_ns: 290_000,
            limit_ns: 222_300,
            added_ns: 172_200,
            exceeded: 2,
            raised_ns: Some(50_100),
            disturbed: 0,
        }]);
        let limit = "longer than 222.3 µs, with 172.2 µs that the host itself may add";
        assert!(told.contains(limit), "{told}");
        let raised = "admitted with 50.1 µs, 222.3 µs with what the host may add";
        assert!(told.contains(raised), "{told}");
    }
}
