//! The processor reservation, as a lease states it.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use thiserror::Error;

use crate::decimal::decimal;
use crate::flag_error::FlagError;
use crate::nanoseconds::Nanoseconds;

/// How a used budget comes back (SPR §II).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// Used budget is replenished one period after its use began: the budget is a limit in *every*
    /// window of the length of a period.
    #[default]
    Sporadic,
    /// The whole budget is replenished at every multiple of the period: cheaper to account for, but
    /// two budgets may be used in a row, at the end of one period and the start of the next.
    Deferrable,
}

impl Policy {
    pub(crate) const ALLOWED: &'static str = "\"sporadic\" or \"deferrable\"";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "sporadic" => Some(Self::Sporadic),
            "deferrable" => Some(Self::Deferrable),
            _ => None,
        }
    }
}

/// The name in a lease.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sporadic => "sporadic",
            Self::Deferrable => "deferrable",
        })
    }
}

/// A processor reservation `(b, p, σ, η)` (SPR §II, §III-F): `budget` of processor time in every
/// `period`, with precedence over every lower `priority`, in runs of at least `nonpreemptive`.
///
/// A value that exists is consistent: `budget <= period`, `nonpreemptive <= budget`, all within the
/// limits below. The admission test decides whether a host can keep it beside the other
/// reservations.
///
/// As a flag: `budget=TIME,period=TIME`, followed by any of `priority=N`, `nonpreemptive=TIME`,
/// `policy=NAME`, `replenishments=N` and `slice=TIME`; the order is free, each at most once. It is
/// displayed in the same form.
///
/// ```
/// use leasehold_lease::{Cpu, Policy};
///
/// let cpu: Cpu = "budget=2ms,period=10ms,priority=10,nonpreemptive=200us".parse()?;
/// assert_eq!(cpu.budget().get(), 2_000_000);
/// assert_eq!(cpu.policy(), Policy::Sporadic);
/// assert!("budget=20ms,period=10ms".parse::<Cpu>().is_err());
/// # Ok::<(), leasehold_lease::FlagError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cpu {
    budget: Nanoseconds,
    period: Nanoseconds,
    priority: u8,
    nonpreemptive: Option<Nanoseconds>,
    policy: Policy,
    replenishments: u8,
    slice: Nanoseconds,
}

impl Cpu {
    /// The least budget and the least slice: one context switch takes about a microsecond.
    pub const MIN_BUDGET: Nanoseconds = Nanoseconds::new(1_000).expect("1 us is in range");
    /// The least period: a host cannot fire a timer much more often.
    pub const MIN_PERIOD: Nanoseconds = Nanoseconds::new(10_000).expect("10 us is in range");
    /// The fewest pending replenishments that a reservation can have. A tenant that runs *k* times in a period, with the
    /// cell's work for it, leaves *k* pieces of its budget, or 2 *k* if it runs a little earlier each time, and a rest: five for a job
    /// and what comes of its output. With fewer, a job of less than the budget was late.
    pub const MIN_REPLENISHMENTS: u8 = 5;
    /// The most pending replenishments that a reservation can have.
    pub const MAX_REPLENISHMENTS: u8 = 64;

    pub(crate) const KEYS: &'static str =
        "budget, period, priority, nonpreemptive, policy, replenishments, slice";
    pub(crate) const BUDGET_ALLOWED: &'static str = "a time with its unit (ns, us, ms, s), at least 1us and at most the period, such as \"2ms\"";
    pub(crate) const PERIOD_ALLOWED: &'static str =
        "a time with its unit (ns, us, ms, s), at least 10us and at most 3600s, such as \"10ms\"";
    pub(crate) const PRIORITY: RangeInclusive<u64> = 0..=255;
    pub(crate) const PRIORITY_ALLOWED: &'static str =
        "a whole number from 0 to 255, where 255 is the most important";
    pub(crate) const REPLENISHMENTS: RangeInclusive<u64> = 5..=64;
    pub(crate) const REPLENISHMENTS_ALLOWED: &'static str = "a whole number from 5 to 64";

    const DEFAULT_REPLENISHMENTS: u8 = 16;
    const DEFAULT_SLICE: Nanoseconds = Nanoseconds::new(1_000_000).expect("1 ms is in range");

