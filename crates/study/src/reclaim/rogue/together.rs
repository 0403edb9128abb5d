//! Guests side by side: all of them at once in one runtime, killed one after the other while the
//! others continue, beside a witness that works throughout.
//!
//! The witness is an honest program that repeatedly computes the same picture and reports when each
//! was done. The effect of an end on others shows in the time of the witness's picture during the
//! end, and in its rate of pictures.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold_cell::CellConfig;

use super::attack::{Attack, Runtime, Surroundings, When};
use super::runtime::{GuestEnd, Host, Living};
use super::trial::two_processors;
use crate::harness::affinity::bound_to;
use crate::harness::clock::monotonic_ns;
use crate::harness::neighbour::Interval;
use crate::harness::samples::Samples;

/// How long a quiet time before an end is that the end is held against.
const QUIET: Duration = Duration::from_millis(80);
/// How often guests of stock wasmtime yield to each other; a cell does that by itself.
const TURN: Duration = Duration::from_millis(1);

/// The end of one guest.
#[derive(Debug)]
pub struct Ending {
    /// Its name.
    pub guest: &'static str,
    /// How it ended.
    pub guest_end: GuestEnd,
    /// How many of what it makes it said that it got, if it says that.
    pub made: Option<u64>,
    /// The time of the witness for each picture that it worked on during the end, ns.
    pub during: Samples,
    /// The same just before the end, when the same others ran, ns.
    pub before: Samples,
}

/// A guest that did not come to do its damage: its lease may not have paid for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unready {
    /// Its name.
    pub guest: &'static str,
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.guest)
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

/// How long the guests go on undisturbed.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Before each kill: after the start of the last guest, or the end before.
    pub before: Duration,
    /// After the last end.
    pub after: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            before: QUIET,
            after: QUIET,
        }
    }
}

/// Where guests run side by side: one runtime on one processor.
pub struct Together<'a> {
    runtime: Runtime,
    host: Host,
    guests: PathBuf,
    surroundings: &'a Surroundings,
    measuring_cpu: usize,
    pace: Pace,
}

impl<'a> Together<'a> {
    /// Starts a runtime on one processor, a cell as `config` says, stock wasmtime on so many `threads`;
    /// what measures is on another processor.
    ///
    /// # Errors
    /// If the host refuses, or has but one processor.
    pub fn new(
        runtime: Runtime,
        guests: PathBuf,
        config: CellConfig,
        surroundings: &'a Surroundings,
        threads: NonZero<usize>,
    ) -> Result<Self> {
        let (guest_cpu, measuring_cpu) = two_processors()?;
        let host = bound_to(Some(guest_cpu), || {
            Host::start(runtime, config, guest_cpu, threads)
        })?;
        Ok(Self {
            runtime,
            host,
            guests,
            surroundings,
            measuring_cpu,
            pace: Pace::default(),
        })
    }

    /// The same at another pace.
    pub fn at(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// Starts all of `attacks` that the runtime has something for and `witness`, which says of each
    /// picture when it was done; waits until all are ready, and kills one after the other, in the
    /// order in which they are given.
    ///
    /// # Errors
    /// If a guest does not do as it should, with [`Unready`] if that is before its damage is done, or if
    /// the host refuses.
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
        // Attacks that first do damage start first, one after the other: only what they hold is to
        // coexist with the rest. Attacks that are killed at a certain age start when all are ready.
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
            let unready = Unready { guest: attack.name };
            living.push((turn, attack, start().context(unready)?));
        }
        living.sort_unstable_by_key(|(turn, ..)| *turn);
        let (.., witness) = living.pop().context("a witness")?;
        let guest_ends = kill_in_turn(living, self.pace.before)?;
        thread::sleep(self.pace.after);
        // It was started last.
        let life = Interval {
            start_ns: started_ns,
            end_ns: monotonic_ns(),
        };
        let pictures = pictures(&witness.output(), life, realtime_minus_monotonic_ns())?;
        witness.kill(false).context("the witness")?;
        Ok(Round::new(guest_ends, pictures))
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

fn kill_in_turn(living: Vec<(usize, &Attack, Living)>, before: Duration) -> Result<Vec<Killed>> {
    let mut killed = Vec::new();
    for (_, attack, guest) in living {
        thread::sleep(before);
        let made = made(&guest.output());
        killed.push(Killed {
            guest: attack.name,
            made,
            guest_end: guest.kill(true).with_context(|| attack.name)?,
        });
    }
    Ok(killed)
}

/// A guest that was killed.
struct Killed {
    guest: &'static str,
    made: Option<u64>,
    guest_end: GuestEnd,
}

/// A hostile guest's report: `got N`, and why it got no more.
fn made(output: &[u8]) -> Option<u64> {
    let output = String::from_utf8_lossy(output);
    let said = output.lines().find_map(|line| line.strip_prefix("got "))?;
    said.split_ascii_whitespace().next()?.parse().ok()
}

/// The time of each picture that was worked on at any time of `span`, ns.
pub(super) fn took(pictures: &[Interval], span: Interval) -> Samples {
    let overlapping = pictures
        .iter()
        .filter(|picture| picture.start_ns < span.end_ns && picture.end_ns > span.start_ns);
    overlapping
        .map(|picture| picture.end_ns - picture.start_ns)
        .collect()
}

impl Round {
    fn new(killed: Vec<Killed>, pictures: Vec<Interval>) -> Self {
        let first = killed.first();
        let first_kill_ns = first.map_or(0, |first| first.guest_end.ending.start_ns);
        let endings = killed.into_iter().map(|killed| {
            let Killed {
                guest,
                made,
                guest_end,
            } = killed;
            let start_ns = guest_end.ending.start_ns;
            // The picture at which the end begins is one of the end's.
            let whole = pictures.iter().rfind(|picture| picture.end_ns <= start_ns);
            let quiet_ns = whole.map_or(start_ns, |picture| picture.end_ns);
            let quiet = Interval {
                start_ns: quiet_ns.saturating_sub(QUIET.as_nanos() as u64),
                end_ns: quiet_ns,
            };
            Ending {
                guest,
                made,
                during: took(&pictures, guest_end.ending),
                before: took(&pictures, quiet),
                guest_end,
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
    use super::{GuestEnd, Interval, Killed, Round, made, pictures};

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
        let guest_end = GuestEnd {
            ending: Interval {
                start_ns: 11_000,
                end_ns: 15_000,
            },
            end_ns: 4_000,
            killed: true,
            reclaimed: None,
            statement: None,
            taken: crate::harness::taken::Taken::default(),
        };
        let killed = Killed {
            guest: "guest",
            made: None,
            guest_end,
        };
        let round = Round::new(vec![killed], pictures);
        let ending = &round.endings[0];
        assert_eq!(round.first_kill_ns, 11_000);
        assert_eq!((ending.during.count(), ending.before.count()), (1, 5));
        assert_eq!(ending.during.ratio_to(&ending.before, 0.99), Some(5.0));
    }

    #[test]
    fn a_guest_says_how_much_it_got() {
        assert_eq!(made(b"got 17 refused budget\nready\n"), Some(17));
        assert_eq!(made(b"ready\ngot 10000000\n"), Some(10_000_000));
        assert_eq!(made(b"ready\n"), None);
        assert_eq!(made(b""), None);
    }
}
