//! The behaviour of a simulated task: a machine that yields its steps one by one.

use alloc::vec::Vec;

use super::{SetUpError, TaskIndex};
use crate::Nanos;
use crate::random::SplitMix;

/// The behaviour of a task. Instants are virtual time, which begins at 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Runs whenever it can, for ever.
    Busy,
    /// A job at `phase`, `phase + period`, …, each of `execution`, due when the next is released.
    /// Sleeps until the next release, as `clock_nanosleep` with an absolute time does.
    Periodic {
        /// Release of the first job.
        phase: Nanos,
        /// From one release to the next.
        period: Nanos,
        /// Processor time of a job.
        execution: Nanos,
    },
    /// Runs, sleeps, and again, as `nanosleep` with a relative time does.
    Alternating {
        /// Processor time before it sleeps.
        run: Nanos,
        /// How long it sleeps.
        sleep: Nanos,
    },
    /// One job for each event from outside; events during a job wait.
    Events {
        /// When they arrive, in order.
        instants: Vec<Nanos>,
        /// Processor time of a job.
        execution: Nanos,
    },
    /// Events from outside at random, never closer together than `least_gap`, and jobs of random
    /// length. Equal seeds repeat each other.
    Sporadic {
        /// The seed of the draws.
        seed: u64,
        /// Least distance of two events.
        least_gap: Nanos,
        /// Greatest distance of two events.
        greatest_gap: Nanos,
        /// Least processor time of a job.
        least_execution: Nanos,
        /// Greatest processor time of a job.
        greatest_execution: Nanos,
    },
    /// A list of steps, once or for ever. Once over, the task is blocked for good.
    Script {
        /// In order.
        steps: Vec<Step>,
        /// Whether the first follows the last.
        repeat: bool,
    },
}

/// One thing that a scripted task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Uses this much processor time.
    Run(Nanos),
    /// Suspends itself for this long.
    Sleep(Nanos),
    /// Suspends itself until this instant, or not at all if it has passed.
    SleepUntil(Nanos),
    /// Suspends itself until another task or event wakes it, or not at all if one did since it
    /// last waited.
    Await,
    /// Wakes another task.
    Wake(TaskIndex),
}

/// A behaviour and how far it has come.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    behaviour: Behaviour,
    /// Steps given so far, or the place in a script.
    position: u64,
    /// Lengths of jobs. A sequence of its own, so that events do not depend on the schedule.
    lengths: SplitMix,
    gaps: SplitMix,
    /// Events announced so far.
    arrivals: usize,
    last_arrival: Nanos,
}

impl Progress {
    /// # Errors
    /// If the behaviour could go on for ever without any time passing.
    pub(super) fn of(behaviour: Behaviour) -> Result<Self, SetUpError> {
        let timeless = match &behaviour {
            Behaviour::Periodic { period, .. } => *period == 0,
            Behaviour::Alternating { run, sleep } => *run == 0 && *sleep == 0,
            Behaviour::Sporadic { greatest_gap, .. } => *greatest_gap == 0,
            Behaviour::Script { steps, repeat } => *repeat && !steps.iter().any(takes_time),
            Behaviour::Busy | Behaviour::Events { .. } => false,
        };
        if timeless {
            return Err(SetUpError::Timeless);
        }
        let seed = match &behaviour {
            Behaviour::Sporadic { seed, .. } => *seed,
            _ => 0,
        };
        Ok(Self {
            behaviour,
            position: 0,
            lengths: SplitMix::new(!seed),
            gaps: SplitMix::new(seed),
            arrivals: 0,
            last_arrival: 0,
        })
    }

    /// Returns the task's next step, or `None` if it has none left.
    pub(super) fn next(&mut self) -> Option<Step> {
        let position = self.position;
        self.position += 1;
        let turn = position.is_multiple_of(2);
        Some(match &self.behaviour {
            Behaviour::Busy => Step::Run(Nanos::MAX),
            Behaviour::Periodic {
                phase,
                period,
                execution,
            } => match turn {
                true => {
                    Step::SleepUntil(phase.saturating_add((position / 2).saturating_mul(*period)))
                }
                false => Step::Run(*execution),
            },
            Behaviour::Alternating { run, sleep } => match turn {
                true => Step::Run(*run),
                false => Step::Sleep(*sleep),
            },
            Behaviour::Events { execution, .. } => match turn {
                true => Step::Await,
                false => Step::Run(*execution),
            },
            Behaviour::Sporadic {
                least_execution,
                greatest_execution,
                ..
            } => match turn {
                true => Step::Await,
                false => Step::Run(self.lengths.between(*least_execution, *greatest_execution)),
            },
            Behaviour::Script { steps, repeat } => {
                let place = usize::try_from(position).ok()?;
                let place = if *repeat { place % steps.len() } else { place };
                *steps.get(place)?
            }
        })
    }

