//! The report of a study: rows, findings and a figure, as text and as JSON.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value, json};

use crate::harness::host::Host;
use crate::harness::plot::Figure;
use crate::harness::provenance::Provenance;
use crate::harness::unit::Unit;

/// One measured point. Keys carry their units (`exit_ns_p50`, see [`Unit::of_key`]) and keep the
/// order in which they were put in; a value that could not be measured is `null`.
pub type Row = Map<String, Value>;

/// Makes a row of its cells.
pub fn row<const N: usize>(cells: [(&str, Value); N]) -> Row {
    cells
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// The limit that a finding is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The value must not exceed this.
    AtMost(f64),
    /// The value must reach this.
    AtLeast(f64),
}

/// Something that a study must show, with the number that shows it or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The claim, without the numbers.
    pub claim: String,
    /// The limit.
    pub bound: Bound,
    /// The measured value; not a number if it could not be measured, and then the claim does not
    /// hold.
    pub value: f64,
    /// Unit of both.
    pub unit: Unit,
}

impl Finding {
    /// Claims that `value` is at most `bound`.
    pub fn at_most(claim: impl Into<String>, unit: Unit, value: Option<f64>, bound: f64) -> Self {
        let value = value.unwrap_or(f64::NAN);
        Self {
            claim: claim.into(),
            bound: Bound::AtMost(bound),
            value,
            unit,
        }
    }

    /// Claims that `value` is at least `bound`.
    pub fn at_least(claim: impl Into<String>, unit: Unit, value: Option<f64>, bound: f64) -> Self {
        let value = value.unwrap_or(f64::NAN);
        Self {
            claim: claim.into(),
            bound: Bound::AtLeast(bound),
            value,
            unit,
        }
    }

    /// The finding for programs: the bound is `at_most` or `at_least`; a value that could not be measured is `null`.
    pub fn to_json(&self) -> Value {
        let mut finding = row([
            ("claim", self.claim.as_str().into()),
            ("unit", self.unit.name().into()),
            ("value", self.value.into()),
        ]);
        let (key, bound) = match self.bound {
            Bound::AtMost(bound) => ("at_most", bound),
            Bound::AtLeast(bound) => ("at_least", bound),
        };
        finding.insert(key.to_owned(), bound.into());
        finding.insert("holds".to_owned(), self.holds().into());
        finding.into()
    }

    /// Whether the measured value keeps the bound.
    pub fn holds(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.value <= bound,
            Bound::AtLeast(bound) => self.value >= bound,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.holds() { '✓' } else { '✗' };
        write!(f, "{mark} {}: ", self.claim)?;
        if self.value.is_nan() {
            f.write_str("not measured")?;
        } else {
            f.write_str(&self.unit.humane(self.value))?;
        }
        match self.bound {
            Bound::AtMost(bound) => write!(f, " (at most {})", self.unit.humane(bound)),
            Bound::AtLeast(bound) => write!(f, " (at least {})", self.unit.humane(bound)),
        }
    }
}

/// The results of one run of a study.
#[derive(Debug, Clone)]
pub struct Report {
    /// Name of the study, as on the command line.
    pub study: &'static str,
    /// The figure, table or section of a paper that it reproduces.
    pub paper: &'static str,
    /// The purpose of the study, in a sentence.
    pub about: &'static str,
    /// When it was measured, and of which tree.
    pub measured: Provenance,
    /// The machine.
    pub host: Host,
    /// The calibration profile that was in force; empty for a study that uses none.
    pub profile: Map<String, Value>,
    /// The points, all with the same keys.
    pub rows: Vec<Row>,
    /// The claims that they must meet.
    pub findings: Vec<Finding>,
    /// Notes that a reader needs to judge the numbers: limits of this run, cache history.
    pub notes: Vec<String>,
    /// The picture.
    pub figure: Figure,
}

impl Report {
    /// Whether every finding holds.
    pub fn holds(&self) -> bool {
        self.findings.iter().all(Finding::holds)
    }

    /// The envelope for programs, nothing scaled: all that [`results`](crate::harness::results) need.
    pub fn to_json(&self) -> Value {
        let findings: Vec<Value> = self.findings.iter().map(Finding::to_json).collect();
        json!({
            "study": self.study,
            "paper": self.paper,
            "about": self.about,
            "measured": self.measured,
            "host": self.host,
            "profile": self.profile,
            "findings": findings,
            "notes": self.notes,
            "rows": self.rows,
        })
    }