    /// Creates a reservation of `budget` in every `period`, at priority 0, preemptible at any time,
    /// sporadic, with at most 16 replenishments and slices of 1 ms.
    ///
    /// # Errors
    ///
    /// A period below [`Self::MIN_PERIOD`], or a budget below [`Self::MIN_BUDGET`] or above the
    /// period.
    pub fn new(budget: Nanoseconds, period: Nanoseconds) -> Result<Self, CpuFault> {
        if period < Self::MIN_PERIOD {
            return Err(CpuFault::new("period", "at least 10us"));
        }
        if budget < Self::MIN_BUDGET {
            return Err(CpuFault::new("budget", "at least 1us"));
        }
        if budget > period {
            let allowed = format!("at most the period, which is {period}");
            return Err(CpuFault::new("budget", allowed));
        }
        Ok(Self {
            budget,
            period,
            priority: 0,
            nonpreemptive: None,
            policy: Policy::default(),
            replenishments: Self::DEFAULT_REPLENISHMENTS,
            slice: Self::DEFAULT_SLICE,
        })
    }

    /// The same with this priority: the greater runs first.
    #[must_use]
    pub fn with_priority(self, priority: u8) -> Self {
        Self { priority, ..self }
    }

    /// The same with a non-preemptive region of this length (SPR §III-F).
    ///
    /// # Errors
    ///
    /// It is longer than the budget.
    pub fn with_nonpreemptive(self, length: Nanoseconds) -> Result<Self, CpuFault> {
        if length > self.budget {
            let allowed = format!("at most the budget, which is {}", self.budget);
            return Err(CpuFault::new("nonpreemptive", allowed));
        }
        let nonpreemptive = Some(length);
        Ok(Self {
            nonpreemptive,
            ..self
        })
    }

    /// The same with this policy.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The same with room for this many pending replenishments.
    ///
    /// # Errors
    ///
    /// Fewer than [`Self::MIN_REPLENISHMENTS`], or more than [`Self::MAX_REPLENISHMENTS`].
    pub fn with_replenishments(self, replenishments: u8) -> Result<Self, CpuFault> {
        if !(Self::MIN_REPLENISHMENTS..=Self::MAX_REPLENISHMENTS).contains(&replenishments) {
            return Err(CpuFault::new(
                "replenishments",
                Self::REPLENISHMENTS_ALLOWED,
            ));
        }
        Ok(Self {
            replenishments,
            ..self
        })
    }

    /// The same with this slice for the round robin among the tasks of the tenant.
    ///
    /// # Errors
    ///
    /// It is shorter than [`Self::MIN_BUDGET`].
    pub fn with_slice(self, slice: Nanoseconds) -> Result<Self, CpuFault> {
        if slice < Self::MIN_BUDGET {
            return Err(CpuFault::new("slice", "at least 1us"));
        }
        Ok(Self { slice, ..self })
    }

    /// Processor time per period, `b`.
    #[must_use]
    pub fn budget(self) -> Nanoseconds {
        self.budget
    }

    /// The replenishment period, `p`.
    #[must_use]
    pub fn period(self) -> Nanoseconds {
        self.period
    }

    /// The priority, `σ`: the greater runs first. `earliest-deadline` ignores it.
    #[must_use]
    pub fn priority(self) -> u8 {
        self.priority
    }

    /// The length of the non-preemptive region, `η`; `None` if the tenant may be preempted at any
    /// time.
    #[must_use]
    pub fn nonpreemptive(self) -> Option<Nanoseconds> {
        self.nonpreemptive
    }

    /// How a used budget comes back.
    #[must_use]
    pub fn policy(self) -> Policy {
        self.policy
    }

    /// How many replenishments may be pending at a time, `S` (SPR §IV-A).
    #[must_use]
    pub fn replenishments(self) -> u8 {
        self.replenishments
    }

    /// How long a task of the tenant runs before the next one of the same tenant does.
    #[must_use]
    pub fn slice(self) -> Nanoseconds {
        self.slice
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "budget={},period={},priority={}",
            self.budget, self.period, self.priority
        )?;
        if let Some(length) = self.nonpreemptive {
            write!(f, ",nonpreemptive={length}")?;
        }
        let (policy, replenishments) = (self.policy, self.replenishments);
        write!(
            f,
            ",policy={policy},replenishments={replenishments},slice={}",
            self.slice
        )
    }
}

