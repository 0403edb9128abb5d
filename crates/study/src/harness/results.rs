//! Results as documents: a page for each host, made from the studies' JSON.
//!
//! A page is a function of the files alone, so that it can be generated at any time and on any
//! machine. It states the date, commit, form and host of each measurement, every finding with its
//! bound, and the keys of the rows unchanged.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::harness::unit::Unit;

/// Most rows of a study that a page shows; a study with more has them in its JSON file.
const ROWS: usize = 24;

/// Writes the pages of all hosts whose results lie in `from` into `into`, and returns their paths. Results are those of
/// the `studies`, in this order; one that was not run is left out.
///
/// # Errors
/// If there is no result, a result is not the JSON of a study, or a page cannot be written.
pub fn write(studies: &[&str], from: &Path, into: &Path) -> Result<Vec<PathBuf>> {
    let mut reports = Vec::new();
    for study in studies {
        let path = from.join(study).with_extension("json");
        if !path.exists() {
            continue;
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let report: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is not JSON", path.display()))?;
        if report["study"] != **study || !report["host"].is_object() {
            bail!("{} is not the result of the study {study}", path.display());
        }
        reports.push(report);
    }
    if reports.is_empty() {
        bail!("no results in {}: run a study first", from.display());
    }
    fs::create_dir_all(into).with_context(|| format!("creating {}", into.display()))?;
    pages(&reports)
        .into_iter()
        .map(|(name, page)| {
            let path = into.join(name).with_extension("md");
            fs::write(&path, page).with_context(|| format!("writing {}", path.display()))?;
            Ok(path)
        })
        .collect()
}

/// Renders the page of each host that `reports` were measured on, by the host's name.
pub fn pages(reports: &[Value]) -> BTreeMap<String, String> {
    let mut hosts: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for report in reports {
        hosts
            .entry(host_name(&report["host"]))
            .or_default()
            .push(report);
    }
    hosts
        .into_iter()
        .map(|(name, reports)| (name, page(&reports)))
        .collect()
}

/// The name of a host as a file has it: `amd-epyc-2-cores-virtual`.
fn host_name(host: &Value) -> String {
    let cpu = host["cpu"].as_str().unwrap_or("unknown").to_lowercase();
    let model: String = ["(r)", "(tm)", "processor", "cpu"]
        .iter()
        .fold(cpu, |name, part| name.replace(part, " "))
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' })
        .collect();
    let mut parts: Vec<String> = model.split_whitespace().map(str::to_owned).collect();
    parts.push(format!("{}-cores", host["cores"].as_u64().unwrap_or(0)));
    if host["virtual_machine"] == true {
        parts.push("virtual".to_owned());
    }
    parts.join("-")
}

fn page(reports: &[&Value]) -> String {
    let host = &reports[0]["host"];
    let mut page = format!(
        "# Results: {}, {} cores{}\n\n",
        text(&host["cpu"]),
        text(&host["cores"]),
        if host["virtual_machine"] == true {
            ", virtual"
        } else {
            ""
        },
    );
    page.push_str("Written by `leasehold study results` from the JSON of the studies; do not edit.\n\n| | |\n|---|---|\n");
    for (name, value) in host.as_object().into_iter().flatten() {
        let value = match (name.as_str(), value.as_f64()) {
            ("memory_bytes", Some(bytes)) => Unit::Bytes.humane(bytes),
            _ => text(value),
        };
        line(&mut page, &[name, &value]);
    }
    page.push_str("\n## Findings\n\n| study | finding | bound | measured |\n|---|---|---|---|\n");
    for report in reports {
        for finding in list(&report["findings"]) {
            findings_row(&mut page, &report["study"], finding);
        }
    }
    for report in reports {
        section(&mut page, report);
    }
    page
}

fn findings_row(page: &mut String, study: &Value, finding: &Value) {
    let unit = Unit::of_name(finding["unit"].as_str().unwrap_or_default());
    let humane = |value: &Value| {
        value
            .as_f64()
            .map_or_else(|| "not measured".to_owned(), |number| unit.humane(number))
    };
    let bound = match finding["at_most"].is_number() {
        true => format!("≤ {}", humane(&finding["at_most"])),
        false => format!("≥ {}", humane(&finding["at_least"])),
    };
    let missed = match finding["holds"] == true {
        true => "",
        false => " (**missed**)",
    };
    let measured = humane(&finding["value"]) + missed;
    line(
        page,
        &[
            &format!("`{}`", text(study)),
            &text(&finding["claim"]),
            &bound,
            &measured,
        ],
    );
}

fn section(page: &mut String, report: &Value) {
    let measured = &report["measured"];
    let form = match measured["quick"].as_bool() {
        Some(true) => "quick",
        Some(false) => "full",
        None => "unknown",
    };
    let _ = write!(
        page,
        "\n## `{}`\n\n{} ({})\n\n| date | commit | form | kernel |\n|---|---|---|---|\n",
        text(&report["study"]),
        text(&report["about"]),
        text(&report["paper"]),
    );
    let kernel = text(&report["host"]["kernel"]);
    let kernel = kernel.split(" #").next().unwrap_or_default();
    line(
        page,
        &[
            &text(&measured["date"]),
            &text(&measured["commit"]),
            form,
            kernel,
        ],
    );
    for note in list(&report["notes"]) {
        let _ = write!(page, "\n- {}", text(note));
    }
    if !list(&report["notes"]).is_empty() {
        page.push('\n');
    }
    let rows = list(&report["rows"]);
    let keys: Vec<&str> = rows
        .first()
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|row| row.keys().map(String::as_str))
        .collect();
    if keys.is_empty() {
        return;
    }
    let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    let _ = write!(
        page,
        "\nKeys of the {} rows: {}.\n",
        rows.len(),
        quoted.join(", ")
    );
    if rows.len() > ROWS {
        return;
    }
    page.push('\n');
    line(page, &keys);
    line(page, &vec!["---"; keys.len()]);
    for row in rows {
        let cells: Vec<String> = keys.iter().map(|key| cell(key, &row[*key])).collect();
        line(page, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// A measured value in the unit that its key names.
fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        _ => value
            .as_f64()
            .map_or_else(|| text(value), |number| Unit::of_key(key).humane(number)),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value as a person reads it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A row of a table; what would end a cell or a line is escaped.
fn line(page: &mut String, cells: &[&str]) {
    page.push('|');
    for cell in cells {
        let _ = write!(page, " {} |", cell.replace('|', "\\|").replace('\n', " "));
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::{ROWS, host_name, pages, write};
    use serde_json::{Value, json};
    use std::fs;
    use std::path::PathBuf;

    fn report(study: &str, cpu: &str, rows: usize) -> Value {
        json!({
            "study": study,
            "paper": "BRR fig. 8",
            "about": "Reclamation of objects.",
            "measured": { "date": "2026-01-02", "commit": "0123abcd", "quick": false },
            "host": { "cpu": cpu, "cores": 2, "virtual_machine": true, "kernel": "Linux 6.18 #1 SMP", "memory_bytes": 1073741824 },
            "findings": [
                { "claim": "is flat", "unit": "ratio", "value": 1.04, "at_most": 1.1, "holds": true },
                { "claim": "is a|b", "unit": "nanoseconds", "value": null, "at_least": 1500.0, "holds": false },
            ],
            "notes": ["a note"],
            "rows": (0..rows).map(|n| json!({ "objects": n, "reclaim_ns_p50": 1500, "mode": null })).collect::<Vec<_>>(),
        })
    }

    /// A directory of this test's own among the temporary files.
    fn directory(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("leasehold-results-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    #[test]
    fn each_host_has_a_page_of_its_own_with_its_name() {
        let pages = pages(&[
            report("bulk", "AMD EPYC", 1),
            report("alloc", "Intel(R) Xeon(R) Processor", 1),
            report("alloc", "AMD EPYC", 1),
        ]);
        let names: Vec<&String> = pages.keys().collect();
        assert_eq!(
            names,
            ["amd-epyc-2-cores-virtual", "intel-xeon-2-cores-virtual"]
        );
        let epyc = &pages["amd-epyc-2-cores-virtual"];
        assert!(epyc.contains("# Results: AMD EPYC, 2 cores, virtual\n"));
        assert!(epyc.contains("## `bulk`") && epyc.contains("## `alloc`"));
        assert_eq!(host_name(&json!({})), "unknown-0-cores");
    }

    #[test]
    fn a_page_says_date_commit_form_bound_and_keys_and_what_was_missed() {
        let pages = pages(&[report("bulk", "AMD EPYC", 1)]);
        let page = &pages["amd-epyc-2-cores-virtual"];
        for part in [
            "| `bulk` | is flat | ≤ 1.10× | 1.04× |\n",
            "| `bulk` | is a\\|b | ≥ 1.50 µs | not measured (**missed**) |\n",
            "| 2026-01-02 | 0123abcd | full | Linux 6.18 |\n",
            "| memory_bytes | 1.00 GiB |\n",
            "Keys of the 1 rows: `objects`, `reclaim_ns_p50`, `mode`.\n",
            "| 0 | 1.50 µs | – |\n",
            "\n- a note\n",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
    }

    #[test]
    fn results_without_date_and_many_rows_are_said_to_be_so() {
        let mut old = report("bulk", "AMD EPYC", ROWS + 1);
        let _ = old.as_object_mut().expect("object").remove("measured");
        let pages = pages(&[old]);
        let page = &pages["amd-epyc-2-cores-virtual"];
        assert!(page.contains("| unknown | unknown | unknown | Linux 6.18 |\n"));
        assert!(page.contains(&format!("Keys of the {} rows", ROWS + 1)));
        assert!(!page.contains("1.50 µs | – |"));
    }

    #[test]
    fn results_are_read_in_the_order_of_the_studies_and_those_of_none_are_an_error() {
        let (from, into) = (directory("from"), directory("into"));
        let studies = ["alloc", "bulk", "never-run"];
        assert!(write(&studies, &from, &into).is_err());
        for study in ["bulk", "alloc"] {
            let text = report(study, "AMD EPYC", 1).to_string();
            fs::write(from.join(study).with_extension("json"), text).expect("written");
        }
        let written = write(&studies, &from, &into).expect("two results");
        assert_eq!(written, [into.join("amd-epyc-2-cores-virtual.md")]);
        let page = fs::read_to_string(&written[0]).expect("a page");
        assert!(page.find("## `alloc`") < page.find("## `bulk`"));

        fs::write(from.join("bulk.json"), "{}").expect("written");
        let error = write(&studies, &from, &into).expect_err("not a result");
        assert!(error.to_string().contains("bulk.json"), "{error}");
        for path in [from, into] {
            fs::remove_dir_all(path).expect("removed");
        }
    }
}
