//! Reports of the cell and the front, as types of the interface.

use crate::view;
use leasehold_cell::memory::MemoryUse;
use leasehold_cell::steps::StepUse;
use leasehold_cell::{
    ClassCosts, ControlKind, ControlUse, Ended, Exit, Processor, ProcessorState, Statement, Supply,
};
use leasehold_exchange::{CallOutcome, Outbox};
use leasehold_front::{Latency, Listening, Outcome, Site};
use leasehold_lease::{Cpu, Lease};
use leasehold_pager::PAGE;
use std::collections::BTreeMap;

pub(crate) const fn state(state: ProcessorState) -> view::State {
    match state {
        ProcessorState::Running => view::State::Running,
        ProcessorState::Ready => view::State::Ready,
        ProcessorState::Blocked => view::State::Blocked,
        ProcessorState::Depleted => view::State::Depleted,
    }
}

const fn supply(supply: &Supply) -> view::Supply {
    view::Supply {
        used_ns: supply.used,
        dispatches: supply.dispatches,
        replenishments: supply.replenishments,
        preemptions: supply.preemptions,
        depletions: supply.depletions,
        misses: supply.misses,
        overrun_max_ns: supply.overrun_max,
    }
}

pub(crate) fn processor(processor: &Processor, cpu: Option<&Cpu>) -> view::Processor {
    view::Processor {
        state: state(processor.state),
        budget_ns: cpu.map(|cpu| cpu.budget().get()),
        period_ns: cpu.map(|cpu| cpu.period().get()),
        left_ns: processor.budget_left_ns,
        supply: supply(&processor.supply),
    }
}

pub(crate) fn cpu(cpu: &Cpu) -> view::Cpu {
    let (budget, period) = (cpu.budget().get(), cpu.period().get());
    view::Cpu {
        budget_ns: budget,
        period_ns: period,
        priority: cpu.priority().into(),
        policy: cpu.policy().to_string(),
        utilization: budget as f64 / period as f64,
    }
}

pub(crate) fn exit(exit: &Exit) -> view::Exit {
    use view::ExitKind;
    let (kind, code, message) = match exit {
        Exit::Code(code) => (ExitKind::Code, Some(*code), None),
        Exit::Killed => (ExitKind::Killed, None, None),
        Exit::Trap(message) => (ExitKind::Trap, None, Some(message.clone())),
        Exit::Lease(message) => (ExitKind::Lease, None, Some(message.clone())),
        Exit::Memory(message) => (ExitKind::Memory, None, Some(message.clone())),
    };
    view::Exit {
        kind,
        code,
        message,
    }
}

pub(crate) fn end(tenant: &str, ended: &Ended, bound: view::EndBound, lease: &Lease) -> view::End {
    let reclaimed = &ended.reclaimed;
    let wall_ns = reclaimed.returned.wall_ns;
    view::End {
        tenant: tenant.to_owned(),
        at: jiff::Timestamp::now(),
        exit: exit(&ended.exit),
        predicted_ns: reclaimed.predicted_ns,
        measured_ns: reclaimed.returned.cpu_ns,
        effect_ns: reclaimed.effect_ns,
        reusable_ns: reclaimed.reusable.wall_ns,
        wall_ns,
        bound_ns: bound.returned_ns,
        within_bound: bound.returned_ns.map(|bound| wall_ns <= bound),
        budget_ns: lease.reclaim.budget.get(),
        calls_under_way: reclaimed.calls_under_way,
    }
}

pub(crate) fn statement(statement: &Statement) -> view::Statement {
    let rows = statement.rows.iter().map(|row| view::StatementRow {
        class: row.name.to_owned(),
        count: row.count,
        reclamation_ns: row.ps.0.div_ceil(1_000),
    });
    view::Statement {
        budget_ns: statement.budget.0 / 1_000,
        charged_ns: (statement.charged.0.saturating_add(statement.carved.0)).div_ceil(1_000),
        left_ns: statement.left.0 / 1_000,
        rows: rows.collect(),
    }
}

pub(crate) fn memory(used: &MemoryUse, lease: &Lease) -> view::MemoryUse {
    let bytes = |frames: u32| u64::from(frames) * PAGE;
    view::MemoryUse {
        linear_bytes: used.linear_bytes,
        reserve_bytes: lease.memory.reserve.get(),
        limit_bytes: used.limit_bytes,
        shared_bytes: used.shared_bytes,
        swapped_bytes: used.swapped_bytes,
        paging: used.paging.map(|(account, counts)| view::PagingUse {
            owned_bytes: bytes(account.owned),
            conserved_bytes: bytes(account.conserved),
            locked_bytes: bytes(account.locked),
            free_bytes: bytes(account.free),
            borrowed_bytes: bytes(account.borrowed),
            zero_faults: counts.zero,
            minor_faults: counts.minor,
            major_faults: counts.major,
            evicted: counts.evicted,
            written: counts.written,
        }),
    }
}

pub(crate) fn outgoing(outbox: &Outbox) -> view::Outgoing {
    let count = |outcome: CallOutcome| (outcome.name().to_owned(), outbox.ended_by(outcome));
    view::Outgoing {
        concurrency: outbox.concurrency(),
        active: outbox.under_way(),
        outcomes: CallOutcome::ALL.into_iter().map(count).collect(),
        processor_ns: outbox.used_ns(),
    }
}

pub(crate) fn outcomes(site: &Site) -> BTreeMap<String, u64> {
    let counts = site.counts();
    let of = |outcome: Outcome| (outcome.name().to_owned(), counts.of(outcome));
    Outcome::ALL.into_iter().map(of).collect()
}

pub(crate) const fn latency(latency: Latency) -> view::Latency {
    view::Latency {
        count: latency.count,
        sum_ns: latency.sum_ns,
        p50_ns: latency.p50_ns,
        p90_ns: latency.p90_ns,
        p99_ns: latency.p99_ns,
        max_ns: latency.max_ns,
    }
}

pub(crate) fn listener(listening: &Listening) -> view::Listener {
    view::Listener {
        name: listening.name.clone(),
        address: listening.address.to_string(),
        tls: listening.tls,
    }
}

pub(crate) fn step(step: &StepUse) -> view::Step {
    view::Step {
        row: step.row.row().title(),
        steps: step.steps,
        longest_ns: step.longest_ns,
        limit_ns: step.limit_ns,
        exceeded: step.exceeded,
        disturbed: step.disturbed,
        raised_ns: step.raised_ns,
    }
}

pub(crate) fn cost(costs: &ClassCosts) -> view::Cost {
    view::Cost {
        class: costs.class.name().to_owned(),
        samples: costs.samples,
        exceeded: costs.exceeded,
        drifts: costs.drifts.into(),
        price: costs.price.factor(),
    }
}

pub(crate) fn control((kind, used): &(ControlKind, ControlUse)) -> view::Control {
    view::Control {
        kind: kind.name().to_owned(),
        count: used.commands,
        total_ns: used.taken_ns,
        longest_ns: used.longest_ns,
    }
}
