//! Reports as text for a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use leasehold_lockscope::{
    Agreement, Cell, Cheapest, Comparison, Losses, Mode, Pair, Replay, Report, Score, Spread, Total,
};

/// Rows of the table of objects.
const OBJECTS: usize = 30;

/// The report as text.
pub(crate) fn report_text(report: &Report) -> String {
    let mut out = String::new();
    let mode = match report.mode {
        Mode::Full => "every acquisition",
        Mode::Contended => "CONTENDED ONLY: acquisitions that waited, and every mmap_lock",
    };
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        "{} on {}, Linux {}",
        report.name, report.platform, report.kernel
    ));
    line(format!("{mode}; {:.1} s", report.seconds));
    let classes: Vec<_> = report.classes.iter().map(ToString::to_string).collect();
    line(format!("classes: {}", classes.join(", ")));
    line(String::new());

    let mut table = new_table(&[
        "",
        "locks",
        "per s",
        "contended/s",
        "held",
        "waited",
        "longest hold",
        "longest wait",
    ]);
    table.add_row(total_row("shared", &report.shared));
    for (kind, total) in &report.kinds {
        let name = match kind {
            leasehold_lockscope::Kind::Global => "  global",
            leasehold_lockscope::Kind::Object => "  shared object",
            leasehold_lockscope::Kind::Incidental => "  incidental",
        };
        table.add_row(total_row(name, total));
    }
    for workload in &report.workloads {
        table.add_row(total_row(
            &format!("private to {}", workload.name),
            &workload.private,
        ));
    }
    line(table.to_string());
    line(String::new());
    for workload in &report.workloads {
        line(format!(
            "{}: ran {:.1} s, {} locks, waited {} of the time for shared ones: {}",
            workload.name,
            workload.seconds,
            workload.taken.locks,
            share(workload.waiting),
            workload.what,
        ));
    }
    if report.successive > 0 {
        line(format!(
            "used by one workload after the other, and not counted as shared: {} addresses",
            report.successive
        ));
    }
    line(String::new());

    let mut table = new_table(&[
        "object",
        "class",
        "subsystem",
        "kind",
        "shared",
        "per s",
        "contended/s",
        "held",
        "private",
        "per s",
    ]);
    for row in report.objects.iter().take(OBJECTS) {
        let kind = match (row.shared.locks, row.kind) {
            (0, _) => "private".into(),
            (_, kind) => format!("{kind:?}").to_lowercase(),
        };
        table.add_row([
            row.object.clone(),
            row.class.to_string(),
            row.subsystem.clone(),
            kind,
            row.shared.locks.to_string(),
            rate(row.shared.per_second),
            rate(row.shared.contended_per_second),
            held(&row.shared),
            row.private.locks.to_string(),
            rate(row.private.per_second),
        ]);
    }
    line(table.to_string());
    if report.objects.len() > OBJECTS {
        line(format!(
            "and {} more; --json has all",
            report.objects.len() - OBJECTS
        ));
    }
    line(String::new());
    let mut table = new_table(&["subsystem", "shared locks", "per s", "contended/s"]);
    for (name, total) in &report.subsystems {
        table.add_row([
            name.clone(),
            total.locks.to_string(),
            rate(total.per_second),
            rate(total.contended_per_second),
        ]);
    }
    line(table.to_string());
    line(String::new());
    if !report.replays.is_empty() {
        let mut table = new_table(&REPLAYS);
        for replay in &report.replays {
            table.add_row(replay_row(replay));
        }
        line(table.to_string());
        line(cheapest(report.cheapest));
        line(String::new());
    }
    line(format!(
        "mapped to an object and field: {} of acquisitions, {} of call sites",
        report.mapped.acquisitions.map_or_else(none, share),
        report.mapped.sites.map_or_else(none, share)
    ));
    line(losses(&report.losses));
    out
}

/// The columns of a table of replays.
pub(crate) const REPLAYS: [&str; 5] = [
    "if each had",
    "locks no longer shared",
    "per s",
    "score",
    "with all cheaper",
];

/// What a separation would do.
pub(crate) fn replay_row(replay: &Replay) -> [String; 5] {
    [
        replay.separation.to_string(),
        replay.locks.to_string(),
        rate(replay.per_second),
        format!("{:.2}", replay.score),
        format!("{:.2}", replay.with_cheaper),
    ]
}

/// Which separation to take.
pub(crate) fn cheapest(cheapest: Option<Cheapest>) -> String {
    let name = match cheapest {
        None => "none of these".into(),
        Some(one) if one.with_cheaper => format!("{}, with everything cheaper", one.separation),
        Some(one) => one.separation.to_string(),
    };
    format!("cheapest that takes half of what they lose to each other away: {name}")
}

/// What was lost, in one line; also when that is nothing.
pub(crate) fn losses(losses: &Losses) -> String {
    format!(
        "lost: {} acquisitions, {} call chains, {} times, {} initialisations; \
         {} events came while the tracer itself ran",
        losses.acquisitions, losses.stacks, losses.times, losses.births, losses.skipped
    )
}

