//! An observed run: the program's charges, and its use of the processor over time.

use super::{endless, useless};
use crate::exit::Failure;
use crate::run::failure;
use anyhow::Context as _;
use leasehold_cell::clock::monotonic_ns;
use leasehold_cell::{Capture, Cell, Exit, Lease, Output, Program, StartRequest, Surroundings};
use leasehold_study::samples::Samples;
use std::sync::Arc;
use std::time::Duration;

/// Output that is kept of a run.
const OUTPUT_BYTES: usize = 16 << 20;

/// The age of the kernel's last tick at most, ns. The kernel reports a thread's time as of that
/// tick, so that the actual use may be larger by as much.
const TICK_NS: u64 = 4_000_000;

/// The observations of one run.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    /// Charged before its first instruction, ns.
    pub(super) start_ns: u64,
    /// The most that was charged at once, ns.
    pub(super) peak_ns: u64,
    /// From its start to its end, ns.
    pub(super) time_ns: u64,
    /// Processor time at the most, ns.
    pub(super) used_ns: u64,
    /// Processor time in each period, ns.
    pub(super) busy: Samples,
    /// Its standard output.
    pub(super) output: Vec<u8>,
}

/// The processor time of a program in each period, from looks at what it has used in all.
struct PeriodUse {
    period_ns: u64,
    seen_ns: u64,
    busy: Samples,
}

impl PeriodUse {
    /// Records what was used since the last look. A look may be late, but no period has more than its own time.
    fn look(&mut self, used_ns: u64) {
        let since_ns = used_ns.saturating_sub(self.seen_ns);
        self.busy.record(since_ns.min(self.period_ns));
        self.seen_ns = used_ns;
    }
}

/// What is observed.
pub(super) struct Subject<'a> {
    pub(super) cell: &'a Cell,
    pub(super) program: &'a Arc<Program>,
    pub(super) surroundings: &'a Surroundings,
}

/// Runs the program once under `lease`, and looks at it every `period`. After `longest` it is killed.
///
/// # Errors
/// If it is not started, or does not end with 0.
pub(super) fn observe(
    subject: &Subject<'_>,
    lease: Lease,
    period: Duration,
    longest: Duration,
) -> Result<Observed, Failure> {
    let output = Capture::new(OUTPUT_BYTES);
    let request = StartRequest {
        program: Arc::clone(subject.program),
        lease,
        surroundings: Surroundings {
            stdout: Output::Capture(output.clone()),
            ..subject.surroundings.clone()
        },
    };
    let tenant = subject.cell.start_held(request).map_err(failure)?;
    let start = tenant.statement().context("a tenant that is held")?;
    let used_ns = || Some(tenant.processor()?.supply.used);
    // Its start is its own work, too, but no part of the run.
    let before_ns = used_ns().unwrap_or(0);
    let mut period_use = PeriodUse {
        period_ns: whole_ns(period),
        seen_ns: before_ns,
        busy: Samples::new(),
    };
    let began_ns = monotonic_ns();
    tenant.go();
    let last_ns = began_ns.saturating_add(whole_ns(longest));
    let mut next_ns = began_ns;
    let ended = loop {
        next_ns = next_ns.saturating_add(period_use.period_ns);
        let rest_ns = next_ns.min(last_ns).saturating_sub(monotonic_ns());
        let ended = tenant.wait_for(Duration::from_nanos(rest_ns));
        if let Some(ended) = ended.map_err(failure)? {
            break ended;
        }
        if monotonic_ns() >= last_ns {
            tenant.kill();
            break tenant.wait().map_err(failure)?;
        }
        if let Some(now_ns) = used_ns() {
            period_use.look(now_ns);
        }
    };
    match &ended.exit {
        Exit::Code(0) => {}
        Exit::Code(code) => return Err(useless(&format!("exited with {code}"))),
        Exit::Trap(why) | Exit::Lease(why) | Exit::Memory(why) => return Err(useless(why)),
        Exit::Killed => return Err(endless(longest, "under a lease like the advised one")),
    }
    let time_ns = ended.at_ns.saturating_sub(began_ns);
    // Likewise its end.
    let ended_ns = ended.reclaimed.returned.cpu_ns;
    let used_ns = ended.supply.used.saturating_sub(ended_ns);
    period_use.look(used_ns);
    let used_ns = used_ns.saturating_sub(before_ns).saturating_add(TICK_NS);
    let account = ended.statement;
    Ok(Observed {
        start_ns: (start.charged.0 + start.carved.0).div_ceil(1000),
        peak_ns: account.peak.0.div_ceil(1000),
        time_ns,
        used_ns: used_ns.min(time_ns),
        busy: period_use.busy,
        output: output.bytes(),
    })
}

fn whole_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{PeriodUse, Subject, observe};
    use crate::exit::Failure;
    use leasehold_cell::profile::Profile;
    use leasehold_cell::{Cell, CellConfig, Lease, Surroundings};
    use leasehold_study::samples::Samples;
    use std::time::{Duration, Instant};

    const PERIOD: Duration = Duration::from_millis(10);

    #[test]
    fn no_period_is_busy_for_longer_than_it_is() {
        let mut period_use = PeriodUse {
            period_ns: 10_000_000,
            seen_ns: 0,
            busy: Samples::new(),
        };
        // The second look is late by 90 us, the third is late no longer.
        for used_ns in [9_990_000, 20_080_000, 29_000_000] {
            period_use.look(used_ns);
        }
        assert_eq!(period_use.busy.max(), Some(10_000_000));
    }

    #[test]
    fn a_program_that_does_not_end_is_observed_for_no_longer_than_it_may_run() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("endless.wat");
        let endless = "(module (func (export \"_start\") (loop $l (br $l))))";
        std::fs::write(&path, endless).expect("written");
        let cell = Cell::start(CellConfig::new(Profile::free())).expect("a cell");
        let lease = Lease::default();
        let program = crate::run::load(&cell, &path, &lease).expect("a program");
        let subject = Subject {
            cell: &cell,
            program: &program,
            surroundings: &Surroundings::default(),
        };
        let began = Instant::now();
        // Also where the first look would come later.
        for period in [PERIOD, Duration::from_secs(3600)] {
            let given_up = observe(&subject, lease, period, Duration::from_millis(50));
            match given_up {
                Err(Failure::Program(said)) => {
                    assert!(said.contains("had not ended after 50.00 ms"), "{said}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}
