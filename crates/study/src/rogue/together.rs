//! Guests side by side: all of them at once in one runtime, each killed in mid-flight when its turn
//! comes while the others go on, and beside them one that works on.
//!
//! The one that works on is the witness: an honest program that computes the same picture again and
//! again and says when each was done. What an end costs the others shows in how long the witness
//! took for the picture that the end fell into, and in how many there are in any moment.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold_cell::profile::Profile;

use super::attack::{Attack, Surroundings, When};
use super::runtime::{Death, Host, Living, Runtime};
use super::trial::two_processors;
use crate::clock::monotonic_ns;
use crate::neighbour::Interval;
use crate::processor::bound_to;
use crate::samples::Samples;

/// How long everyone runs before the first is killed, and between an end and the next kill.
const BETWEEN: Duration = Duration::from_millis(80);
/// How often guests of stock wasmtime yield to each other; a cell does that by itself.
const TURN: Duration = Duration::from_millis(1);

/// What became of one guest.
#[derive(Debug)]
pub struct Ending {
    /// Its name.
    pub guest: &'static str,
    /// How it ended.
    pub death: Death,
    /// What the witness took for the pictures that it worked on during the end, ns.
    pub during: Samples,
    /// The same just before the end, when the same others ran, ns.
    pub before: Samples,
}

impl Ending {
    /// The longest that the witness took for a picture during the end, over the longest just
    /// before: it gives way to the others in its turn, so that some pictures are always slower.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.during.max()? as f64 / self.before.max()?.max(1) as f64)
    }
}

/// One time of all guests side by side.
#[derive(Debug)]
pub struct Round {
    /// In the order in which they were killed.
    pub endings: Vec<Ending>,
    /// Every picture of the witness from when all were ready until the last had ended.
    pub pictures: Vec<Interval>,
    /// When the first was killed.
    pub first_kill_ns: u64,
}

/// Where guests run side by side: one runtime on one processor.
pub struct Together<'a> {
    runtime: Runtime,
    host: Host,
    guests: PathBuf,
    surroundings: &'a Surroundings,
    measuring_cpu: usize,
}

impl<'a> Together<'a> {
    /// Starts a runtime for a `crowd` of so many on one processor; whoever measures is on another.
    ///
    /// # Errors
    /// If the host refuses, or has but one processor.
    pub fn new(
        runtime: Runtime,
        guests: PathBuf,
        profile: &Profile,
        surroundings: &'a Surroundings,
        crowd: NonZero<usize>,
    ) -> Result<Self> {
        let (guest_cpu, measuring_cpu) = two_processors()?;
        let host = bound_to(Some(guest_cpu), || {
            Host::start(runtime, profile, guest_cpu, crowd)
        })?;
        Ok(Self {
            runtime,
            host,
            guests,
            surroundings,
            measuring_cpu,
        })
    }

    /// Starts all of `attacks` that the runtime has something for and `witness`, which says of each
    /// picture when it was done; waits until all are ready, and kills one after the other, in the
    /// order in which they are given.
    ///
    /// # Errors
    /// If a guest does not do as it should, or the host refuses.
    pub fn round(&self, attacks: &[Attack], witness: &Attack) -> Result<Round> {
        let over = AtomicBool::new(false);
        bound_to(Some(self.measuring_cpu), || {
            thread::scope(|scope| {
                // Ends with the round, in whichever way that ends.
                let _over = RaisedWhenDropped(&over);
                if let Host::Wasmtime(stock) = &self.host {
                    scope.spawn(|| {
                        while !over.load(Ordering::Relaxed) {
                            thread::sleep(TURN);
                            stock.turn();
                        }
                    });
                }
                self.observe(attacks, witness)
            })
        })
    }

    fn observe(&self, attacks: &[Attack], witness: &Attack) -> Result<Round> {
        let attacks = attacks.iter().filter(|attack| attack.is_for(self.runtime));
        let mut programs = Vec::new();
        for attack in attacks.chain([witness]) {
            programs.push((attack, self.host.load(&self.guests, attack)?));
        }
        let mut living: Vec<(usize, &Attack, Living)> = Vec::new();
        let mut started_ns = 0;
        // First those that do damage first: one after the other, for only what they have is to be
        // side by side with the rest. Who is killed at a certain age starts when all are ready.
        let ready = |attack: &Attack| matches!(attack.when, When::Ready(_));
        let turns = || programs.iter().enumerate();
        let (early, late): (Vec<_>, Vec<_>) = turns().partition(|(_, (attack, _))| ready(attack));
        for (turn, (attack, program)) in early.into_iter().chain(late) {
            started_ns = monotonic_ns();
            let start = || {
                let mut guest = self.host.start_guest(program, attack, self.surroundings)?;
                if let When::Ready(after) = attack.when {
                    guest.wait_until_ready()?;
                    thread::sleep(after);
                }
                Ok::<_, anyhow::Error>(guest)
            };
            living.push((turn, attack, start().with_context(|| attack.name)?));
        }
        living.sort_unstable_by_key(|(turn, ..)| *turn);
        let (.., witness) = living.pop().context("a witness")?;
        let deaths = kill_in_turn(living)?;
        thread::sleep(BETWEEN);
        // It was started last.
        let life = Interval {
            start_ns: started_ns,
            end_ns: monotonic_ns(),
        };
        let pictures = pictures(&witness.output(), life, realtime_minus_monotonic_ns())?;
        witness.kill(false).context("the witness")?;
        Ok(Round::new(deaths, pictures))
    }
}

