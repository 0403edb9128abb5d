//! Seccomp: the lists of [`crate::calls`] as filters of the kernel.
//!
//! Filters stack, and the strictest answer holds. So there are three to begin with (what ends the
//! process, what is missing, what is allowed at the start), and each thread adds the list of its
//! kind when it is narrowed.

use crate::Mode;
use crate::calls::{Call, Condition, FATAL, MISSING, Network, Thread};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Why a filter could not be made or installed.
#[derive(Debug, thiserror::Error)]
#[error("the filter for system calls: {0}")]
pub struct FilterError(#[from] seccompiler::Error);

impl From<seccompiler::BackendError> for FilterError {
    fn from(error: seccompiler::BackendError) -> Self {
        Self(error.into())
    }
}

/// Installs what holds for the whole process, on its only thread, which is of this kind.
pub(crate) fn begin(kind: Thread, mode: Mode, network: Network) -> Result<(), FilterError> {
    install(&fatal(mode)?)?;
    install(&missing()?)?;
    install(&allowed(kind, mode, network)?)
}

/// Installs the list of a kind of thread, on the calling thread.
pub(crate) fn narrow(kind: Thread, mode: Mode, network: Network) -> Result<(), FilterError> {
    install(&allowed(kind, mode, network)?)
}

fn install(program: &BpfProgram) -> Result<(), FilterError> {
    Ok(seccompiler::apply_filter(program)?)
}

fn fatal(mode: Mode) -> Result<BpfProgram, FilterError> {
    let action = match mode {
        Mode::Trap => SeccompAction::Trap,
        Mode::Enforce | Mode::Off => SeccompAction::KillProcess,
    };
    let rules = FATAL.iter().map(|number| (*number, Vec::new())).collect();
    compile(rules, SeccompAction::Allow, action)
}

fn missing() -> Result<BpfProgram, FilterError> {
    let rules = rules(MISSING.iter())?;
    let action = SeccompAction::Errno(libc::ENOSYS as u32);
    compile(rules, SeccompAction::Allow, action)
}

fn allowed(kind: Thread, mode: Mode, network: Network) -> Result<BpfProgram, FilterError> {
    let otherwise = match mode {
        Mode::Trap => SeccompAction::Trap,
        Mode::Enforce | Mode::Off => SeccompAction::Errno(libc::EPERM as u32),
    };
    compile(rules(kind.calls(network))?, otherwise, SeccompAction::Allow)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The calls as rules: a call that is allowed whatever its arguments are has none.
fn rules<'a>(calls: impl Iterator<Item = &'a Call> + Clone) -> Result<Rules, FilterError> {
    let mut rules = Rules::new();
    for call in calls.clone() {
        let of_call = rules.entry(call.number).or_default();
        let conditions = conditions(call.condition)?;
        if !conditions.is_empty() {
            of_call.push(SeccompRule::new(conditions)?);
        }
    }
    let unconditional = calls.filter(|call| matches!(call.condition, Condition::Always));
    for call in unconditional {
        rules.insert(call.number, Vec::new());
    }
    Ok(rules)
}

/// What must hold together.
fn conditions(condition: Condition) -> Result<Vec<SeccompCondition>, FilterError> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq};
    let conditions = match condition {
        Condition::Always => Vec::new(),
        Condition::Masked {
            argument,
            mask,
            value,
        } => vec![(argument, Dword, MaskedEq(mask.into()), value.into())],
        Condition::Zero { argument } => vec![(argument, Qword, Eq, 0)],
        Condition::ThisProcess { argument } => {
            vec![(argument, Dword, Eq, std::process::id().into())]
        }
        Condition::ThisThread => vec![(0, Dword, Eq, libc::PRIO_PROCESS.into()), (1, Dword, Eq, 0)],
    };
    let made = conditions
        .into_iter()
        .map(|(argument, length, operator, value)| {
            SeccompCondition::new(argument, length, operator, value)
        });
    Ok(made.collect::<Result<_, _>>()?)
}

fn compile(
    rules: Rules,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, FilterError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, otherwise, listed, architecture)?;
    Ok(filter.try_into()?)
}
