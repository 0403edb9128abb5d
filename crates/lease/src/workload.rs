//! The workload of a tenant in a simulation of its processor reservation.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::decimal::decimal;
use crate::flag_error::FlagError;
use crate::nanoseconds::Nanoseconds;

/// The workload of a tenant in a simulation, and the number of its tasks.
///
/// As a flag: `busy`, or some of the keys of a table `[simulate.NAME]` with their values, such as
/// `run=1ms,sleep=3ms`. It is displayed in the same form.
///
/// ```
/// use leasehold_lease::{Activity, Workload};
///
/// let workload: Workload = "run=1ms,sleep=3ms,tasks=2".parse()?;
/// assert_eq!(workload.tasks, 2);
/// assert!(matches!(workload.activity, Activity::Alternating { .. }));
/// assert!("run=1ms".parse::<Workload>().is_err());
/// # Ok::<(), leasehold_lease::FlagError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// The behaviour of each task.
    pub activity: Activity,
    /// How many tasks there are, all of them doing the same: 1 to [`Workload::MAX_TASKS`].
    pub tasks: u8,
}

/// The behaviour of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activity {
    /// Runs whenever it may.
    #[default]
    Busy,
    /// Runs, sleeps, and again.
    Alternating {
        /// Processor time before it sleeps.
        run: Nanoseconds,
        /// How long it sleeps.
        sleep: Nanoseconds,
    },
    /// A job every period, due before the next.
    Periodic {
        /// Processor time of a job.
        execution: Nanoseconds,
        /// From one release to the next.
        period: Nanoseconds,
        /// Release of the first job; `None`: at once.
        phase: Option<Nanoseconds>,
    },
    /// A job for each event from outside.
    Sporadic {
        /// Least processor time of a job.
        execution: Nanoseconds,
        /// Greatest processor time of a job; not less than `execution`.
        execution_max: Nanoseconds,
        /// Least distance of two events.
        gap: Nanoseconds,
        /// Greatest distance of two events; not less than `gap`.
        gap_max: Nanoseconds,
        /// The seed of the random draws.
        seed: u32,
    },
}

impl Workload {
    /// The most tasks of a tenant.
    pub const MAX_TASKS: u8 = 100;

    pub(crate) const KEYS: &'static str =
        "run, sleep, execution, period, phase, execution_max, gap, gap_max, seed, tasks";
    pub(crate) const TASKS: RangeInclusive<u64> = 1..=100;
    pub(crate) const TASKS_ALLOWED: &'static str = "a whole number from 1 to 100";
    pub(crate) const SEED: RangeInclusive<u64> = 0..=u32::MAX as u64;
    pub(crate) const SEED_ALLOWED: &'static str = "a whole number from 0 to 4294967295";
    const COMBINATIONS: &'static str = "nothing; run and sleep; execution and period, and phase; \
                                        or execution and gap, and execution_max, gap_max, seed; \
                                        each with tasks";
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            activity: Activity::default(),
            tasks: 1,
        }
    }
}

/// The values of a workload as they are read, before their validation.
#[derive(Default)]
pub(crate) struct WorkloadValues {
    pub(crate) run: Option<Nanoseconds>,
    pub(crate) sleep: Option<Nanoseconds>,
    pub(crate) execution: Option<Nanoseconds>,
    pub(crate) execution_max: Option<Nanoseconds>,
    pub(crate) period: Option<Nanoseconds>,
    pub(crate) phase: Option<Nanoseconds>,
    pub(crate) gap: Option<Nanoseconds>,
    pub(crate) gap_max: Option<Nanoseconds>,
    pub(crate) seed: Option<u32>,
    pub(crate) tasks: Option<u8>,
}

impl WorkloadValues {
    /// The place of the value of a time's key.
    pub(crate) fn time(&mut self, key: &str) -> Option<&mut Option<Nanoseconds>> {
        Some(match key {
            "run" => &mut self.run,
            "sleep" => &mut self.sleep,
            "execution" => &mut self.execution,
            "execution_max" => &mut self.execution_max,
            "period" => &mut self.period,
            "phase" => &mut self.phase,
            "gap" => &mut self.gap,
            "gap_max" => &mut self.gap_max,
            _ => return None,
        })
    }