/// The pictures that a witness reports in its `output`: each began when the one before was done,
/// the first when its `life` began; when that ended it was at another. Their times are of the clock
/// that is `offset_ns` ahead of ours.
fn pictures(output: &[u8], life: Interval, offset_ns: i128) -> Result<Vec<Interval>> {
    let output = std::str::from_utf8(output).context("what the witness says is no text")?;
    // The last line may be half written.
    let whole = output.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let mut pictures = Vec::new();
    let mut start_ns = life.start_ns;
    let mut add = |end_ns: u64| {
        pictures.push(Interval { start_ns, end_ns });
        start_ns = end_ns;
    };
    for line in whole.lines() {
        let at = line.rsplit_once(" at ").map(|(_, at)| at.parse::<i128>());
        let Some(Ok(at)) = at else {
            bail!("the witness says {line:?}");
        };
        add(u64::try_from(at - offset_ns).context("a picture from before the clock began")?);
    }
    add(life.end_ns);
    Ok(pictures)
}

/// How far the clock of guests is ahead of [`monotonic_ns`].
fn realtime_minus_monotonic_ns() -> i128 {
    let realtime = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let realtime_ns = i128::from(realtime.tv_sec) * 1_000_000_000 + i128::from(realtime.tv_nsec);
    realtime_ns - i128::from(monotonic_ns())
}

fn kill_in_turn(living: Vec<(usize, &Attack, Living)>) -> Result<Vec<(&'static str, Death)>> {
    let mut deaths = Vec::new();
    for (_, attack, guest) in living {
        thread::sleep(BETWEEN);
        let death = guest.kill(true).with_context(|| attack.name)?;
        deaths.push((attack.name, death));
    }
    Ok(deaths)
}

impl Round {
    fn new(deaths: Vec<(&'static str, Death)>, pictures: Vec<Interval>) -> Self {
        let first_kill_ns = deaths.first().map_or(0, |(_, death)| death.ending.start_ns);
        let took = |start_ns: u64, end_ns: u64| -> Samples {
            let overlapping = pictures
                .iter()
                .filter(|picture| picture.start_ns < end_ns && picture.end_ns > start_ns);
            overlapping
                .map(|picture| picture.end_ns - picture.start_ns)
                .collect()
        };
        let endings = deaths.into_iter().map(|(guest, death)| {
            let Interval { start_ns, end_ns } = death.ending;
            // The picture at which the end begins is one of the end's.
            let whole = pictures.iter().rfind(|picture| picture.end_ns <= start_ns);
            let quiet_ns = whole.map_or(start_ns, |picture| picture.end_ns);
            Ending {
                guest,
                during: took(start_ns, end_ns),
                before: took(quiet_ns.saturating_sub(BETWEEN.as_nanos() as u64), quiet_ns),
                death,
            }
        });
        Self {
            endings: endings.collect(),
            first_kill_ns,
            pictures,
        }
    }
}

struct RaisedWhenDropped<'a>(&'a AtomicBool);

impl Drop for RaisedWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Death, Interval, Round, pictures};

    #[test]
    fn an_end_is_held_against_the_pictures_just_before_it() {
        // One each 2 µs, but 10 µs for the one into which an end falls.
        let done = [2, 4, 6, 8, 10, 20, 22, 24];
        let lines: Vec<String> = done
            .iter()
            .map(|at| format!("P5 8 8 255 fnv1a 0 at {}", 5_000_000 + at * 1_000))
            .collect();
        let output = format!("{}\nP5 8 8", lines.join("\n"));
        let life = Interval {
            start_ns: 0,
            end_ns: 25_000,
        };
        let pictures = pictures(output.as_bytes(), life, 5_000_000).expect("as a witness says it");
        assert_eq!(pictures.len(), done.len() + 1);
        let death = Death {
            ending: Interval {
                start_ns: 11_000,
                end_ns: 15_000,
            },
            end_ns: 4_000,
            killed: true,
            reclaimed: None,
            statement: None,
        };
        let round = Round::new(vec![("guest", death)], pictures);
        let ending = &round.endings[0];
        assert_eq!(round.first_kill_ns, 11_000);
        assert_eq!((ending.during.count(), ending.before.count()), (1, 5));
        assert!((ending.slowdown().expect("both") - 5.0).abs() < 0.01);
    }
}
