//! `decide`: what an invocation of the scheduler takes, against the number of tenants and of
//! priorities (SPR §IV-A, §III-E).
//!
//! Tenants sleep until the same instant, run for a moment, and sleep until the next: so at each of
//! these instants the timeouts of all of them have expired. Either all tenants do, and every
//! invocation is for one whose record has not been used for long; or only a few do while the others
//! sleep, and what is left to see is the size of the data structures. The scheduler's own code is
//! timed, invocation by invocation. An eager one processes all timeouts at once and has little to
//! do afterwards, so its median says nothing of its worst; how many it processed at once does.

use std::hint::black_box;

use anyhow::Result;
use leasehold_reserve::{Config, Nanos, Order, Policy, Priority, Scheduler, Shielding, TaskId};

use crate::clock;
use crate::plot::{Axis, Figure, Marks, Panel, Series};
use crate::progress::Progress;
use crate::report::{Finding, Report, Row, row};
use crate::reservation::{Cycles, POLICIES, SHIELDINGS, contract, policy_name, shielding_name};
use crate::samples::{Samples, Spread};
use crate::study::{Options, Study};
use crate::unit::Unit;

/// From one instant at which all tenants wake up to the next.
const PERIOD: Nanos = 10_000_000_000;
/// What a tenant runs before it sleeps again.
const MOMENT: Nanos = 100;
/// Until when the others sleep.
const FOREVER: Nanos = 1 << 61;
/// Tenants that wake up where only a few do.
const FEW: u32 = 8;
const RING: u32 = 16;

/// The study; see the [module](self).
pub struct Decide;

struct Scale {
    tenants: &'static [u32],
    priorities: &'static [u32],
    /// Timed invocations of a point, unless they take longer than the time for one.
    invocations: u64,
    point_ns: u64,
}

const FULL: Scale = Scale {
    tenants: &[1, 10, 100, 1_000, 10_000],
    priorities: &[1, 16, 256],
    invocations: 200_000,
    point_ns: 500_000_000,
};
const QUICK: Scale = Scale {
    tenants: &[1, 100, 10_000],
    priorities: &[1, 256],
    invocations: 20_000,
    point_ns: 50_000_000,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    shielding: Shielding,
    policy: Policy,
    tenants: u32,
    /// How many of them ever wake up.
    awake: Awake,
    priorities: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awake {
    Few,
    All,
}

impl Awake {
    const BOTH: [Self; 2] = [Self::Few, Self::All];

    const fn name(self) -> &'static str {
        match self {
            Self::Few => "few",
            Self::All => "all",
        }
    }
}

struct Point {
    setting: Setting,
    decide_ns: Samples,
    touched: u32,
    timeouts: u32,
}

impl Study for Decide {
    fn name(&self) -> &'static str {
        "decide"
    }

    fn paper(&self) -> &'static str {
        "SPR §IV-A"
    }

    fn about(&self) -> &'static str {
        "Time of one invocation of the scheduler against the number of tenants whose timeouts \
         expire together, and of priorities; measured on this host."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let mut report = Report::new(self, options);
        let points = measured(self.name(), scale)?;
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points, scale);
        report.notes.push(format!(
            "timed with the time-stamp counter, {}; where all are awake, every invocation is for a \
             tenant whose record (some 1.4 KiB) no cache may hold any more; where few are, it is \
             for one of {FEW}",
            Cycles::calibrate().summary()
        ));
        report.figure = figure(&points);
        Ok(report)
    }
}

/// Every setting, timed on this host.
fn measured(name: &'static str, scale: &Scale) -> Result<Vec<Point>> {
    let mut settings = Vec::new();
    for shielding in SHIELDINGS {
        for policy in POLICIES {
            for &priorities in scale.priorities {
                for awake in Awake::BOTH {
                    settings.extend(scale.tenants.iter().map(|&tenants| Setting {
                        shielding,
                        policy,
                        tenants,
                        awake,
                        priorities,
                    }));
                }
            }
        }
    }
    let cycles = Cycles::calibrate();
    let mut progress = Progress::new(name, settings.len() as u64);
    let mut points = Vec::new();
    for setting in settings {
        progress.at(format!("{} tenants", setting.tenants));
        points.push(setting.measure(&cycles, scale)?);
        progress.step();
    }
    Ok(points)
}

impl Setting {
    fn measure(&self, cycles: &Cycles, scale: &Scale) -> Result<Point> {
        let mut point = Point {
            setting: *self,
            decide_ns: Samples::new(),
            touched: 0,
            timeouts: 0,
        };
        let mut scheduler = self.scheduler()?;
        let mut now = 0;
        let mut decision = scheduler.schedule(now);
        // The first round warms up what a scheduler has when it has run for a while.
        let mut since = None;
        while point.decide_ns.count() < scale.invocations
            && since.is_none_or(|since| clock::monotonic_ns() - since < scale.point_ns)
        {
            match decision.run {
                Some(task) => {
                    now += MOMENT;
                    sleep(&mut scheduler, task, now)?;
                }
                None => {
                    if now > 0 {
                        since = since.or_else(|| Some(clock::monotonic_ns()));
                    }
                    now = decision.timer.map_or(now, |timer| timer.max(now));
                }
            }
            let start = cycles.start();
            decision = black_box(scheduler.schedule(now));
            let taken = cycles.stop(start);
            if since.is_some() {
                point.decide_ns.record(cycles.nanoseconds(taken));
                point.touched = point.touched.max(decision.touched);
                point.timeouts = point.timeouts.max(decision.timeouts);
            }
        }
        Ok(point)
    }

