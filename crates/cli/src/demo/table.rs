//! The table of the demonstration: every guest's end in both runtimes.

use super::Shown;
use super::deadline::{Deadlines, Verdict};
use super::headline::time;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_study::rogue::{Attack, Ending, Runtime};
use leasehold_study::samples::Samples;
use leasehold_study::unit::Unit;
use std::time::Duration;

/// The line of one guest.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Line {
    guest: &'static str,
    /// How often it was killed in a cell, and how often it ran there.
    killed: (usize, usize),
    objects: Option<u64>,
    /// Medians of the wall times of the ends, ns; `None` in a runtime that has no such guest.
    wasmtime_ns: Option<u64>,
    leasehold_ns: Option<u64>,
    /// The most processor time that an end took in a cell, what was predicted for it, and the budget, ns.
    cpu_ns: Option<u64>,
    predicted_ns: Option<u64>,
    budget_ns: u64,
    /// The longest wall time of an end, ns.
    deadline_ns: Option<u64>,
    /// The outcome of budget and deadline, at the worst of its ends.
    verdict: Verdict,
    /// Whether all ends took no more of the processor than was predicted for them.
    is_predicted: bool,
    /// The neighbour's 99th percentile during the ends over that before.
    leasehold_p99: Option<f64>,
    wasmtime_p99: Option<f64>,
}

impl Line {
    pub(super) fn of(guest: &Attack, shown: &[Shown], deadlines: &Deadlines) -> Self {
        let endings = |runtime: Runtime| {
            let shown = shown.iter().filter(move |shown| shown.runtime == runtime);
            shown.flat_map(|shown| shown.endings(guest.name))
        };
        let p99 = |runtime| {
            let (mut during, mut before) = (Samples::new(), Samples::new());
            for ending in endings(runtime) {
                during.add(&ending.during);
                before.add(&ending.before);
            }
            during.ratio_to(&before, 0.99)
        };
        let end_ns =
            |runtime| -> Samples { endings(runtime).map(|e| e.guest_end.end_ns).collect() };
        let here = || endings(Runtime::Leasehold);
        let costs = || here().filter_map(|ending| ending.guest_end.reclaimed);
        let objects: Samples = here()
            .filter_map(|ending| ending.guest_end.objects())
            .collect();
        let predicted: Samples = here().filter_map(|e| e.guest_end.predicted_ns()).collect();
        let is_predicted = |ending: &Ending| {
            let cost = ending.guest_end.reclaimed.map(|cost| cost.returned.cpu_ns);
            cost <= ending.guest_end.predicted_ns()
        };
        Self {
            guest: guest.name,
            killed: (
                here().filter(|e| e.guest_end.killed).count(),
                here().count(),
            ),
            objects: objects.p50(),
            wasmtime_ns: end_ns(Runtime::Wasmtime).p50(),
            leasehold_ns: end_ns(Runtime::Leasehold).p50(),
            cpu_ns: costs().map(|cost| cost.returned.cpu_ns).max(),
            predicted_ns: predicted.p50(),
            budget_ns: u64::try_from(guest.budget.as_nanos()).unwrap_or(u64::MAX),
            deadline_ns: deadlines.within_ns(guest.budget),
            verdict: here()
                .map(|ending| deadlines.verdict(&ending.guest_end, guest.budget))
                .max()
                .unwrap_or(Verdict::Kept),
            is_predicted: here().all(is_predicted),
            leasehold_p99: p99(Runtime::Leasehold),
            wasmtime_p99: p99(Runtime::Wasmtime),
        }
    }

    /// Whether an end broke its budget, or broke its deadline by more than the host's
    /// interruptions.
    pub(super) fn is_broken(&self) -> bool {
        self.verdict == Verdict::Broken
    }

    /// Both ends if stock wasmtime's is shorter, by as much as can be seen in the table.
    fn stock_is_faster(&self) -> Option<(String, String)> {
        let (stock, leased) = (self.wasmtime_ns?, self.leasehold_ns?);
        let shown = (time(stock), time(leased));
        (stock < leased && shown.0 != shown.1).then_some(shown)
    }

