//! A node whose every metric has a value.

#![allow(dead_code, reason = "each test program uses a part of it")]

use leasehold_front::{Connections, Counts, Distribution, SiteSnapshot};
use leasehold_node::metrics::{Ends, Observation, Reloads};
use leasehold_node::trace::Exports;
use leasehold_node::view::{End, Snapshot};
use serde_json::json;

/// The snapshot of a node with a tenant `shop`, which runs and answers requests, and one `batch`,
/// which has ended.
pub(crate) fn snapshot() -> Snapshot {
    let supply = json!({
        "used_ns": 2_500_000_000u64, "dispatches": 10, "replenishments": 9, "preemptions": 8,
        "depletions": 7, "misses": 6, "overrun_max_ns": 5_000
    });
    let shop = json!({
        "name": "shop", "desired": "running", "state": "blocked", "since": "2026-01-02T03:04:05Z",
        "component": "shop.wasm", "restarts": 3,
        "reclaim": {"budget_ns": 30_000_000, "charged_ns": 10_000_000},
        "cpu": {"budget_ns": 2_000_000, "period_ns": 10_000_000, "priority": 5, "policy": "sporadic", "utilization": 0.2},
        "processor": {"state": "blocked", "left_ns": 1_000_000, "supply": supply},
        "memory": {"reserve_bytes": 1024, "limit_bytes": 4096, "used_bytes": 3072},
        "http": {
            "routes": ["/*"], "listeners": ["main"], "concurrency": 4, "queue": 16, "waiting": 2,
            "active": 1, "outcomes": {}, "latency": {
                "count": 0, "sum_ns": 0, "p50_ns": 0, "p90_ns": 0, "p99_ns": 0, "max_ns": 0
            }
        },
        "outgoing": {"concurrency": 8, "active": 1, "outcomes": {"answered": 5}, "processor_ns": 1_000_000}
    });
    let batch = json!({
        "name": "batch", "desired": "stopped", "state": "ended", "since": "2026-01-02T03:04:05Z",
        "component": "batch.wasm", "restarts": 0, "reclaim": {"budget_ns": 5_000_000},
        "memory": {"reserve_bytes": 1024, "limit_bytes": 1024}
    });
    let step = json!({
        "row": "cell wake", "steps": 100, "longest_ns": 90_000, "limit_ns": 50_000,
        "exceeded": 2, "disturbed": 1
    });
    let snapshot = json!({
        "at": "2026-01-02T03:04:06Z",
        "node": {
            "version": "0.1.0", "started_at": "2026-01-02T03:04:05Z", "uptime_ns": 1_000_000_000,
            "order": "fixed-priority", "realtime": "granted", "own_core": 1, "confinement": "none",
            "schedulable": true, "utilization": 0.2, "listeners": []
        },
        "tenants": [shop, batch],
        "ends": [],
        "steps": [step],
        "costs": [{"class": "semaphore", "samples": 10, "exceeded": 1, "drifts": 1, "price": 1.5}],
        "control": [{"kind": "kill", "count": 2, "total_ns": 4_000, "longest_ns": 3_000}],
        "last_event": 12
    });
    serde_json::from_value(snapshot).expect("a snapshot")
}

/// An end of a tenant, which was predicted to cost 10 ms, and had a bound of 100 ms.
pub(crate) fn end(tenant: &str, measured_ns: u64, wall_ns: u64) -> End {
    let end = json!({
        "tenant": tenant, "at": "2026-01-02T03:04:06Z", "exit": {"kind": "killed"},
        "predicted_ns": 10_000_000, "measured_ns": measured_ns, "effect_ns": 1, "reusable_ns": 2,
        "wall_ns": wall_ns, "bound_ns": 100_000_000, "within_bound": wall_ns <= 100_000_000,
        "budget_ns": 20_000_000, "calls_under_way": 0
    });
    serde_json::from_value(end).expect("an end")
}

/// The site of `shop`, with as many requests of each outcome as its place says.
pub(crate) fn site(answered: Distribution) -> SiteSnapshot {
    SiteSnapshot {
        name: "shop".to_owned(),
        outcomes: Counts::new(|outcome| outcome as u64 + 1),
        answered,
        waiting: 2,
        active: 1,
        received_bytes: 1000,
        sent_bytes: 2000,
        processor_ns: 3_000_000,
    }
}

/// All of it.
pub(crate) fn observation() -> Observation {
    let mut ends = Ends::default();
    ends.add(&end("batch", 5_000_000, 20_000_000));
    ends.add(&end("batch", 12_000_000, 130_000_000));
    Observation {
        snapshot: snapshot(),
        sites: vec![site(Distribution::default())],
        listeners: vec![(
            "main".to_owned(),
            Connections {
                admitted: 9,
                open: 4,
                refused_by_listener: 1,
                refused_by_source: 2,
                failed_handshakes: 3,
            },
        )],
        ends,
        reloads: Reloads {
            done: 3,
            refused: 1,
        },
        exports: Some(Exports {
            exported: 5,
            dropped: 1,
            failed: 2,
        }),
    }
}