    /// The workload, or what would have been one.
    pub(crate) fn workload(self) -> Result<Workload, &'static str> {
        let tasks = self.tasks.unwrap_or(1);
        let activity = self.activity()?;
        Ok(Workload { activity, tasks })
    }

    fn activity(&self) -> Result<Activity, &'static str> {
        let alternating = self.run.or(self.sleep).is_some();
        let periodic = self.period.or(self.phase).is_some();
        let random = self.gap.or(self.gap_max).or(self.execution_max).is_some();
        let sporadic = random || self.seed.is_some();
        let kinds = [alternating, periodic, sporadic];
        if kinds.into_iter().filter(|kind| *kind).count() > 1
            || alternating && self.execution.is_some()
        {
            return Err(Workload::COMBINATIONS);
        }
        let complete = match (self.run, self.sleep, self.execution) {
            (None, None, None) if !periodic && !sporadic => Some(Activity::Busy),
            (Some(run), Some(sleep), None) => Some(Activity::Alternating { run, sleep }),
            (None, None, Some(execution)) => match (self.period, self.gap) {
                (Some(period), None) => Some(Activity::Periodic {
                    execution,
                    period,
                    phase: self.phase,
                }),
                (None, Some(gap)) => Some(Activity::Sporadic {
                    execution,
                    execution_max: self.execution_max.unwrap_or(execution),
                    gap,
                    gap_max: self.gap_max.unwrap_or(gap),
                    seed: self.seed.unwrap_or(0),
                }),
                _ => None,
            },
            _ => None,
        };
        match complete.ok_or(Workload::COMBINATIONS)? {
            Activity::Sporadic {
                execution,
                execution_max,
                gap,
                gap_max,
                ..
            } if execution_max < execution || gap_max < gap => {
                Err("an execution_max of at least execution, and a gap_max of at least gap")
            }
            activity => Ok(activity),
        }
    }
}

impl FromStr for Workload {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        const FORM: &str = "\"busy\", or KEY=VALUE,... as in a table [simulate.NAME] of a lease \
                            file, each key at most once";
        if text == "busy" {
            return Ok(Self::default());
        }
        let mut values = WorkloadValues::default();
        let mut seen = Vec::new();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .filter(|(key, _)| !seen.contains(key))
                .ok_or_else(|| FlagError::new(part, FORM))?;
            seen.push(key);
            let whole = |range: RangeInclusive<u64>, allowed| {
                decimal(value)
                    .filter(|number| range.contains(number))
                    .ok_or_else(|| FlagError::new(part, allowed))
            };
            match key {
                "tasks" => {
                    let tasks = whole(Self::TASKS, Self::TASKS_ALLOWED)?;
                    values.tasks = u8::try_from(tasks).ok();
                }
                "seed" => {
                    let seed = whole(Self::SEED, Self::SEED_ALLOWED)?;
                    values.seed = u32::try_from(seed).ok();
                }
                _ => match values.time(key) {
                    Some(place) => *place = Some(value.parse()?),
                    None => return Err(FlagError::new(part, FORM)),
                },
            }
        }
        values
            .workload()
            .map_err(|allowed| FlagError::new(text, allowed))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.activity {
            Activity::Busy if self.tasks == 1 => f.pad("busy")?,
            Activity::Busy => return write!(f, "tasks={}", self.tasks),
            Activity::Alternating { run, sleep } => write!(f, "run={run},sleep={sleep}")?,
            Activity::Periodic {
                execution,
                period,
                phase,
            } => {
                write!(f, "execution={execution},period={period}")?;
                if let Some(phase) = phase {
                    write!(f, ",phase={phase}")?;
                }
            }
            Activity::Sporadic {
                execution,
                execution_max,
                gap,
                gap_max,
                seed,
            } => write!(
                f,
                "execution={execution},execution_max={execution_max},gap={gap},gap_max={gap_max},\
                 seed={seed}"
            )?,
        }
        match self.tasks {
            1 => Ok(()),
            tasks => write!(f, ",tasks={tasks}"),
        }
    }
}
