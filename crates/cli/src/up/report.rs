//! The output of `leasehold up`: while its tenants run, and after their ends.

use super::memory::{self, Areas};
use super::table::{Column, lines};
use super::{Admitted, Running, View};
use crate::on_host::OnHost;
use crate::report::nanos;
use leasehold_cell::{Ended, Exit, ProcessorState, Realtime, Supply};
use serde_json::{Value, json};
use std::time::Duration;

const fn column(title: &'static str, goes: u8) -> Column {
    Column { title, goes }
}

const COLUMNS: [Column; 12] = [
    column("tenant", 0),
    column("state", 0),
    column("budget", 6),
    column("reserved", 3),
    column("priority", 7),
    column("left", 0),
    column("used", 5),
    column("share", 2),
    column("replenished", 0),
    column("preempted", 0),
    column("depleted", 4),
    column("missed", 0),
];

const ENDS: [Column; 9] = [
    column("tenant", 0),
    column("ended", 0),
    column("budget", 2),
    column("predicted", 1),
    column("measured", 0),
    column("effect", 4),
    column("reusable", 3),
    column("wall time", 0),
    column("bound", 0),
];

/// Cells of a bar.
const BAR: u64 = 8;

/// Draws `left` of `whole` as a bar.
fn bar(left: u64, whole: u64) -> String {
    let full = (left.min(whole) * BAR).div_ceil(whole.max(1));
    (0..BAR).map(|n| if n < full { '█' } else { '░' }).collect()
}

impl Running<'_> {
    /// Returns its state, or how it ended.
    pub(crate) fn state(&self) -> String {
        match (&self.ended, &self.processor) {
            (Some(ended), _) => match &ended.exit {
                Exit::Code(code) => format!("exit {code}"),
                Exit::Trap(_) => "trapped".into(),
                Exit::Lease(_) => "out of lease".into(),
                Exit::Memory(_) => "memory failed".into(),
                Exit::Killed => "killed".into(),
            },
            (None, Some(processor)) => match processor.state {
                ProcessorState::Running => "▶ running".into(),
                state => state.to_string(),
            },
            (None, None) => "ending".into(),
        }
    }

    fn supply(&self) -> Option<Supply> {
        match &self.ended {
            Some(ended) => Some(ended.supply),
            None => self.processor.as_ref().map(|processor| processor.supply),
        }
    }

    fn row(&self, elapsed: Duration) -> Vec<String> {
        let none = || "–".to_owned();
        let cpu = self.spec.lease.cpu;
        let supply = self.supply();
        let count =
            |of: fn(&Supply) -> u64| supply.as_ref().map_or_else(none, |s| of(s).to_string());
        let left = match &self.ended {
            None => self.processor.as_ref().and_then(|p| p.budget_left_ns),
            Some(_) => None,
        };
        let share = |used: u64| used as f64 / elapsed.as_nanos().max(1) as f64 * 100.0;
        vec![
            self.spec.name.clone(),
            self.state(),
            match (cpu, left) {
                (Some(cpu), Some(left)) => bar(left, cpu.budget().get()),
                _ => none(),
            },
            cpu.map_or_else(
                || "background".to_owned(),
                |cpu| format!("{} / {}", cpu.budget(), cpu.period()),
            ),
            cpu.map_or_else(none, |cpu| cpu.priority().to_string()),
            left.map_or_else(none, nanos),
            supply.map_or_else(none, |supply| nanos(supply.used)),
            supply.map_or_else(none, |supply| format!("{:.1} %", share(supply.used))),
            count(|supply| supply.replenishments),
            count(|supply| supply.preemptions),
            count(|supply| supply.depletions),
            count(|supply| supply.misses),
        ]
    }
}

