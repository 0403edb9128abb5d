//! The report of `leasehold run`: charges, predictions and measurements.

use crate::leases::EndBound;
use crate::on_host::OnHost;
use comfy_table::{CellAlignment, Table, presets};
use leasehold_cell::{Ended, Exit, Realtime};
use leasehold_lease::TenantSpec;
use serde_json::{Value, json};

/// Nanoseconds for people.
pub(crate) fn nanos(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

fn exit(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exited with {code}"),
        Exit::Trap(_) => "trapped".into(),
        Exit::Lease(_) => "out of lease".into(),
        Exit::Memory(_) => "memory failed".into(),
        Exit::Killed => "killed".into(),
    }
}

/// A report for people.
pub(crate) fn text(
    tenant: &TenantSpec,
    ended: &Ended,
    bound: &EndBound,
    host: &OnHost<'_>,
) -> String {
    let mut charges = Table::new();
    charges.load_style(presets::UTF8_HORIZONTAL_ONLY);
    charges.set_header(["charged for", "count", "reclamation"]);
    for row in &ended.statement.rows {
        charges.add_row([
            row.name.to_owned(),
            row.count.to_string(),
            nanos(row.ps.0 / 1000),
        ]);
    }
    for column in charges.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let reclaimed = &ended.reclaimed;
    let budget = tenant.lease.reclaim.budget.get();
    let within = if reclaimed.returned.cpu_ns <= reclaimed.predicted_ns {
        "within"
    } else {
        "OVER"
    };
    format!(
        "\n{name}: {exit}\n{charges}\n\
         reclamation budget   {budget:>12}\n\
         predicted (charged)  {predicted:>12}   enforced: never above the budget\n\
         measured             {measured:>12}   processor time, everything returned: {within} the prediction\n\
         slot reusable after  {reusable:>12}   processor time\n\
         wall time            {wall:>12}   from the kill until everything was returned: {kept}\n\
\x20 effect             {effect:>12}   until nothing of it ran any more: bound {effect_bound}\n\
\x20 reusable           {reusable_wall:>12}\n\
         severed {scrubbed} links, ended {groups} groups, gave back {pages} pages in {steps} steps with {pauses} pauses\n\
         {under_way}{priority}{confined}\n",
        name = tenant.name,
        exit = exit(&ended.exit),
        budget = nanos(budget),
        predicted = nanos(reclaimed.predicted_ns),
        measured = nanos(reclaimed.returned.cpu_ns),
        reusable = nanos(reclaimed.reusable.cpu_ns),
        wall = nanos(reclaimed.returned.wall_ns),
        kept = match bound.returned_ns {
            Some(most) => format!("bound {}", nanos(most)),
            None => "without a bound".to_owned(),
        },
        effect = nanos(reclaimed.effect_ns),
        effect_bound = nanos(bound.effect_ns),
        reusable_wall = nanos(reclaimed.reusable.wall_ns),
        scrubbed = reclaimed.scrubbed,
        groups = reclaimed.groups,
        pages = reclaimed.pages,
        steps = reclaimed.steps,
        pauses = reclaimed.pauses,
        confined = host.confined,
        priority = match host.realtime {
            Realtime::ForKills | Realtime::Granted => String::new(),
            Realtime::NotAsked | Realtime::Refused(_) => {
                "WITHOUT real-time priority: other programs of this host can delay a kill\n"
                    .to_owned()
            }
        },
        under_way = match reclaimed.calls_under_way {
            0 => String::new(),
            calls => format!(
                "not returned: {calls} calls on I/O threads, each with its file, until the file system answers\n"
            ),
        },
    )
}

/// The same for programs.
pub(crate) fn json(
    tenant: &TenantSpec,
    ended: &Ended,
    bound: &EndBound,
    host: &OnHost<'_>,
) -> Value {
    let message = match &ended.exit {
        Exit::Trap(message) | Exit::Lease(message) | Exit::Memory(message) => Some(message),
        Exit::Code(_) | Exit::Killed => None,
    };
    let charges: Vec<_> = ended
        .statement
        .rows
        .iter()
        .map(|row| json!({"class": row.name, "count": row.count, "reclaim_ps": row.ps.0}))
        .collect();
    let reclaimed = &ended.reclaimed;
    json!({
        "tenant": tenant.name,
        "exit": exit(&ended.exit),
        "exit_code": ended.exit.code(),
        "message": message,
        "budget_ns": tenant.lease.reclaim.budget.get(),
        "charges": charges,
        "predicted_ns": reclaimed.predicted_ns,
        "effect_wall_ns": reclaimed.effect_ns,
        "effect_bound_ns": bound.effect_ns,
        "reusable_cpu_ns": reclaimed.reusable.cpu_ns,
        "reusable_wall_ns": reclaimed.reusable.wall_ns,
        "returned_cpu_ns": reclaimed.returned.cpu_ns,
        "returned_wall_ns": reclaimed.returned.wall_ns,
        "returned_bound_ns": bound.returned_ns,
        "scrubbed": reclaimed.scrubbed,
        "groups": reclaimed.groups,
        "pages": reclaimed.pages,
        "steps": reclaimed.steps,
        "pauses": reclaimed.pauses,
        "calls_under_way": reclaimed.calls_under_way,
        "realtime": matches!(host.realtime, Realtime::ForKills | Realtime::Granted),
        "confinement": host.confined,
    })
}
