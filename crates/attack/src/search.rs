//! The search: plays plans, keeps those that come near a promise, changes them, and makes finds smaller.

use crate::generate::Generator;
use crate::offer::Offers;
use crate::plan::Plan;
use crate::play::Player;
use crate::score::{Measure, Observation};
use crate::shrink::smaller;
use anyhow::Result;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Plans that are kept to be changed.
const KEPT: usize = 24;

/// A find is played so often again, and counts if the promise is broken at least half of these times.
const REPLAYS: usize = 4;

/// Most plans that are tried to make a find smaller.
const SHRINKS: usize = 60;

/// The parameters of a search.
#[derive(Debug, Clone)]
pub struct Search {
    /// The time for which it searches.
    pub time: Duration,
    /// The seed that determines the plans.
    pub seed: u64,
    /// Plays them.
    pub player: Player,
}

/// An attack that breaks a promise, as small as it could be made.
#[derive(Debug, Clone)]
pub struct Find {
    /// The attack.
    pub plan: Plan,
    /// The promise that it broke, in the worst run.
    pub measure: Measure,
    /// How often it was broken, and in how many runs.
    pub times: (usize, usize),
}

/// The results of a search.
#[derive(Debug, Clone)]
pub struct Found {
    /// Plans that were played.
    pub played: u64,
    /// How many of them a cell did not start.
    pub refused: u64,
    /// Attacks that broke a promise, one for each measure.
    pub finds: Vec<Find>,
    /// The worst of each measure that broke nothing, or only once.
    pub nearest: Vec<(Plan, Measure)>,
}

/// The progress of a search.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Since it began.
    pub elapsed: Duration,
    /// Plans that were played.
    pub played: u64,
    /// Finds.
    pub finds: usize,
    /// The score of the last plan.
    pub score: f64,
}

impl Search {
    /// Searches, and tells `follow` of each plan, after which it says whether to go on.
    ///
    /// # Errors
    /// When processes cannot be started.
    pub fn run(&self, follow: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Found> {
        let offers = Offers::all()?;
        let mut generator = Generator::new(&offers, self.seed);
        let began = Instant::now();
        let mut kept: Vec<(f64, Plan)> = Vec::new();
        let mut found = Found {
            played: 0,
            refused: 0,
            finds: Vec::new(),
            nearest: Vec::new(),
        };
        while began.elapsed() < self.time {
            let plan = match kept.len() {
                // As many new ones as changed ones.
                n if n > 0 && generator.below(2) == 0 => {
                    let index = generator.below(n);
                    generator.changed(&kept[index].1)
                }
                _ => generator.fresh(),
            };
            let observation = self.player.play(&plan)?;
            found.played += 1;
            found.refused += u64::from(observation.refused.is_some());
            let score = observation.score();
            if observation.refused.is_none() {
                self.look(&plan, &observation, &mut found)?;
                keep(&mut kept, score, plan);
            }
            let next = follow(Progress {
                elapsed: began.elapsed(),
                played: found.played,
                finds: found.finds.len(),
                score,
            });
            if next.is_break() {
                break;
            }
        }
        found
            .nearest
            .sort_by(|a, b| b.1.ratio.total_cmp(&a.1.ratio));
        Ok(found)
    }

    /// Examines all measures of a plan.
    fn look(&self, plan: &Plan, observation: &Observation, found: &mut Found) -> Result<()> {
        for measure in observation.measures() {
            let is_found = found
                .finds
                .iter()
                .any(|find| find.measure.name == measure.name);
            if measure.ratio > 1.0 && !is_found {
                let times = self.times(plan, measure.name)?;
                if 2 * times >= REPLAYS {
                    let plan = self.shrunk(plan.clone(), measure.name)?;
                    found.finds.push(Find {
                        plan,
                        measure,
                        times: (times, REPLAYS),
                    });
                    continue;
                }
            }
            near(&mut found.nearest, plan, measure);
        }
        Ok(())
    }

    /// How often a plan breaks the promise of this name, of [`REPLAYS`] times.
    fn times(&self, plan: &Plan, name: &str) -> Result<usize> {
        let mut times = 0;
        for _ in 0..REPLAYS {
            let measures = self.player.play(plan)?.measures();
            times += usize::from(
                measures
                    .iter()
                    .any(|measure| measure.name == name && measure.ratio > 1.0),
            );
        }
        Ok(times)
    }

    fn shrunk(&self, mut plan: Plan, name: &str) -> Result<Plan> {
        let mut tried = 0;
        'again: loop {
            for candidate in smaller(&plan) {
                tried += 1;
                if tried > SHRINKS {
                    return Ok(plan);
                }
                // Twice: a violation by chance does not make a plan smaller.
                let breaks = |plan: &Plan| -> Result<bool> {
                    let measures = self.player.play(plan)?.measures();
                    Ok(measures
                        .iter()
                        .any(|measure| measure.name == name && measure.ratio > 1.0))
                };
                if breaks(&candidate)? && breaks(&candidate)? {
                    plan = candidate;
                    continue 'again;
                }
            }
            return Ok(plan);
        }
    }
}

/// Keeps the best plans.
fn keep(kept: &mut Vec<(f64, Plan)>, score: f64, plan: Plan) {
    let at = kept.partition_point(|(other, _)| *other > score);
    kept.insert(at, (score, plan));
    kept.truncate(KEPT);
}

fn near(nearest: &mut Vec<(Plan, Measure)>, plan: &Plan, measure: Measure) {
    match nearest
        .iter_mut()
        .find(|(_, other)| other.name == measure.name)
    {
        Some((_, other)) if other.ratio >= measure.ratio => {}
        Some(entry) => *entry = (plan.clone(), measure),
        None => nearest.push((plan.clone(), measure)),
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, keep, near};
    use crate::plan::{Ending, Form, Plan, Realloc, Terms};
    use crate::score::Measure;

    fn plan(budget_ms: u32) -> Plan {
        Plan {
            form: Form::Core,
            terms: Terms {
                budget_ms,
                memory_mib: 1,
                reserved: false,
                pages: false,
            },
            realloc: Realloc::Place,
            blocks: Vec::new(),
            ending: Ending::Return,
        }
    }

    #[test]
    fn the_best_plans_are_kept() {
        let mut kept = Vec::new();
        for score in 0..100 {
            keep(&mut kept, f64::from(score), plan(score));
        }
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[0].1, plan(99));
        assert!(kept.iter().all(|(score, _)| *score >= 76.0));
    }

    #[test]
    fn the_worst_of_each_measure_is_remembered() {
        let mut nearest = Vec::new();
        let measure = |name, ratio| Measure {
            name,
            ratio,
            text: String::new(),
        };
        for (name, ratio) in [("end", 0.5), ("victim", 0.1), ("end", 0.7), ("end", 0.6)] {
            near(&mut nearest, &plan(1), measure(name, ratio));
        }
        let ratios: Vec<_> = nearest
            .iter()
            .map(|(_, measure)| (measure.name, measure.ratio))
            .collect();
        assert_eq!(ratios, [("end", 0.7), ("victim", 0.1)]);
    }
}
