//! The effects of an attack, as multiples of the promised values.

use leasehold_cell::Ended;
use leasehold_cell::steps::StepUse;
use serde::{Deserialize, Serialize};

/// A victim with a reservation wakes up no later than this, ns.
pub(crate) const VICTIM_NS: u64 = 3_000_000;

/// Bytes beside what the lease allows that a process may take for playing an attack.
const OWN_BYTES: u64 = 24 << 20;

/// Characters of an exit that are kept.
const EXIT_CHARS: usize = 200;

/// Descriptors that the process opens for itself meanwhile.
const DESCRIPTORS: u64 = 3;

/// The observations of one attack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// Why the attacker was not started, if it was not.
    pub refused: Option<String>,
    /// How it ended.
    pub exit: String,
    /// The charge for its end, ns of processor time.
    pub charged_ns: u64,
    /// The time that it took.
    pub took_ns: u64,
    /// From the request to the report of its end, ns of wall time.
    pub end_wall_ns: u64,
    /// Wake-ups of the victim while the attacker was there.
    pub wakes: u64,
    /// The latest, ns.
    pub victim_latest_ns: u64,
    /// The latest wake-up before the attacker was there, ns: what the host does by itself.
    pub quiet_latest_ns: u64,
    /// Calls of the neighbour that were refused.
    pub neighbour_refused: u64,
    /// The most memory that the process held, less that before, bytes.
    pub grown_bytes: u64,
    /// Linear memory of the attacker's lease, bytes.
    pub lease_bytes: u64,
    /// Descriptors of the process that are open after the end and were not before.
    pub descriptors_left: u64,
    /// Host steps that took longer than their row says: the row, how long the longest took, and its bound, ns.
    pub steps: Vec<(String, u64, u64)>,
    /// The outcome of the process, if it did not report.
    pub broken: Option<String>,
}

/// A measure of an attack.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// The measured quantity.
    pub name: &'static str,
    /// As a multiple of the promised value.
    pub ratio: f64,
    /// In words.
    pub text: String,
}

impl Measure {
    /// Whether it is a time, which a busy host makes longer: not a count or a size.
    pub fn is_time(&self) -> bool {
        matches!(self.name, "end" | "victim" | "step")
    }
}

fn ratio(measured: u64, promised: u64) -> f64 {
    measured as f64 / promised.max(1) as f64
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Observation {
    /// Keeps the end that took the largest part of its charge.
    pub(crate) fn add_end(&mut self, ended: &Ended) {
        let (charged, took) = (
            ended.reclaimed.predicted_ns,
            ended.reclaimed.returned.cpu_ns,
        );
        let is_worse = u128::from(took) * u128::from(self.charged_ns)
            >= u128::from(self.took_ns) * u128::from(charged);
        if self.charged_ns == 0 || is_worse {
            self.exit = format!("{:?}", ended.exit)
                .chars()
                .take(EXIT_CHARS)
                .collect();
            (self.charged_ns, self.took_ns) = (charged, took);
        }
    }

    /// Keeps the rows of which a step took longer than it may.
    pub(crate) fn add_steps(&mut self, steps: &[StepUse]) {
        let longer = steps.iter().filter(|step| step.exceeded > 0);
        self.steps
            .extend(longer.map(|step| (step.row.row().title(), step.longest_ns, step.limit_ns)));
    }

    /// Everything that was measured, the worst first.
    pub fn measures(&self) -> Vec<Measure> {
        let mut measures = Vec::new();
        let mut add = |name, ratio, text| measures.push(Measure { name, ratio, text });
        if let Some(broken) = &self.broken {
            add("process", 100.0, format!("the process {broken}"));
        }
        if self.charged_ns > 0 {
            add(
                "end",
                ratio(self.took_ns, self.charged_ns),
                format!(
                    "its end took {:.3} ms, {:.3} charged",
                    ms(self.took_ns),
                    ms(self.charged_ns)
                ),
            );
        }
        // A delay of the host alone is no find.
        let late = self.victim_latest_ns.saturating_sub(self.quiet_latest_ns);
        add(
            "victim",
            ratio(late, VICTIM_NS),
            format!(
                "the victim woke up {:.3} ms late, {:.3} before",
                ms(self.victim_latest_ns),
                ms(self.quiet_latest_ns)
            ),
        );
        if self.neighbour_refused > 0 {
            add(
                "neighbour",
                1.0 + self.neighbour_refused as f64,
                format!(
                    "{} calls of the neighbour were refused",
                    self.neighbour_refused
                ),
            );
        }
        add(
            "resident",
            ratio(self.grown_bytes, self.lease_bytes + OWN_BYTES),
            format!(
                "the process grew by {:.1} MiB under a lease of {} MiB in all",
                self.grown_bytes as f64 / 1048576.0,
                self.lease_bytes >> 20
            ),
        );
        if self.descriptors_left > 0 {
            // The process' own threads open some when they are first needed.
            add(
                "descriptors",
                ratio(self.descriptors_left, DESCRIPTORS),
                format!("{} descriptors were left open", self.descriptors_left),
            );
        }
        for (row, longest, bound) in &self.steps {
            // A host that stops the processor for a moment makes a step longer, too.
            let bound = *bound + VICTIM_NS;
            add(
                "step",
                ratio(*longest, bound),
                format!("a step of {row} took {:.3} ms", ms(*longest)),
            );
        }
        measures.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
        measures
    }

    /// The worst measure.
    pub fn score(&self) -> f64 {
        self.measures().first().map_or(0.0, |measure| measure.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::{Observation, VICTIM_NS};

    #[test]
    fn the_worst_measure_comes_first_and_is_the_score() {
        let observation = Observation {
            charged_ns: 100,
            took_ns: 150,
            victim_latest_ns: VICTIM_NS * 3,
            quiet_latest_ns: VICTIM_NS,
            ..Observation::default()
        };
        let measures = observation.measures();
        assert_eq!((measures[0].name, measures[0].ratio), ("victim", 2.0));
        assert_eq!((measures[1].name, measures[1].ratio), ("end", 1.5));
        assert_eq!(observation.score(), 2.0);
    }

    #[test]
    fn a_process_that_broke_is_worse_than_anything_that_it_measured() {
        let broken = Observation {
            broken: Some("ended by signal 6".into()),
            ..Observation::default()
        };
        assert!(broken.score() > 50.0);
    }
}