/// A value of a [`Cpu`] that is out of range, or that its other values do not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: allowed: {allowed}")]
pub struct CpuFault {
    key: &'static str,
    allowed: String,
}

impl CpuFault {
    fn new(key: &'static str, allowed: impl Into<String>) -> Self {
        Self {
            key,
            allowed: allowed.into(),
        }
    }

    /// The key of the value.
    #[must_use]
    pub fn key(&self) -> &'static str {
        self.key
    }

    /// The accepted values, as text.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.allowed
    }
}

/// The values of a reservation as they are read, before their validation.
#[derive(Default)]
pub(crate) struct CpuValues {
    pub(crate) budget: Option<Nanoseconds>,
    pub(crate) period: Option<Nanoseconds>,
    pub(crate) priority: Option<u8>,
    pub(crate) nonpreemptive: Option<Nanoseconds>,
    pub(crate) policy: Option<Policy>,
    pub(crate) replenishments: Option<u8>,
    pub(crate) slice: Option<Nanoseconds>,
}

/// Why values are not a reservation.
pub(crate) enum Incomplete {
    /// This key is missing, which has to hold this.
    Missing(&'static str, &'static str),
    Fault(CpuFault),
}

impl From<CpuFault> for Incomplete {
    fn from(fault: CpuFault) -> Self {
        Self::Fault(fault)
    }
}

impl CpuValues {
    pub(crate) fn reservation(self) -> Result<Cpu, Incomplete> {
        let budget = self
            .budget
            .ok_or(Incomplete::Missing("budget", Cpu::BUDGET_ALLOWED))?;
        let period = self
            .period
            .ok_or(Incomplete::Missing("period", Cpu::PERIOD_ALLOWED))?;
        let mut cpu = Cpu::new(budget, period)?
            .with_priority(self.priority.unwrap_or(0))
            .with_policy(self.policy.unwrap_or_default());
        if let Some(length) = self.nonpreemptive {
            cpu = cpu.with_nonpreemptive(length)?;
        }
        if let Some(replenishments) = self.replenishments {
            cpu = cpu.with_replenishments(replenishments)?;
        }
        if let Some(slice) = self.slice {
            cpu = cpu.with_slice(slice)?;
        }
        Ok(cpu)
    }
}

impl FromStr for Cpu {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        const FORM: &str = "budget=TIME,period=TIME, then any of priority=N, nonpreemptive=TIME, \
                            policy=NAME, replenishments=N, slice=TIME, each at most once";
        let mut values = CpuValues::default();
        let mut seen = Vec::new();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| FlagError::new(part, FORM))?;
            if seen.iter().any(|(earlier, _)| *earlier == key) {
                return Err(FlagError::new(part, FORM));
            }
            seen.push((key, part));
            let time = || -> Result<_, FlagError> { Ok(Some(value.parse()?)) };
            let number = |range, allowed| whole(value, range).ok_or(FlagError::new(part, allowed));
            match key {
                "budget" => values.budget = time()?,
                "period" => values.period = time()?,
                "priority" => {
                    values.priority = Some(number(Self::PRIORITY, Self::PRIORITY_ALLOWED)?);
                }
                "nonpreemptive" => values.nonpreemptive = time()?,
                "policy" => {
                    let policy = Policy::named(value);
                    values.policy =
                        Some(policy.ok_or_else(|| FlagError::new(part, Policy::ALLOWED))?);
                }
                "replenishments" => {
                    let count = number(Self::REPLENISHMENTS, Self::REPLENISHMENTS_ALLOWED)?;
                    values.replenishments = Some(count);
                }
                "slice" => values.slice = time()?,
                _ => return Err(FlagError::new(part, FORM)),
            }
        }
        values.reservation().map_err(|error| match error {
            Incomplete::Missing(..) => FlagError::new(text, FORM),
            Incomplete::Fault(CpuFault { key, allowed }) => {
                let stated = seen.iter().find(|(stated, _)| *stated == key);
                FlagError::new(stated.map_or(text, |(_, part)| part), allowed)
            }
        })
    }
}

/// A plain decimal number in `range`, which has to lie within a byte.
fn whole(text: &str, range: RangeInclusive<u64>) -> Option<u8> {
    let number: u8 = decimal(text)?;
    range.contains(&u64::from(number)).then_some(number)
}