/// Table 5 as text.
pub(crate) fn comparison_table(comparison: &Comparison) -> String {
    let mut header = vec!["workload"];
    header.extend(comparison.platforms.iter().map(String::as_str));
    let mut table = new_table(&header);
    for (name, row) in &comparison.rows {
        let mut cells = vec![name.clone()];
        cells.extend(
            comparison
                .platforms
                .iter()
                .map(|platform| row.get(platform).map_or_else(String::new, comparison_cell)),
        );
        table.add_row(cells);
    }
    let mut out = format!("{table}\n");
    out.push_str(
        "shared locks, on average (acquisitions of them per second: median: least to most)  ",
    );
    out.push_str("nines of isolation, of the worst recording\n");
    for (name, row) in &comparison.rows {
        for (platform, cell) in row {
            let losses_of = &cell.losses;
            if *losses_of != Losses::default() {
                let _ = writeln!(out, "{name} on {platform}: {}", losses(losses_of));
            }
        }
    }
    if comparison.mixed_modes {
        out.push_str("warning: some traces are of the contended mode: numbers do not compare\n");
    }
    out
}

fn comparison_cell(cell: &Cell) -> String {
    let Spread {
        median,
        least,
        most,
    } = cell.spread;
    let apart = match cell.recordings {
        1 => String::new(),
        _ => format!(": {} to {}", rate(least), rate(most)),
    };
    format!(
        "{:.2} ({}{apart})  {}",
        cell.shared,
        rate(median),
        cell.score.map_or_else(none, |score| format!("{score:.1}")),
    )
}

/// Predicted beside measured, as text.
pub(crate) fn pair_table(pairs: &[Pair]) -> String {
    let mut table = new_table(&[
        "pair",
        "platform",
        "of",
        "predicted",
        "measured",
        "from",
        "to",
    ]);
    let longer = |share: f64| format!("{:+.1} %", 100.0 * share);
    for pair in pairs {
        table.add_row([
            pair.name.clone(),
            pair.platform.clone(),
            pair.of.clone(),
            longer(pair.predicted),
            longer(pair.measured),
            longer(pair.range.0),
            longer(pair.range.1),
        ]);
    }
    format!("{table}\n")
}

/// How well they agree, as a line.
pub(crate) fn agreement_line(name: &str, agreement: &Agreement) -> String {
    let number = |number: Option<f64>| number.map_or_else(none, |number| format!("{number:.2}"));
    format!(
        "{name}: {} directions of pairs, Kendall's tau {:.2}, of one half of the measurement with the other {}; \
         of {} combinations that it tells apart, tau {:.2}; above noise {}, of these tau {:.2}, median factor {}\n",
        agreement.pairs,
        agreement.tau,
        number(agreement.tau_again),
        agreement.apart,
        agreement.tau_apart,
        agreement.above_noise,
        agreement.tau_above_noise,
        number(agreement.median_factor),
    )
}

/// Scores as text, the most isolated first.
pub(crate) fn score_table(scores: &[Score]) -> String {
    let mut out = String::new();
    let mut table = new_table(&[
        "workload",
        "platform",
        "score",
        "waiting",
        "moving",
        "costs most",
    ]);
    for score in scores {
        let worst = score
            .exposures
            .iter()
            .max_by(|one, two| one.total().total_cmp(&two.total()));
        let bound = if score.upper_bound { "≤ " } else { "" };
        table.add_row([
            score.name.clone(),
            score.platform.clone(),
            match score.measured {
                true => format!("{bound}{:.2}", score.score),
                false => none(),
            },
            worst.map_or_else(String::new, |worst| share(worst.waiting)),
            worst.map_or_else(String::new, |worst| share(worst.moving)),
            score
                .worst
                .first()
                .map_or_else(String::new, |(name, _)| name.clone()),
        ]);
    }
    let _ = writeln!(out, "{table}");
    out.push_str(
        "score: nines of isolation; waiting, moving: share of its time that the worse off loses\n",
    );
    out
}

pub(crate) fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn total_row(name: &str, total: &Total) -> [String; 8] {
    [
        name.to_owned(),
        total.locks.to_string(),
        rate(total.per_second),
        rate(total.contended_per_second),
        held(total),
        share(total.waited),
        time(total.hold_max_ns),
        time(total.wait_max_ns),
    ]
}

/// Three digits that count.
pub(crate) fn rate(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 0.01 => format!("{value:.2}"),
        value => format!("{value:.0e}"),
    }
}

/// The share of time held: at least so much where only some holds were measured, and nothing where
/// none was.
pub(crate) fn held(total: &Total) -> String {
    match total.holds_per_second {
        0.0 => none(),
        measured if measured < total.per_second / 2.0 => format!("≥ {}", share(total.held)),
        _ => share(total.held),
    }
}

/// What was not measured.
pub(crate) fn none() -> String {
    "–".into()
}

pub(crate) fn share(value: f64) -> String {
    match value * 100.0 {
        0.0 => "0 %".into(),
        percent if percent >= 0.01 => format!("{percent:.2} %"),
        percent => format!("{percent:.0e} %"),
    }
}

pub(crate) fn time(ns: u64) -> String {
    match ns {
        0 => String::new(),
        ns if ns < 10_000 => format!("{ns} ns"),
        ns if ns < 10_000_000 => format!("{} µs", ns / 1_000),
        ns => format!("{} ms", ns / 1_000_000),
    }
}
