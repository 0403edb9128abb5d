//! A report as one HTML file that needs no other: tables, and the picture within.

use std::fmt::{Display, Write};

use leasehold_lockscope::{Kind, Mode, Report, Score, StackedBars, Total};

use crate::command::render::{
    REPLAYS, cheapest, held, losses, none, rate, replay_row, share, time,
};

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;\
color:#22262b;background:#fff}\
table{border-collapse:collapse;margin:1rem 0}\
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #dde1e6}\
th:first-child,td:first-child{text-align:left}th{color:#59616b;font-weight:600}\
svg{max-width:100%;height:auto}.note{color:#59616b}";

/// Rows of the table of objects.
const OBJECTS: usize = 100;

/// The page on `reports`, each with its score.
pub(crate) fn page(reports: &[(Report, Score)], bars: &StackedBars) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>LockScope</title><style>{STYLE}</style></head><body>\n<h1>LockScope</h1>\n"
    );
    out.push_str(&bars.to_svg());
    for (report, score) in reports {
        section(&mut out, report, score);
    }
    out.push_str("</body></html>\n");
    out
}

fn section(out: &mut String, report: &Report, score: &Score) {
    let _ = writeln!(
        out,
        "<h2>{} on {}</h2>",
        Escaped(&report.name),
        Escaped(&report.platform)
    );
    let mode = match report.mode {
        Mode::Full => "every acquisition",
        Mode::Contended => "acquisitions that waited, and every mmap_lock",
    };
    let nines = match (score.measured, score.upper_bound) {
        (false, _) => "not measured".into(),
        (true, true) => format!("at most {:.2}", score.score),
        (true, false) => format!("{:.2}", score.score),
    };
    let _ = writeln!(
        out,
        "<p>Linux {}; {mode}; {:.1} s. Nines of isolation: <b>{nines}</b>.</p>",
        Escaped(&report.kernel),
        report.seconds
    );
    head(
        out,
        &[
            "",
            "locks",
            "per s",
            "contended/s",
            "held",
            "waited",
            "longest hold",
            "longest wait",
        ],
    );
    total(out, "shared", &report.shared);
    for (kind, of_kind) in &report.kinds {
        total(out, name_of(*kind), of_kind);
    }
    for workload in &report.workloads {
        total(
            out,
            &format!("private to {}", workload.name),
            &workload.private,
        );
    }
    out.push_str("</table>\n<ul>\n");
    for workload in &report.workloads {
        let _ = writeln!(
            out,
            "<li>{}: {} of the time waited for shared locks: <code>{}</code></li>",
            Escaped(&workload.name),
            share(workload.waiting),
            Escaped(&workload.what)
        );
    }
    out.push_str("</ul>\n<h3>Shared locks</h3>\n");
    head(
        out,
        &[
            "object",
            "class",
            "subsystem",
            "locks",
            "per s",
            "contended/s",
            "held",
            "what separates",
        ],
    );
    let shared = report.objects.iter().filter(|row| row.shared.locks > 0);
    for row in shared.take(OBJECTS) {
        cells(
            out,
            &[
                row.object.clone(),
                row.class.to_string(),
                row.subsystem.clone(),
                row.shared.locks.to_string(),
                rate(row.shared.per_second),
                rate(row.shared.contended_per_second),
                held(&row.shared),
                row.separation.to_string(),
            ],
        );
    }
    out.push_str("</table>\n");
    replays(out, report);
    let mapped = report.mapped.acquisitions.map_or_else(none, share);
    let _ = writeln!(
        out,
        "<p class=\"note\">Mapped to an object and field: {mapped} of acquisitions. {}</p>",
        Escaped(losses(&report.losses))
    );
}

fn replays(out: &mut String, report: &Report) {
    if report.replays.is_empty() {
        return;
    }
    out.push_str("<h3>What would separate them</h3>\n");
    head(out, &REPLAYS);
    for replay in &report.replays {
        cells(out, &replay_row(replay));
    }
    let _ = writeln!(
        out,
        "</table>\n<p>{}</p>",
        Escaped(cheapest(report.cheapest))
    );
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Global => "global",
        Kind::Object => "shared object",
        Kind::Incidental => "incidental",
    }
}

fn total(out: &mut String, name: &str, of: &Total) {
    cells(
        out,
        &[
            name.to_owned(),
            of.locks.to_string(),
            rate(of.per_second),
            rate(of.contended_per_second),
            held(of),
            share(of.waited),
            time(of.hold_max_ns),
            time(of.wait_max_ns),
        ],
    );
}

fn head(out: &mut String, names: &[&str]) {
    out.push_str("<table><tr>");
    for name in names {
        let _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("</tr>\n");
}

fn cells(out: &mut String, values: &[String]) {
    out.push_str("<tr>");
    for value in values {
        let _ = write!(out, "<td>{}</td>", Escaped(value));
    }
    out.push_str("</tr>\n");
}

/// Text as HTML has it.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for letter in self.0.to_string().chars() {
            match letter {
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '&' => out.write_str("&amp;")?,
                '"' => out.write_str("&quot;")?,
                letter => out.write_char(letter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_lockscope::Trace;

    #[test]
    fn a_page_needs_no_other_file_and_runs_nothing_that_a_trace_says() {
        let trace = Trace {
            name: "<script>alert(1)</script>".into(),
            ..Trace::default()
        };
        let bars = StackedBars::default();
        let page = page(&[(Report::of(&trace), Score::of(&trace))], &bars);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
        assert!(page.contains("<svg") && page.contains("not measured"));
        for outside in ["src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