    /// Gives the last step once more.
    pub(super) fn step_back(&mut self) {
        self.position -= 1;
    }

    /// The next event from outside that wakes the task, in order; never asked twice for one.
    pub(super) fn next_arrival(&mut self) -> Option<Nanos> {
        let arrival = match &self.behaviour {
            Behaviour::Events { instants, .. } => *instants.get(self.arrivals)?,
            Behaviour::Sporadic {
                least_gap,
                greatest_gap,
                ..
            } => self
                .last_arrival
                .saturating_add(self.gaps.between(*least_gap, *greatest_gap)),
            _ => return None,
        };
        self.arrivals += 1;
        self.last_arrival = arrival.max(self.last_arrival);
        Some(self.last_arrival)
    }

    /// Returns the relative deadline of a job, if it has one.
    pub(super) fn relative_deadline(&self) -> Option<Nanos> {
        match &self.behaviour {
            Behaviour::Periodic { period, .. } => Some(*period),
            _ => None,
        }
    }
}

/// Whether a step cannot be repeated for ever at one instant.
fn takes_time(step: &Step) -> bool {
    matches!(step, Step::Run(1..) | Step::Sleep(1..) | Step::Await)
}

#[cfg(test)]
mod tests {
    use super::{Behaviour, Progress, Step};
    use alloc::vec;

    #[test]
    fn a_periodic_task_sleeps_until_multiples_of_its_period() {
        let mut task = Progress::of(Behaviour::Periodic {
            phase: 5,
            period: 30,
            execution: 10,
        })
        .expect("takes time");
        let steps: [_; 4] = core::array::from_fn(|_| task.next());
        assert_eq!(
            steps,
            [
                Some(Step::SleepUntil(5)),
                Some(Step::Run(10)),
                Some(Step::SleepUntil(35)),
                Some(Step::Run(10))
            ]
        );
    }

    #[test]
    fn a_script_ends_or_begins_again() {
        let steps = vec![Step::Run(1), Step::Sleep(2)];
        let script = |repeat| {
            Progress::of(Behaviour::Script {
                steps: steps.clone(),
                repeat,
            })
            .expect("takes time")
        };
        let (mut once, mut always) = (script(false), script(true));
        for _ in 0..2 {
            assert_eq!(once.next(), always.next());
        }
        assert_eq!(once.next(), None);
        assert_eq!(always.next(), Some(Step::Run(1)));
    }

    #[test]
    fn events_arrive_in_order_and_keep_their_distance() {
        let mut random = Progress::of(Behaviour::Sporadic {
            seed: 3,
            least_gap: 10,
            greatest_gap: 20,
            least_execution: 1,
            greatest_execution: 1,
        })
        .expect("takes time");
        let mut last = 0;
        for _ in 0..100 {
            let next = random.next_arrival().expect("never ends");
            assert!((10..=20).contains(&(next - last)));
            last = next;
        }
        let mut listed = Progress::of(Behaviour::Events {
            instants: vec![4, 4, 9],
            execution: 1,
        })
        .expect("takes time");
        let listed: [_; 4] = core::array::from_fn(|_| listed.next_arrival());
        assert_eq!(listed, [Some(4), Some(4), Some(9), None]);
    }

    #[test]
    fn what_takes_no_time_is_refused() {
        for behaviour in [
            Behaviour::Periodic {
                phase: 0,
                period: 0,
                execution: 1,
            },
            Behaviour::Alternating { run: 0, sleep: 0 },
            Behaviour::Script {
                steps: vec![Step::Run(0), Step::SleepUntil(3)],
                repeat: true,
            },
            Behaviour::Script {
                steps: vec![],
                repeat: true,
            },
        ] {
            assert!(Progress::of(behaviour).is_err());
        }
    }
}
