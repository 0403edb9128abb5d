//! The page of all studies: one HTML file that needs nothing else.

use std::fmt::Write;

use serde_json::Value;

use crate::harness::experiment::Outcome;
use crate::harness::host::Host;
use crate::harness::report::Report;

const STYLE: &str = include_str!("page.css");

/// Renders the page: facts of the host, then for every study its figure, table and findings, or
/// why it failed.
pub(crate) fn render(outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Leasehold: studies</title><style>{STYLE}</style></head><body>\n\
         <header><h1>Leasehold: studies</h1>\n"
    );
    page.push_str(&contents(outcomes));
    if let Some(report) = outcomes
        .iter()
        .find_map(|outcome| outcome.report.as_ref().ok())
    {
        page.push_str(&facts(&report.host));
    }
    page.push_str("</header>\n<main>\n");
    for outcome in outcomes {
        page.push_str(&match &outcome.report {
            Ok(report) => section(report),
            Err(error) => format!(
                "<section id=\"{0}\"><h2>{0}</h2><p class=\"fails\">failed: {1}</p></section>\n",
                outcome.study,
                escaped(&format!("{error:#}"))
            ),
        });
    }
    page.push_str("</main></body></html>\n");
    page
}

/// Links to the studies, each with its verdict.
fn contents(outcomes: &[Outcome]) -> String {
    let mut nav = String::from("<nav>");
    for outcome in outcomes {
        let holds = outcome.report.as_ref().is_ok_and(Report::holds);
        let class = if holds { "holds" } else { "fails" };
        nav.push_str(&format!(
            "<a class=\"{class}\" href=\"#{0}\">{0}</a>",
            outcome.study
        ));
    }
    nav + "</nav>\n"
}

fn facts(host: &Host) -> String {
    let mut list = String::from("<details><summary>");
    list.push_str(&escaped(&host.summary()));
    list.push_str("</summary><dl>");
    if let Ok(Value::Object(facts)) = serde_json::to_value(host) {
        for (name, value) in facts {
            let text = match value {
                Value::String(text) => text,
                Value::Null => "–".into(),
                other => other.to_string(),
            };
            let _ = write!(
                list,
                "<dt>{}</dt><dd>{}</dd>",
                name.replace('_', " "),
                escaped(&text)
            );
        }
    }
    list + "</dl></details>\n"
}

fn section(report: &Report) -> String {
    let mut html = format!(
        "<section id=\"{0}\"><h2>{0} <small>{1}</small></h2><p>{2}</p>\n",
        report.study,
        escaped(report.paper),
        escaped(report.about)
    );
    if !report.findings.is_empty() {
        html.push_str("<ul class=\"findings\">");
        for finding in &report.findings {
            let class = if finding.holds() { "holds" } else { "fails" };
            html.push_str(&format!(
                "<li class=\"{class}\">{}</li>",
                escaped(&finding.to_string())
            ));
        }
        html.push_str("</ul>\n");
    }
    // A figure that cannot be drawn has already failed the study that it belongs to.
    if let Ok(svg) = report.figure.to_svg() {
        html.push_str(&format!("<figure>{svg}</figure>\n"));
    }
    html.push_str(&table(report));
    for note in &report.notes {
        html.push_str(&format!("<p class=\"note\">{}</p>\n", escaped(note)));
    }
    html + "</section>\n"
}

fn table(report: &Report) -> String {
    let numeric = report.numeric_columns();
    let class = |column: usize| {
        if numeric[column] {
            " class=\"number\""
        } else {
            ""
        }
    };
    let mut html = String::from("<div class=\"table\"><table><thead><tr>");
    for (column, heading) in report.headings().iter().enumerate() {
        html.push_str(&format!("<th{}>{}</th>", class(column), escaped(heading)));
    }
    html.push_str("</tr></thead><tbody>\n");
    for cells in report.cells() {
        html.push_str("<tr>");
        // A row longer than the first would have cells without a heading.
        for (column, cell) in cells.iter().enumerate().take(numeric.len()) {
            html.push_str(&format!("<td{}>{}</td>", class(column), escaped(cell)));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>\n"
}

/// Text that is safe between tags and in quoted attributes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