    fn cells(&self) -> [String; 11] {
        let ns = |ns: Option<u64>| ns.map_or_else(|| "–".to_owned(), time);
        let ratio =
            |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |r| format!("{r:.2}×"));
        let (killed, all) = self.killed;
        [
            self.guest.to_owned(),
            format!("{killed}/{all}"),
            self.objects
                .map_or_else(|| "–".to_owned(), |n| Unit::Count.humane(n as f64)),
            ns(self.wasmtime_ns),
            ns(self.leasehold_ns),
            ns(self.deadline_ns),
            ns(self.cpu_ns),
            ns(Some(self.budget_ns)),
            match self.verdict {
                Verdict::Kept => "yes",
                Verdict::HostTook => "host late",
                Verdict::Broken => "NO",
            }
            .to_owned(),
            ratio(self.leasehold_p99),
            ratio(self.wasmtime_p99),
        ]
    }
}

/// The table.
pub(super) fn table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "guest",
        "killed",
        "objects",
        "end\n(wasmtime)",
        "end",
        "deadline",
        "processor",
        "budget",
        "deadline\nkept",
        "neighbour\np99",
        "neighbour\n(wasmtime)",
    ]);
    for line in lines {
        table.add_row(line.cells());
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Explains the columns.
pub(super) const LEGEND: &str = "\
killed: in mid-flight, of how often it ran; the others had ended by themselves, just before.
end: from the kill until everything was returned, in turns with the other guests; median.
processor, budget: the most that an end took of the processor, and what the lease allows: a rehearsal's
prediction and a half more, rounded up. deadline: what that budget takes at most on the wall's clock, for
one kill at a time. neighbour: the p99 of `mandelbrot`'s pictures during the ends, over just before.";

/// Where stock wasmtime is faster, and why; one line for each such guest.
pub(super) fn where_stock_is_faster(lines: &[Line]) -> Vec<String> {
    let faster = lines.iter().filter_map(|line| {
        let (stock, leased) = line.stock_is_faster()?;
        Some(format!(
            "wasmtime is faster for `{}`, {stock} against {leased}: {}",
            line.guest,
            why(line)
        ))
    });
    faster.collect()
}

/// Why an end takes longer in a cell.
fn why(line: &Line) -> String {
    if line.guest == "tenants" {
        return "what it has there is entries of a table; here each is a tenant with an account of its own."
            .to_owned();
    }
    let cpu_ns = line.cpu_ns.unwrap_or(0);
    let cpu = time(cpu_ns);
    if cpu_ns.saturating_mul(2) < line.leasehold_ns.unwrap_or(0) {
        return format!(
            "the end takes turns with the guests that compute, so that they do not wait for it; it took at \
             most {cpu} of the processor."
        );
    }
    format!(
        "it took up to {cpu} of the processor, in short steps between which others can run; wasmtime unmaps \
         all of it at once."
    )
}

/// Names the guests of which an end took more of the processor than was predicted, if there are any.
pub(super) fn longer_than_predicted(lines: &[Line]) -> Option<String> {
    let late: Vec<&str> = lines
        .iter()
        .filter(|line| !line.is_predicted)
        .map(|line| line.guest)
        .collect();
    (!late.is_empty()).then(|| {
        format!(
            "longer than predicted: {}. A prediction is calibrated, not enforced: `leasehold calibrate \
             --check` tells whether the profile still holds.",
            late.join(", ")
        )
    })
}

/// Says which guests' ends broke their budget or deadline, if any did.
pub(super) fn broken(lines: &[Line]) -> Option<String> {
    let broken = lines.iter().filter(|line| line.is_broken());
    let broken: Vec<&str> = broken.map(|line| line.guest).collect();
    (!broken.is_empty()).then(|| format!("deadline broken: {}.", broken.join(", ")))
}

/// The budget for a guest that was predicted to need so much at its end: a half more, for a growing
/// block is charged for a while together with the old one, and rounded up to one digit and a half
/// (1, 1.5, 2, 3, … 9, 10).
pub(super) fn binding(predicted_ns: u64) -> Duration {
    let least = predicted_ns.saturating_add(predicted_ns / 2).max(1);
    let power = 10u64.pow(least.ilog10());
    let halves = [2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20];
    let steps = halves.iter().map(|half| half * (power / 2).max(1));
    let budget = steps.into_iter().find(|step| *step >= least);
    Duration::from_nanos(budget.unwrap_or(least))
}

#[cfg(test)]
mod tests {
    use super::{
        Line, Verdict, binding, broken, longer_than_predicted, table, where_stock_is_faster,
    };
    use std::time::Duration;

    fn line(guest: &'static str) -> Line {
        Line {
            guest,
            killed: (3, 3),
            objects: Some(1_000_025),
            wasmtime_ns: Some(168_560_000),
            leasehold_ns: Some(66_130_000),
            cpu_ns: Some(8_560_000),
            predicted_ns: Some(31_600_000),
            budget_ns: 40_000_000,
            deadline_ns: Some(230_000_000),
            verdict: Verdict::Kept,
            is_predicted: true,
            leasehold_p99: Some(1.094),
            wasmtime_p99: None,
        }
    }

    #[test]
    fn a_row_has_both_ends_the_budget_and_whether_the_deadline_was_kept() {
        let cells = line("objects").cells();
        let expected = [
            "objects",
            "3/3",
            "1,000,025",
            "169 ms",
            "66 ms",
            "230 ms",
            "8.6 ms",
            "40 ms",
            "yes",
            "1.09×",
            "–",
        ];
        assert_eq!(cells, expected);
        let late = Line {
            verdict: Verdict::Broken,
            ..line("spin")
        };
        assert!(late.cells().contains(&"NO".to_owned()));
        let table = table(&[line("objects"), late.clone()]).to_string();
        assert!(
            table.lines().all(|line| line.chars().count() <= 125),
            "{table}"
        );
        assert_eq!(
            broken(&[line("objects"), late]).as_deref(),
            Some("deadline broken: spin.")
        );
        assert_eq!(broken(&[line("objects")]), None);
    }

    #[test]
    fn where_stock_is_faster_a_line_says_so_and_why() {
        let slower = Line {
            wasmtime_ns: Some(60_000_000),
            ..line("pages")
        };
        let tenants = Line {
            wasmtime_ns: Some(900_000),
            ..line("tenants")
        };
        let work = Line {
            wasmtime_ns: Some(60_000_000),
            cpu_ns: Some(64_000_000),
            ..line("table")
        };
        let without = Line {
            wasmtime_ns: None,
            ..line("waits")
        };
        let as_fast = Line {
            wasmtime_ns: Some(66_120_000),
            ..line("files")
        };
        let lines = [line("objects"), slower, tenants, work, without, as_fast];
        let said = where_stock_is_faster(&lines);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with(
            "wasmtime is faster for `pages`, 60 ms against 66 ms: the end takes turns"
        ));
        assert!(said[1].contains("900 µs against 66 ms: what it has there"));
        assert!(said[2].contains("it took up to 64 ms of the processor, in short steps"));
    }

    #[test]
    fn an_end_beyond_its_prediction_is_named() {
        let beyond = Line {
            is_predicted: false,
            ..line("jsonsort")
        };
        let said = longer_than_predicted(&[line("objects"), beyond]).expect("one is");
        assert!(said.starts_with("longer than predicted: jsonsort."));
        assert_eq!(longer_than_predicted(&[line("objects")]), None);
    }

    #[test]
    fn a_budget_binds_and_leaves_a_half() {
        for (predicted_us, budget_us) in [
            (1_000, 1_500),
            (2_010, 4_000),
            (1_250, 2_000),
            (31_600, 50_000),
            (6_000, 9_000),
            (6_001, 10_000),
            (250_950, 400_000),
        ] {
            let budget = binding(predicted_us * 1_000);
            assert_eq!(budget, Duration::from_micros(budget_us), "{predicted_us}");
        }
        for predicted_ns in [0, 1, 7, 9, 10, 99, 12_345, 999_999_999] {
            let budget = binding(predicted_ns).as_nanos();
            assert!(budget >= u128::from(predicted_ns) * 3 / 2, "{predicted_ns}");
            assert!(
                budget <= u128::from(predicted_ns).max(1) * 2,
                "{predicted_ns}"
            );
        }
    }
}
