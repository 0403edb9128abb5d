//! The study `rogue`: this test plays the program that starts it, and is started again as each
//! neighbour.

use std::path::Path;

use leasehold_cell::profile::Profile;
use leasehold_study::{Options, child, find};
use serde_json::Value;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(child::SUBCOMMAND) {
        if let Err(error) = child::main(arguments) {
            eprintln!("{error:#}");
            std::process::exit(1);
        }
        return;
    }
    missing_guests_are_named();
    println!("test missing_guests_are_named ... ok");
    every_guest_is_ended_in_both_runtimes();
    println!("test every_guest_is_ended_in_both_runtimes ... ok");
}

fn options(guests: &Path) -> Options {
    let Ok(Value::Object(profile)) = serde_json::to_value(Profile::free()) else {
        panic!("a profile is an object");
    };
    Options {
        quick: true,
        guests_dir: guests.to_owned(),
        profile,
        ..Options::default()
    }
}

fn missing_guests_are_named() {
    let empty = tempfile::tempdir().expect("a directory");
    let study = find("rogue").expect("known");
    let error = study.run(&options(empty.path())).expect_err("no guests");
    let message = format!("{error:#}");
    assert!(
        message.contains(".wasm is missing") && message.contains("make guests"),
        "{message}"
    );
}

fn every_guest_is_ended_in_both_runtimes() {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guests");
    let study = find("rogue").expect("known");
    let report = study.run(&options(&guests)).expect("measured");
    let of = |runtime: &str| -> Vec<_> {
        let rows = report.rows.iter().filter(|row| row["runtime"] == runtime);
        rows.collect()
    };
    let (leasehold, wasmtime) = (of("leasehold"), of("wasmtime"));
    assert_eq!(leasehold.len() + wasmtime.len(), report.rows.len());
    // With a neighbour that is a thread, and with the most distant one that this host allows.
    let (wasmtime, apart): (Vec<_>, Vec<_>) = wasmtime
        .into_iter()
        .partition(|row| row["neighbour"] == "thread");
    let furthest = &apart[0]["neighbour"];
    // With a neighbour in the cell's memory cgroup, unless it always is.
    let (leasehold, beside): (Vec<_>, Vec<_>) = leasehold
        .into_iter()
        .partition(|row| row["neighbour"] == *furthest);
    let guests = |rows: &[&leasehold_study::report::Row]| -> Vec<Value> {
        rows.iter().map(|row| row["guest"].clone()).collect()
    };
    assert!(beside.is_empty() || guests(&beside) == guests(&leasehold));
    let mut ours = guests(&leasehold);
    for alone in ["waits", "delegations"] {
        let place = ours.iter().position(|guest| guest == alone);
        ours.remove(place.expect("measured"));
    }
    assert_eq!(ours, guests(&wasmtime));
    assert_eq!(guests(&apart), guests(&wasmtime));
    for row in &report.rows {
        for key in ["end_ns_p50", "end_ns_max", "neighbour_max_ns"] {
            assert!(
                row[key].as_u64().is_some_and(|ns| ns > 0),
                "{key} of {row:?}"
            );
        }
        for key in ["neighbour_p50_ratio", "neighbour_p99_ratio"] {
            assert!(
                row[key].as_f64().is_some_and(|r| r > 0.0),
                "{key} of {row:?}"
            );
        }
        assert!(row["end_ns_p50"].as_u64() <= row["end_ns_max"].as_u64());
    }
    for row in &leasehold {
        // The median lies within the spread.
        let of = |key: &str| row[key].as_f64();
        assert!(of("neighbour_p99_ratio_p5") <= of("neighbour_p99_ratio"));
        assert!(of("neighbour_p99_ratio") <= of("neighbour_p99_ratio_p95"));
        // What can be used again is so before everything is returned.
        assert!(row["reusable_ns_p50"].as_u64() <= row["end_ns_max"].as_u64());
    }
    assert!(wasmtime.iter().all(|row| row["reusable_ns_p50"].is_null()));
}