/// Returns the tenants that are shown in `most` rows: running ones first, in their order.
pub(super) fn shown(tenants: &[Running<'_>], most: usize) -> Vec<usize> {
    let (live, ended): (Vec<usize>, Vec<usize>) =
        (0..tenants.len()).partition(|&at| tenants[at].ended.is_none());
    let mut shown: Vec<usize> = live.into_iter().chain(ended).take(most).collect();
    shown.sort_unstable();
    shown
}

/// The table while they run: `shown` of all tenants, no wider than `width`.
pub(super) fn live(
    tenants: &[Running<'_>],
    shown: &[usize],
    view: View,
    elapsed: Duration,
    width: usize,
) -> Vec<String> {
    let shown_tenants = shown.iter().map(|&at| &tenants[at]);
    let mut text = match view {
        View::Processor => {
            let rows: Vec<_> = shown_tenants.map(|tenant| tenant.row(elapsed)).collect();
            lines(&COLUMNS, &rows, Some(width))
        }
        View::Memory => {
            let rows: Vec<_> = shown_tenants.map(Running::memory_row).collect();
            lines(&memory::COLUMNS, &rows, Some(width))
        }
    };
    if shown.len() < tenants.len() {
        text.push(format!("… and {} more", tenants.len() - shown.len()));
    }
    let ended = tenants.iter().filter(|tenant| tenant.ended.is_some());
    let summary = format!(
        "{:.1} s; {ended} of {all} have ended; Ctrl-C kills the others and reports",
        elapsed.as_secs_f64(),
        ended = ended.count(),
        all = tenants.len(),
    );
    text.push(summary.chars().take(width).collect());
    text
}

/// The report of `leasehold up --memory` for people.
pub(super) fn memory_text(
    tenants: &[Running<'_>],
    elapsed: Duration,
    width: Option<usize>,
    areas: &Areas,
) -> String {
    let rows: Vec<_> = tenants.iter().map(Running::memory_row).collect();
    let mut text = lines(&memory::COLUMNS, &rows, width);
    text.push(String::new());
    let shared = areas.lines(width);
    if !shared.is_empty() {
        text.extend(shared);
        text.push(String::new());
    }
    format!(
        "{}\nafter {:.2} s\n{}",
        text.join("\n"),
        elapsed.as_secs_f64(),
        memory::LEGEND
    )
}

/// Returns the memory part of `leasehold up`'s report, if a tenant pages.
fn memory_part(tenants: &[Running<'_>], width: Option<usize>, areas: &Areas) -> String {
    if !tenants.iter().any(Running::pages) {
        return String::new();
    }
    let rows: Vec<_> = tenants.iter().map(Running::memory_row).collect();
    let mut text = lines(&memory::COLUMNS, &rows, width);
    let shared = areas.lines(width);
    if !shared.is_empty() {
        text.push(String::new());
        text.extend(shared);
    }
    format!("\n\n{}", text.join("\n"))
}

/// The report for people.
pub(crate) fn text(
    tenants: &[Running<'_>],
    elapsed: Duration,
    admitted: &Admitted,
    host: &OnHost<'_>,
    width: Option<usize>,
    areas: &Areas,
) -> String {
    let rows: Vec<_> = tenants.iter().map(|tenant| tenant.row(elapsed)).collect();
    // The remaining budget of an ended tenant has no meaning.
    let kept = |title: &str| !matches!(title, "budget" | "left");
    let columns: Vec<Column> = COLUMNS
        .iter()
        .filter(|column| kept(column.title))
        .map(|&Column { title, goes }| Column { title, goes })
        .collect();
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| {
            let cells = row.into_iter().zip(&COLUMNS);
            cells
                .filter(|(_, column)| kept(column.title))
                .map(|(cell, _)| cell)
                .collect()
        })
        .collect();
    let supplies = lines(&columns, &rows, width).join("\n");
    let ends: Vec<Vec<String>> = tenants
        .iter()
        .filter_map(|tenant| Some((tenant, tenant.ended.as_ref()?)))
        .map(|(tenant, ended)| end_row(tenant, ended))
        .collect();
    let ends = lines(&ENDS, &ends, width).join("\n");
    let memory = memory_part(tenants, width, areas);
    let overruns = tenants.iter().filter_map(Running::supply);
    let overrun = overruns.map(|supply| supply.overrun_max).max().unwrap_or(0);
    format!(
        "{supplies}\n\n{ends}{memory}\n\n\
         {seconds:.2} s, {order}; {priority}; longest overrun of a budget {overrun}\n\
         a preemption takes {overhead}\n\
         {confined}\n\
         missed     times a reservation did not get its budget within a period\n\
         predicted  processor time charged for the end in advance: never above the budget\n\
         measured   what the end took of it\n\
         effect     from the kill until nothing of it ran any more, wall time: at most {effect}\n\
         reusable   until its place could be used again\n\
         wall time  until everything was returned\n\
         bound      on that, all of them killed at once: under the tenant's own reservation, or for \
         a tenant in the background the cell's for ends\n",
        seconds = elapsed.as_secs_f64(),
        order = admitted.order,
        priority = match host.realtime {
            Realtime::Granted => "with real-time priority",
            _ => "WITHOUT real-time priority: other programs of this host can delay all",
        },
        overrun = nanos(overrun),
        overhead = admitted.overhead,
        confined = host.confined,
        effect = nanos(admitted.effect_ns()),
    )
}

fn end_row(tenant: &Running<'_>, ended: &Ended) -> Vec<String> {
    let reclaimed = &ended.reclaimed;
    vec![
        tenant.spec.name.clone(),
        tenant.state(),
        tenant.spec.lease.reclaim.budget.to_string(),
        nanos(reclaimed.predicted_ns),
        nanos(reclaimed.returned.cpu_ns),
        nanos(reclaimed.effect_ns),
        nanos(reclaimed.reusable.wall_ns),
        nanos(reclaimed.returned.wall_ns),
        tenant.bound.returned_ns.map_or_else(|| "–".into(), nanos),
    ]
}

/// The report for programs.
pub(crate) fn json(
    tenants: &[Running<'_>],
    elapsed: Duration,
    admitted: &Admitted,
    host: &OnHost<'_>,
    areas: &Areas,
) -> Value {
    let tenants: Vec<_> = tenants.iter().map(tenant_json).collect();
    json!({
        "elapsed_ns": elapsed.as_nanos() as u64,
        "order": admitted.order.to_string(),
        "schedulable": admitted.schedulable,
        "overhead_ns": admitted.overhead.time().get(),
        "overhead_source": admitted.overhead.source(),
        "realtime": matches!(host.realtime, Realtime::Granted),
        "confinement": host.confined,
        "tenants": tenants,
        "shared": areas.json(),
    })
}

fn tenant_json(tenant: &Running<'_>) -> Value {
    let cpu = tenant.spec.lease.cpu;
    let supply = tenant.supply();
    let reclaimed = tenant.ended.as_ref().map(|ended| ended.reclaimed);
    json!({
        "name": tenant.spec.name,
        "state": tenant.state(),
        "budget_ns": cpu.map(|cpu| cpu.budget().get()),
        "period_ns": cpu.map(|cpu| cpu.period().get()),
        "priority": cpu.map(|cpu| cpu.priority()),
        "policy": cpu.map(|cpu| cpu.policy().to_string()),
        "used_ns": supply.map(|supply| supply.used),
        "dispatches": supply.map(|supply| supply.dispatches),
        "replenishments": supply.map(|supply| supply.replenishments),
        "preemptions": supply.map(|supply| supply.preemptions),
        "depletions": supply.map(|supply| supply.depletions),
        "misses": supply.map(|supply| supply.misses),
        "overrun_max_ns": supply.map(|supply| supply.overrun_max),
        "reclaim_budget_ns": tenant.spec.lease.reclaim.budget.get(),
        "reclaim_predicted_ns": reclaimed.map(|r| r.predicted_ns),
        "reclaim_cpu_ns": reclaimed.map(|r| r.returned.cpu_ns),
        "effect_wall_ns": reclaimed.map(|r| r.effect_ns),
        "effect_bound_ns": tenant.bound.effect_ns,
        "reusable_wall_ns": reclaimed.map(|r| r.reusable.wall_ns),
        "reclaim_wall_ns": reclaimed.map(|r| r.returned.wall_ns),
        "reclaim_bound_ns": tenant.bound.returned_ns,
        "memory": tenant.memory_json(),
    })
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn a_bar_is_empty_only_when_nothing_is_left() {
        assert_eq!(bar(0, 100), "░░░░░░░░");
        assert_eq!(bar(1, 100), "█░░░░░░░");
        assert_eq!(bar(50, 100), "████░░░░");
        assert_eq!(bar(100, 100), "████████");
        assert_eq!(
            bar(200, 100),
            "████████",
            "a deferrable budget of two periods"
        );
    }
}
