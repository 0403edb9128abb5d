//! `leasehold attack --known`: each attack that once got through breaks nothing that is counted.

use serde_json::Value;
use std::process::Command;

fn known(names: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["attack", "--json", "--known"])
        .args(names)
        .output()
        .expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn no_known_attack_breaks_a_promise_that_is_counted() {
    let (code, output, errors) = known(&[]);
    // A busy host makes times longer.
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {errors}{output}");
    let rows: Vec<Value> = serde_json::from_str(&output).expect("JSON");
    assert_eq!(rows.len(), leasehold_attack::KNOWN.len());
    for (known, row) in leasehold_attack::KNOWN.iter().zip(rows) {
        let seen = &row["observation"];
        assert!(seen["refused"].is_null(), "{row}");
        assert!(seen["wakes"].as_u64() > Some(10), "the victim ran: {row}");
        let exit = seen["exit"].as_str().expect("text");
        assert!(exit.starts_with(known.ends), "it did what it is for: {row}");
    }
}

#[test]
fn an_attack_that_is_not_known_is_named_with_those_that_are() {
    let (code, _, errors) = known(&["nothing"]);
    assert_eq!(code, Some(66));
    assert!(
        errors.contains("\"nothing\"") && errors.contains("long-path"),
        "{errors}"
    );
}
