//! Prices follow what ends really cost.

mod common;

use common::{guest, lease, profile, start, try_start};
use leasehold_cell::profile::{Interruption, Profile};

use leasehold_cell::{Cell, CellConfig, CostClass, Ended, Rehearsal, RehearsedStart, Surroundings};
use std::sync::Arc;

/// A profile by which ends cost next to nothing.
fn far_too_cheap() -> Profile {
    let mut profile = profile();
    let costs = &mut profile.median_ps;
    costs.tenant = 1_000;
    costs
        .held
        .values_mut()
        .for_each(|ps| *ps = ps.div_ceil(1_000));
    profile.interruption = Some(Interruption::of(1_000, vec![0]));
    profile
}

/// Starts a tenant, and ends it.
fn end_one(cell: &Cell) -> Ended {
    let tenant = start(cell, "spin.wasm", &[], lease(50_000, 2 << 10));
    tenant.kill()
}

#[test]
fn new_leases_are_charged_more_when_ends_cost_more_than_was_charged() {
    let cell = Cell::start(CellConfig::new(far_too_cheap())).expect("a cell starts");
    let before = end_one(&cell);
    assert!(
        before.reclaimed.returned.cpu_ns > before.reclaimed.predicted_ns,
        "{before:?}"
    );
    for _ in 0..200 {
        end_one(&cell);
    }
    let after = end_one(&cell);
    assert!(
        after.reclaimed.predicted_ns >= 2 * before.reclaimed.predicted_ns,
        "{after:?}"
    );
    let statement_is_priced = |ended: &Ended| {
        let statement = &ended.statement;
        let (told, charged) = (
            statement.predicted().0 / 1_000,
            ended.reclaimed.predicted_ns,
        );
        // Nanoseconds are rounded up before they are priced.
        told.abs_diff(charged) <= charged / 10 && statement.budget.0 <= 50_000_000_000
    };
    assert!(statement_is_priced(&before) && statement_is_priced(&after));
    let costs = cell.costs();
    let of_ends = costs.iter().find(|costs| costs.class == CostClass::End);
    let of_ends = of_ends.expect("a class");
    assert_eq!(of_ends.samples, 202);
    assert!(of_ends.drifts > 0 && of_ends.exceeded > 0, "{of_ends:?}");
    assert!(of_ends.price.factor() > 2.0, "{of_ends:?}");
}

#[test]
fn a_lease_that_pays_no_more_at_the_new_price_is_refused() {
    let cell = Cell::start(CellConfig::new(far_too_cheap())).expect("a cell starts");
    let tight = end_one(&cell).reclaimed.predicted_ns.div_ceil(1_000) + 1;
    for _ in 0..200 {
        end_one(&cell);
    }
    let refused = try_start(&cell, "spin.wasm", lease(tight, 2 << 10));
    let error = refused.err().expect("refused").to_string();
    assert!(error.contains("reclaim.budget"), "{error}");
}

#[test]
fn a_rehearsal_at_the_present_prices_refuses_what_the_cell_does() {
    let cell = Cell::start(CellConfig::new(far_too_cheap())).expect("a cell starts");
    let rehearse = |budget_us| {
        let rehearsal = Rehearsal::new(far_too_cheap(), Arc::default());
        rehearsal
            .at(cell.prices().clone())
            .start(&RehearsedStart {
                program: &guest("spin.wasm"),
                lease: &lease(budget_us, 2 << 10),
                surroundings: &Surroundings::default(),
                has_store: false,
                is_handler: false,
                calls: 0,
                addresses: 0,
            })
            .map_err(|error| error.to_string())
    };
    let tight = end_one(&cell).reclaimed.predicted_ns.div_ceil(1_000) + 1;
    assert_eq!(rehearse(tight), Ok(()));
    for _ in 0..200 {
        end_one(&cell);
    }
    let raised = cell.prices().of(CostClass::End).factor();
    assert!(raised > 2.0, "{raised}");
    let refused = try_start(&cell, "spin.wasm", lease(tight, 2 << 10));
    let refused = refused.err().expect("refused").to_string();
    assert_eq!(rehearse(tight), Err(refused));
}

#[test]
fn no_price_follows_the_ends_of_children() {
    let cell = Cell::start(CellConfig::new(far_too_cheap())).expect("a cell starts");
    let tenant = start(
        &cell,
        "tenant-tree.wasm",
        &["3", "3", "exit"],
        lease(50_000, 8 << 10),
    );
    tenant.handle.wait().expect("ends");
    let samples: u64 = cell.costs().iter().map(|costs| costs.samples).sum();
    assert_eq!(samples, 1);
}

#[test]
fn prices_stay_where_charges_cover_what_ends_cost() {
    let mut dear = profile();
    dear.median_ps.tenant = 20_000_000_000;
    let cell = Cell::start(CellConfig::new(dear)).expect("a cell starts");
    for _ in 0..50 {
        end_one(&cell);
    }
    let costs = cell.costs();
    assert!(costs.iter().all(|costs| costs.drifts == 0), "{costs:?}");
}