    /// The report for people: an aligned table in humane units, then what it must show.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} · {}\n{}\n", self.study, self.paper, self.about);
        text.push_str(&format!("{}\n\n{}\n", self.host.summary(), self.table()));
        if !self.findings.is_empty() {
            text.push_str("\nmust show\n");
        }
        for finding in &self.findings {
            text.push_str(&format!("  {finding}\n"));
        }
        for note in &self.notes {
            text.push_str(&format!("  note: {note}\n"));
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(self.headings());
        for cells in self.cells() {
            table.add_row(cells);
        }
        for (index, key) in self.keys().enumerate() {
            if self.is_numeric(key)
                && let Some(column) = table.column_mut(index)
            {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    /// The keys of the first row, and so of every row.
    fn keys(&self) -> impl Iterator<Item = &str> {
        self.rows
            .first()
            .into_iter()
            .flat_map(|row| row.keys().map(String::as_str))
    }

    /// Column heads: the keys without `ns`, since the cells say their multiple.
    pub(crate) fn headings(&self) -> Vec<String> {
        self.keys()
            .map(|key| {
                key.split('_')
                    .filter(|part| *part != "ns")
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    /// Whether the column has a number anywhere, and is thus aligned to the right.
    pub(crate) fn is_numeric(&self, key: &str) -> bool {
        self.rows
            .iter()
            .any(|row| row.get(key).is_some_and(Value::is_number))
    }

    /// Which columns are numeric, in their order.
    pub(crate) fn numeric_columns(&self) -> Vec<bool> {
        self.keys().map(|key| self.is_numeric(key)).collect()
    }

    /// The rows' values in humane units.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Vec<String>> {
        self.rows.iter().map(|row| {
            let cell = |(key, value): (&String, &Value)| match value {
                Value::Null => "–".to_owned(),
                Value::String(text) => text.clone(),
                value => match value.as_f64() {
                    Some(number) => Unit::of_key(key).humane(number),
                    None => value.to_string(),
                },
            };
            row.iter().map(cell).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, Report, row};
    use crate::harness::experiment::{Options, Study};
    use crate::harness::unit::Unit;
    use serde_json::{Value, json};

    struct Example;

    impl Study for Example {
        fn name(&self) -> &'static str {
            "example"
        }
        fn paper(&self) -> &'static str {
            "BRR fig. 0"
        }
        fn about(&self) -> &'static str {
            "Nothing."
        }
        fn run(&self, options: &Options) -> anyhow::Result<Report> {
            let mut report = Report::new(self, options);
            for (objects, ns) in [(1u64, Some(69_312u64)), (1_000_000, None)] {
                report.rows.push(row([
                    ("objects", objects.into()),
                    ("mode", "grouped".into()),
                    ("reclaim_ns_p50", ns.into()),
                ]));
            }
            report
                .findings
                .push(Finding::at_most("is flat", Unit::Ratio, Some(1.04), 1.1));
            report
                .findings
                .push(Finding::at_least("is fast", Unit::Ratio, None, 1000.0));
            Ok(report)
        }
    }

    fn example() -> Report {
        Example
            .run(&Options::default())
            .expect("this study cannot fail")
    }

    #[test]
    fn json_has_the_envelope_unscaled_values_and_the_order_of_the_keys() {
        let json = example().to_json();
        let keys: Vec<&str> = json
            .as_object()
            .expect("object")
            .keys()
            .map(|k| &**k)
            .collect();
        let envelope = [
            "study", "paper", "about", "measured", "host", "profile", "findings", "notes", "rows",
        ];
        assert_eq!(keys, envelope);
        assert_eq!(
            json["findings"][0].to_string(),
            r#"{"claim":"is flat","unit":"ratio","value":1.04,"at_most":1.1,"holds":true}"#
        );
        assert_eq!(json["findings"][1]["value"], Value::Null);
        assert_eq!(json["study"], "example");
        assert_eq!(
            json["rows"][0].to_string(),
            r#"{"objects":1,"mode":"grouped","reclaim_ns_p50":69312}"#
        );
        assert_eq!(json["rows"][1]["reclaim_ns_p50"], Value::Null);
        assert_eq!(json["host"]["cores"], json!(example().host.cores));
    }

    #[test]
    fn text_scales_values_aligns_numbers_and_shows_each_bound_with_its_number() {
        let text = example().to_text();
        for part in ["objects", "reclaim p50", "69.3 µs", "1,000,000", " – "] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.contains("✓ is flat: 1.04× (at most 1.10×)"), "{text}");
        assert!(
            text.contains("✗ is fast: not measured (at least 1,000×)"),
            "{text}"
        );
    }

    #[test]
    fn a_report_holds_only_if_every_finding_does() {
        let mut report = example();
        assert!(!report.holds());
        report.findings.retain(|finding| !finding.value.is_nan());
        assert!(report.holds());
    }
}
