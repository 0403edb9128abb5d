//! The studies of tenants in a cell, run quickly: their rows, and what must hold on any machine
//! however busy it is. They need the guest programs (`guests/build`) and no processes of their own.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use leasehold_cell::calibrate::{Effort, calibrate};
use leasehold_study::{Options, find};
use serde_json::{Map, Value};

/// The results of a quick run, as a study leaves them for programs: of one whose folder `LEASEHOLD_TEST_STUDIES` names, or of
/// one here.
fn quick(name: &str) -> Results {
    let found = match std::env::var_os("LEASEHOLD_TEST_STUDIES") {
        Some(folder) => {
            let path = Path::new(&folder).join(name).with_extension("json");
            let text =
                std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            serde_json::from_slice(&text).expect("JSON")
        }
        None => run(name),
    };
    let rows = found["rows"].as_array().expect("rows").iter();
    let rows = rows.map(|row| row.as_object().expect("a row").clone());
    Results {
        study: name.to_owned(),
        rows: rows.collect(),
        findings: found["findings"].as_array().expect("findings").len(),
    }
}

struct Results {
    study: String,
    rows: Vec<Map<String, Value>>,
    findings: usize,
}

/// Runs a study under a profile of this machine, which the study has for itself: two cells that take turns on one core with
/// real-time priority measure each other.
fn run(name: &str) -> Value {
    static MACHINE: Mutex<()> = Mutex::new(());
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    static PROFILE: OnceLock<Map<String, Value>> = OnceLock::new();
    let profile = PROFILE.get_or_init(|| {
        let profile = calibrate(Effort::Quick, &mut |_| {}).expect("calibrated");
        match serde_json::to_value(profile) {
            Ok(Value::Object(profile)) => profile,
            other => panic!("{other:?}"),
        }
    });
    let options = Options {
        quick: true,
        guests_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests"),
        profile: profile.clone(),
        ..Options::default()
    };
    let study = find(name).expect("registered");
    study.run(&options).expect("the study runs").to_json()
}

fn number(row: &Map<String, Value>, key: &str) -> u64 {
    row[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} of {row:?}"))
}

#[test]
fn no_end_visits_more_than_was_charged() {
    let report = quick("deadline");
    let whole = &report.rows[0];
    assert_eq!(whole["guest"], "all");
    assert_eq!(number(whole, "kills"), 400);
    assert_eq!(number(whole, "enforced_violations"), 0);
    assert!(number(whole, "measured_ns_p50") <= number(whole, "measured_ns_max"));
    assert!(number(whole, "measured_ns_p50") < number(whole, "predicted_ns_p50"));
    // The guests' rows add up to that of all.
    for key in [
        "kills",
        "ended_first",
        "refused_starts",
        "calibrated_violations",
    ] {
        let sum: u64 = report.rows[1..].iter().map(|row| number(row, key)).sum();
        assert_eq!(sum, number(whole, key), "{key}");
    }
}

#[test]
fn a_tenant_finds_nothing_of_the_one_before() {
    let report = quick("freshness");
    let row = &report.rows[0];
    assert_eq!(number(row, "pairs"), 300);
    assert_eq!(number(row, "bytes_found"), 0);
    // More was written than a slot keeps resident, and looked at.
    assert!(number(row, "wrote_bytes_max") > 8 << 20);
    assert!(number(row, "looked_bytes_max") > 8 << 20);
}

#[test]
fn every_program_starts_in_every_mode() {
    let report = quick("startup");
    let modes = ["leased", "plain", "wasmtime"];
    assert_eq!(report.rows.len(), 3 * modes.len());
    for (row, mode) in report.rows.iter().zip(modes.iter().cycle()) {
        assert_eq!(row["mode"], *mode);
        assert!(number(row, "startup_ns_p5") <= number(row, "startup_ns_p50"));
        assert!(number(row, "startup_ns_p50") <= number(row, "startup_ns_p95"));
        assert!(number(row, "startup_ns_p5") > 0);
    }
    assert_eq!(report.findings, 6);
}

/// The rows of a study that a real cell gave.
fn of_the_cell(report: &Results) -> impl Iterator<Item = &Map<String, Value>> {
    let rows: Vec<_> = report
        .rows
        .iter()
        .filter(|row| row["platform"] == "cell")
        .collect();
    assert!(!rows.is_empty(), "{}", report.study);
    rows.into_iter()
}

#[test]
fn replenishments_of_attackers_interrupt_the_victim_of_an_eager_cell_only() {
    let report = quick("interference");
    for row in of_the_cell(&report) {
        let (attackers, ring) = (number(row, "n"), number(row, "s"));
        let interrupts = number(row, "timer_interrupts");
        match row["policy"].as_str() {
            Some("shielded") => assert_eq!(interrupts, 0, "{row:?}"),
            _ if attackers < 64 => {}
            _ => assert!(interrupts >= attackers * ring / 20, "{row:?}"),
        }
        assert!(number(row, "interference_ns_p50") > 0);
    }
}

#[test]
fn a_region_bounds_how_often_a_real_storm_preempts() {
    let report = quick("storm");
    let mut compared = 0;
    for row in of_the_cell(&report) {
        let (region, preemptions) = (number(row, "eta_ns"), number(row, "preemptions"));
        let charged = number(row, "charged_ns");
        if row["attack"] == "none" {
            // Without an attacker, only the query of the cell's numbers may preempt: once in a
            // period, or twice where a busy host delays the query.
            assert!(preemptions <= 2, "{row:?}");
        } else if row["policy"] == "shielded" && region > 0 {
            // A busy host may check late and so split a region.
            assert!(preemptions <= charged.div_ceil(region) + 1, "{row:?}");
        }
        match &row["throughput_ratio"] {
            // On a busy host a scene may have no two periods that can be compared.
            Value::Null => {}
            ratio => {
                assert!(ratio.as_f64().is_some_and(|ratio| ratio > 0.0), "{row:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 0, "no scene was compared with the undisturbed");
}