    /// A scheduler with all tenants asleep.
    fn scheduler(&self) -> Result<Scheduler> {
        let mut scheduler = Scheduler::new(Config {
            order: Order::FixedPriority,
            shielding: self.shielding,
            servers: self.tenants,
            tasks: self.tenants,
        });
        for tenant in 0..self.tenants {
            // In an order that no list would like.
            let priority = (u64::from(tenant) * 0x9E37_79B9 % u64::from(self.priorities)) as u8;
            let contract = contract(PERIOD / 20_000, PERIOD, 0, self.policy, RING)
                .with_priority(Priority(priority));
            let server = scheduler.add_server(&contract, 0)?;
            let task = scheduler.add_task(server)?;
            match self.awake {
                Awake::Few if tenant >= FEW => scheduler.block(task, 0, Some(FOREVER))?,
                _ => sleep(&mut scheduler, task, 0)?,
            }
        }
        Ok(scheduler)
    }
}

/// A task sleeps until all wake up.
fn sleep(scheduler: &mut Scheduler, task: TaskId, now: Nanos) -> Result<()> {
    Ok(scheduler.block(task, now, Some((now / PERIOD + 1) * PERIOD))?)
}

impl Point {
    fn row(&self) -> Row {
        row([
            ("policy", shielding_name(self.setting.shielding).into()),
            ("server", policy_name(self.setting.policy).into()),
            ("tenants", self.setting.tenants.into()),
            ("priorities", self.setting.priorities.into()),
            ("awake", self.setting.awake.name().into()),
            ("decide_ns_p50", self.decide_ns.p50().into()),
            ("decide_ns_p99", self.decide_ns.p99().into()),
            ("touched_max", self.touched.into()),
            ("timeouts_max", self.timeouts.into()),
            ("platform", "cell".into()),
        ])
    }
}

fn curve(
    points: &[Point],
    shielding: Shielding,
    policy: Policy,
    awake: Awake,
    priorities: u32,
) -> impl DoubleEndedIterator<Item = &Point> {
    points.iter().filter(move |point| {
        let setting = point.setting;
        (setting.shielding, setting.policy) == (shielding, policy)
            && (setting.awake, setting.priorities) == (awake, priorities)
    })
}

fn findings(points: &[Point], scale: &Scale) -> Vec<Finding> {
    let mut findings = Vec::new();
    for policy in POLICIES {
        for &priorities in scale.priorities {
            let of = |awake| curve(points, Shielding::Shielded, policy, awake, priorities);
            let mut few = of(Awake::Few);
            let (least, most) = (few.next(), few.next_back());
            let growth = most
                .zip(least)
                .and_then(|(most, least)| most.decide_ns.ratio_to(&least.decide_ns, 0.5));
            let tenants = most.map_or(0, |point| point.setting.tenants);
            let title = format!(
                "shielded, {}, {priorities} priorities, {} tenants",
                policy_name(policy),
                Unit::Count.humane(f64::from(tenants))
            );
            findings.push(Finding::at_most(
                format!("{title}, few awake: a decision against one with a single tenant"),
                Unit::Ratio,
                growth,
                FLAT,
            ));
            let all = of(Awake::All).next_back();
            findings.push(Finding::at_most(
                format!("{title}, all awake: median decision"),
                Unit::Nanoseconds,
                all.and_then(|point| point.decide_ns.p50())
                    .map(|ns| ns as f64),
                COLD_NS,
            ));
        }
    }
    let touched = points
        .iter()
        .filter(|point| point.setting.shielding == Shielding::Shielded)
        .map(|point| f64::from(point.touched))
        .reduce(f64::max);
    findings.push(Finding::at_most(
        "shielded: reservations touched by an invocation",
        Unit::Count,
        touched,
        2.0,
    ));
    findings
}

/// By how much a decision may take longer with most tenants than with one and still count as flat.
const FLAT: f64 = 1.5;
/// What a decision may take when nothing that it needs is in a cache.
const COLD_NS: f64 = 1_000.0;

fn figure(points: &[Point]) -> Figure {
    let panel = |(policy, awake): (Policy, Awake)| {
        let mut priorities: Vec<u32> = points.iter().map(|p| p.setting.priorities).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let series = SHIELDINGS
            .into_iter()
            .flat_map(|shielding| priorities.iter().map(move |&levels| (shielding, levels)))
            .map(|(shielding, levels)| Series {
                name: format!("{}, {levels} prio.", shielding_name(shielding)),
                points: curve(points, shielding, policy, awake, levels)
                    .filter_map(|point| {
                        let spread = Spread::of_samples(&point.decide_ns)?;
                        Some((f64::from(point.setting.tenants), spread))
                    })
                    .collect(),
            })
            .collect();
        Panel {
            y: Axis::logarithmic(
                format!("{}, {} awake", policy_name(policy), awake.name()),
                Unit::Nanoseconds,
            ),
            marks: Marks::Curves {
                x: Axis::logarithmic("tenants", Unit::Count),
                series,
            },
        }
    };
    Figure {
        title: "One invocation of the scheduler".into(),
        panels: POLICIES
            .into_iter()
            .flat_map(|policy| Awake::BOTH.map(|awake| (policy, awake)))
            .map(panel)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Awake, FEW, Scale, measured};
    use leasehold_reserve::Shielding;

    #[test]
    fn an_eager_invocation_touches_all_tenants_and_a_shielded_one_two() {
        let scale = Scale {
            tenants: &[50],
            priorities: &[4],
            invocations: 200,
            point_ns: 1_000_000_000,
        };
        for point in measured("test", &scale).expect("measured") {
            let awake = match point.setting.awake {
                Awake::Few => FEW,
                Awake::All => 50,
            };
            match point.setting.shielding {
                Shielding::Eager => assert!(point.timeouts >= awake),
                Shielding::Shielded => assert!(point.touched <= 2 && point.timeouts == 1),
            }
            assert!(point.decide_ns.p50() > Some(0));
        }
    }
}
