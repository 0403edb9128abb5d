//! The experiments: every figure and table of the papers that Leasehold reproduces.
//!
//! A study measures one claim on this host and reports it in three ways: rows for programs, a table
//! and findings for readers, and a figure. Principles:
//!
//! 1. **A claim is a number against a bound.** What must be shown is a [`Finding`] that holds or
//!    does not; a claim that fails is reported, never an error and never left out.
//! 2. **What could not be measured is not zero.** It is `null` in a row, absent from the figure,
//!    and a claim about it does not hold.
//! 3. **Compare within one run.** Alternatives alternate ([`samples::interleaved`]), and a
//!    disturbed neighbour is compared with itself undisturbed ([`neighbour`]).
//! 4. **Medians with their spread.** Every figure shows the 5th and 95th percentile, as the
//!    papers' do.
//! 5. **Numbers name their host.** Every report carries the facts of its machine (`harness::host`) and
//!    the calibration profile in force.
//! 6. **The clock is stated.** Calibrated bounds are judged by the thread's processor time, delays
//!    of users by wall time ([`clock`]).
//!
//! # Map
//!
//! | concept | file |
//! |---|---|
//! | which studies there are; running one, running all | `study` |
//! | what they are made of; the files' list is there | `harness` |
//! | the studies of each paper, and of serving, as in `docs/studies.md` | `reclaim`, `processor`, `memory`, `serving` |
//! | roles that the program plays in a process of its own | `child` |
//!
//! ```
//! use leasehold_study::report::{Finding, Report, row};
//! use leasehold_study::samples::Samples;
//! use leasehold_study::unit::Unit;
//! use leasehold_study::{Options, Study, clock};
//!
//! /// How long it takes to look at the clock.
//! struct Clock;
//!
//! impl Study for Clock {
//!     fn name(&self) -> &'static str { "clock" }
//!     fn paper(&self) -> &'static str { "none" }
//!     fn about(&self) -> &'static str { "Cost of reading the clock." }
//!     fn run(&self, options: &Options) -> anyhow::Result<Report> {
//!         let reads = if options.quick { 100 } else { 100_000 };
//!         let samples: Samples = (0..reads)
//!             .map(|_| { let start = clock::monotonic_ns(); clock::monotonic_ns() - start })
//!             .collect();
//!         let mut report = Report::new(self, options);
//!         report.rows.push(row([("read_ns_p50", samples.p50().into())]));
//!         let median = samples.p50().map(|ns| ns as f64);
//!         report.findings.push(Finding::at_most("is cheap", Unit::Nanoseconds, median, 1e6));
//!         Ok(report)
//!     }
//! }
//!
//! let report = Clock.run(&Options { quick: true, ..Options::default() })?;
//! assert!(report.holds());
//! assert_eq!(report.to_json()["study"], "clock");
//! # anyhow::Ok(())
//! ```

pub mod child;
mod harness;
mod memory;
mod processor;
mod reclaim;
mod serving;
mod study;

pub use harness::experiment::{Options, Outcome, Study};
pub use harness::report::{Finding, Report};
pub use harness::{clock, lanes, neighbour, plot, progress, report, results, samples, taken, unit};
pub use reclaim::rogue;
pub use study::{all, find, run, run_all};
