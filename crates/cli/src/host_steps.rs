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
            "host step {row}: of {steps}, {exceeded} were longer than {limit} (longest {longest}), and \
             {disturbed} perhaps only since the host took the processor",
            row = step.row.row().title(),
            steps = step.steps,
            exceeded = step.exceeded,
            limit = nanos(step.limit_ns),
            longest = nanos(step.longest_ns),
            disturbed = step.disturbed,
        );
        if let Some(raised_ns) = step.raised_ns {
            let _ = writeln!(
                text,
                "host step {}: tenants from now on are admitted with {}, since too many were longer; \
                 `leasehold calibrate` measures it anew",
                step.row.row().title(),
                nanos(raised_ns)
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
}
