//! `storm`: a preemption storm (SPR §V-C, table III; attack A3).
//!
//! A victim of low priority computes within its reservation while a task of higher priority sleeps
//! for 10 µs at a time, again and again. Each time the victim pays for a timer interrupt and a
//! context switch with its own budget, and for reloading what the attacker evicted from the caches.
//! A non-preemptive region bounds how often, and a shielded scheduler charges the interrupt and the
//! dispatch of the victim to the attacker. Throughput is the victim's work per period, relative to
//! that without an attack. On a real cell, where the host takes some of every period, it is the
//! work per time that the victim was charged. Tests, not this study, show that the victim gets its
//! budget.

use anyhow::Result;
use leasehold_reserve::simulate::{Behaviour, CostModel, Simulation, Tally};
use leasehold_reserve::{Config, Nanos, Order, Policy, Shielding};

use crate::harness::contest::{self, Contest, Contestant};
use crate::harness::experiment::{Options, Study};
use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::{Finding, Report, Row, row};
use crate::harness::samples::{Spread, ratio_value};
use crate::harness::unit::Unit;
use crate::processor::reservation::{
    CELL, MACHINES, MS, Machine, PLATFORMS, POLICIES, SHIELDINGS, US, contract, note_on_machines,
    platform_keys, policy_name, shielding_name,
};

/// How long the attacker sleeps (SPR §V-C).
const NAP: Nanos = 10 * US;
/// Of the non-preemptive region.
const REGIONS: [Nanos; 3] = [0, MS, 2 * MS];
const RING: u32 = 32;
/// The required part of the throughput with the longest region.
const ENOUGH: f64 = 0.99;

/// The study; see the [module](self).
pub(crate) struct Storm;

struct Scale {
    /// Of the victim; its period is five times as long, as in the paper.
    budget: Nanos,
    cell: CellScale,
}

/// The same on a real cell.
struct CellScale {
    budget: Nanos,
    policies: &'static [Policy],
    /// Periods with the attack, each of which is compared with those around it, without.
    rounds: usize,
    /// How often a scene is played that is judged by its throughput, or that has no attacker: the
    /// host's own disturbance of one period is several times as much as may be lost. A victim
    /// prints a limited number of lines, so that more rounds in one play would not be seen.
    judged_plays: usize,
}

const FULL: Scale = Scale {
    budget: 1_000 * MS,
    cell: CellScale {
        budget: 50 * MS,
        policies: &POLICIES,
        rounds: 16,
        judged_plays: 6,
    },
};
const QUICK: Scale = Scale {
    budget: 100 * MS,
    cell: CellScale {
        budget: 30 * MS,
        policies: &[Policy::Sporadic],
        rounds: 2,
        judged_plays: 2,
    },
};
/// Bytes that the attacker on a real cell walks through to evict the caches: more than any
/// first-level cache, and a part of the second level.
const CELL_EVICTED: u64 = 256 << 10;
/// Products of matrices that the victim on a real cell counts at a time.
const PRODUCTS: u64 = 1;
/// How long after the attack began a victim on a real cell wakes up.
const HEAD_START: Nanos = MS;
/// The largest difference that may be measured without an attack: the allowed loss.
const NOISE: f64 = 0.01;

/// The attacker's actions between two naps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attack {
    None,
    TimerFlood,
    Cache,
}

impl Attack {
    const ALL: [Self; 3] = [Self::None, Self::TimerFlood, Self::Cache];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TimerFlood => "timer_flood",
            Self::Cache => "cache",
        }
    }

    /// Time that the attacker runs: enough for its call, or to evict the caches.
    const fn run(self) -> Nanos {
        match self {
            Self::None => 0,
            Self::TimerFlood => US / 2,
            Self::Cache => 20 * US,
        }
    }

    /// Time that the victim spends on reloading its caches: a few lines, or 128 KiB from the
    /// next level at 25 GB/s.
    const fn refill(self) -> Nanos {
        match self {
            Self::None => 0,
            Self::TimerFlood => US / 4,
            Self::Cache => 5 * US,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scene {
    platform: &'static str,
    shielding: Shielding,
    policy: Policy,
    region: Nanos,
    attack: Attack,
}

struct Point {
    scene: Scene,
    /// The period in which the victim was preempted most often.
    worst: Worst,
    /// Of each round.
    throughput: Vec<f64>,
}

/// The victim's work in a period.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// Simulated: time. On a real cell: matrix products for each second that it was charged.
    done: f64,
    /// Its own time. A busy host may look late at a real cell, and see more than one budget.
    charged: Nanos,
    preemptions: u64,
}

impl Work {
    /// In the middle between this and another: what drifts from one to the other is the same there.
    fn mean(&self, other: &Self) -> Self {
        Self {
            done: f64::midpoint(self.done, other.done),
            ..*self
        }
    }
}

/// How often a victim was preempted while it was charged some time.
#[derive(Debug, Default, Clone, Copy)]
struct Worst {
    preemptions: u64,
    charged: Nanos,
}

impl Study for Storm {
    fn name(&self) -> &'static str {
        "storm"
    }

    fn paper(&self) -> &'static str {
        "SPR table III (A3)"
    }

    fn about(&self) -> &'static str {
        "Work that a victim gets done per period while a task of higher priority preempts it \
         after every 10 µs of sleep, for three lengths of its non-preemptive region."
    }

    fn run(&self, options: &Options) -> Result<Report> {
        let scale = if options.quick { &QUICK } else { &FULL };
        let mut report = Report::new(self, options);
        let mut points = simulated(self.name(), scale)?;
        points.extend(measured(self.name(), &scale.cell, options)?);
        report.rows = points.iter().map(Point::row).collect();
        report.findings = findings(&points, scale);
        report.notes.push(note_on_machines());
        report.notes.push(format!(
            "a preempted victim spends {} (timer_flood) or {} (cache) on reloading its caches; \
             eager scheduling has no non-preemptive regions",
            Unit::Nanoseconds.humane(Attack::TimerFlood.refill() as f64),
            Unit::Nanoseconds.humane(Attack::Cache.refill() as f64)
        ));
        report.notes.push(note_on_interrupts());
        report.notes.push(contest::note(options)?);
        report.notes.push(format!(
            "cell: the victim's budget is {} in every {}; the attacker attacks in every second \
             period, and throughput is products of matrices per processor time that the victim was \
             charged, over that in the periods before and after, without attack: the same victim in \
             the same memory. Preemptions are the most in a period. The cache attack walks through {} KiB",
            Unit::Nanoseconds.humane(scale.cell.budget as f64),
            Unit::Nanoseconds.humane(scale.cell.period() as f64),
            CELL_EVICTED >> 10
        ));
        report.figure = figure(&points);
        Ok(report)
    }
}

/// The scenes of a platform in the order of the rows; of those with the same region, the one
/// without an attack comes first.
fn scenes(platform: &'static str, policies: &[Policy]) -> Vec<Scene> {
    let mut scenes = Vec::new();
    for &policy in policies {
        for shielding in SHIELDINGS {
            for region in REGIONS {
                scenes.extend(Attack::ALL.map(|attack| Scene {
                    platform,
                    shielding,
                    policy,
                    region,
                    attack,
                }));
            }
        }
    }
    scenes
}

/// Every scene on every simulated machine.
fn simulated(name: &'static str, scale: &Scale) -> Result<Vec<Point>> {
    let groups: Vec<_> = MACHINES
        .iter()
        .map(|machine| (machine, scenes(machine.platform, &POLICIES)))
        .collect();
    let count: usize = groups.iter().map(|(_, scenes)| scenes.len()).sum();
    let mut progress = Progress::new(name, count as u64);
    let mut points: Vec<Point> = Vec::new();
    for (machine, scenes) in groups {
        for group in scenes.chunks(Attack::ALL.len()) {
            let mut undisturbed = None;
            for scene in group {
                progress.at(scene.attack.name());
                let mut point = Point::new(*scene);
                point.add(&scene.simulate(machine, scale)?, &mut undisturbed);
                points.push(point);
                progress.step();
            }
        }
    }
    Ok(points)
}

/// Every scene on a real cell.
fn measured(name: &'static str, scale: &CellScale, options: &Options) -> Result<Vec<Point>> {
    let scenes = scenes(CELL, scale.policies);
    let mut progress = Progress::new(name, scenes.len() as u64);
    let mut points = Vec::new();
    for scene in scenes {
        progress.at(format!("a cell, {}", scene.attack.name()));
        let mut point = Point::new(scene);
        // Without an attack only noise is visible, and it must be as small as under the attack.
        let plays = if scene.is_judged() || scene.attack == Attack::None {
            scale.judged_plays
        } else {
            1
        };
        for _ in 0..plays {
            for [attacked, alone] in scene.play(scale, options)? {
                point.add(&attacked, &mut Some(alone.done));
            }
        }
        points.push(point);
        progress.step();
    }
    Ok(points)
}

impl CellScale {
    /// Of victim and attacker: five budgets, as in the paper.
    const fn period(&self) -> Nanos {
        5 * self.budget
    }
}

impl Scene {
    fn simulate(&self, machine: &Machine, scale: &Scale) -> Result<Work> {
        let config = Config {
            order: Order::FixedPriority,
            shielding: self.shielding,
            servers: 2,
            tasks: 2,
            seed: 0,
        };
        let mut simulation = Simulation::new(config, machine.costs, Tally::new());
        let period = 5 * scale.budget;
        let reservation = |budget, priority| contract(budget, period, priority, self.policy, RING);
        let victim = reservation(scale.budget, 100).with_nonpreemptive(self.region)?;
        let victim = simulation.server(&victim)?;
        simulation.task(victim, Behaviour::Busy)?;
        // It may go on for longer than the victim's budget lasts, whatever a nap costs.
        let attacker = simulation.server(&reservation(3 * scale.budget, 200))?;
        if self.attack != Attack::None {
            let naps = Behaviour::Alternating {
                run: self.attack.run(),
                sleep: NAP,
            };
            let task = simulation.task(attacker, naps)?;
            simulation.set_eviction(task, self.attack.refill());
        }
        simulation.run_until(period)?;
        let tally = simulation.sink().server(victim);
        Ok(Work {
            done: tally.work() as f64,
            charged: tally.used(),
            preemptions: tally.preemptions(),
        })
    }

    /// Rounds on a real cell: the victim's work in a period with the attack, and in those around it.
    fn play(&self, scale: &CellScale, options: &Options) -> Result<Vec<[Work; 2]>> {
        let contest = Contest::new(options, self.shielding, 3)?;
        // Awake throughout: after each pause a processor computes faster for a while, by more than
        // the measured effect, and an attack reduces the number of pauses.
        let _awake = contest.enter_unreserved("spin", &[])?;
        let (period, round) = (scale.period(), 2 * scale.period());
        let reservation = |budget: Nanos, priority: u8| {
            let policy = policy_name(self.policy);
            format!(
                "budget={budget}ns,period={period}ns,priority={priority},policy={policy},\
                 replenishments={RING}"
            )
        };
        let evicted = match self.attack {
            Attack::Cache => CELL_EVICTED,
            Attack::None | Attack::TimerFlood => 0,
        };
        let attackers = u32::from(self.attack != Attack::None);
        let _attackers = contest.enter_attackers(
            "timer-flood",
            attackers,
            &[NAP, evicted, period, round],
            // A deferrable one may have two budgets in a row, and the victim still gets its own.
            &reservation(2 * scale.budget, 200),
        )?;
        let mut cpu = reservation(scale.budget, 100);
        if self.region > 0 {
            cpu.push_str(&format!(",nonpreemptive={}ns", self.region));
        }
        let matrix = contest.load("matrix")?;
        let began = contest::sleep_until_multiple(round, HEAD_START) - HEAD_START;
        let victim = contest.enter("matrix", &matrix, &[PRODUCTS], &cpu)?;
        // Looked at where its budget is long used up and has not come back.
        let mut looks = (1..).map(|periods| began + periods * period - HEAD_START);
        let mut look = || {
            contest::sleep_until(looks.next().unwrap_or(began));
            Account::of(&victim)
        };
        // The first round is the victim's start.
        let (_, mut before) = (look()?, look()?);
        let (mut rounds, mut alone_before) = (Vec::new(), None);
        for _ in 0..scale.rounds {
            let (attacked, alone) = (look()?, look()?);
            // On a busy host a look may be late, and see parts of two periods.
            let used = [attacked.used - before.used, alone.used - attacked.used];
            let whole = |used: &Nanos| used.abs_diff(scale.budget) < scale.budget / 4;
            // On a very busy host it may not have begun to count.
            let works = attacked.since(&before).zip(alone.since(&attacked));
            let works = works.filter(|_| used.iter().all(whole));
            if let Some((attacked, after)) = &works {
                let around = after.mean(alone_before.as_ref().unwrap_or(after));
                rounds.push([*attacked, around]);
            }
            alone_before = works.map(|(_, after)| after);
            before = alone;
        }
        Ok(rounds)
    }

    /// Whether its throughput is to be that of an undisturbed victim.
    fn is_judged(&self) -> bool {
        self.shielding == Shielding::Shielded && self.region == REGIONS[2]
    }

    /// The simulated machine; none is a real cell.
    fn machine(&self) -> Option<Machine> {
        MACHINES
            .into_iter()
            .find(|machine| machine.platform == self.platform)
    }

    /// The part of a budget that SPR eq. (2) allows to be lost, as a share of it: ⌈b/η⌉
    /// preemptions, each with its overhead and its refill.
    fn allowed_loss(&self, budget: Nanos) -> Option<f64> {
        let preemptions = budget.div_ceil(Some(self.region).filter(|region| *region > 0)?);
        let costs: CostModel = self.machine()?.costs;
        let each = costs.preemption(RING) + self.attack.refill();
        Some((preemptions * each) as f64 / budget as f64)
    }
}

/// The processor time and the work of a victim on a real cell by some instant.
struct Account {
    /// `None` before it began to count.
    products: Option<u64>,
    used: Nanos,
    preemptions: u64,
}

impl Account {
    fn of(victim: &Contestant) -> Result<Self> {
        let done = victim.lines("done");
        let products = done.last().and_then(|line| line.first()).copied();
        let supply = victim.supply()?;
        Ok(Self {
            products,
            used: supply.used,
            preemptions: supply.preemptions,
        })
    }

    /// Its work since an earlier account; `None` if it did not count then.
    fn since(&self, before: &Self) -> Option<Work> {
        let products = self.products?.checked_sub(before.products?)?;
        let charged = self.used - before.used;
        Some(Work {
            done: products as f64 / (charged as f64 / 1e9),
            charged,
            preemptions: self.preemptions - before.preemptions,
        })
    }
}

impl Point {
    /// Nothing measured yet.
    fn new(scene: Scene) -> Self {
        Self {
            scene,
            worst: Worst::default(),
            throughput: Vec::new(),
        }
    }

    /// Adds a round, in which the victim without an attack, which comes first, did `undisturbed`.
    fn add(&mut self, work: &Work, undisturbed: &mut Option<f64>) {
        let base = *undisturbed.get_or_insert(work.done);
        self.throughput.push(work.done / base);
        if work.preemptions >= self.worst.preemptions {
            self.worst = Worst {
                preemptions: work.preemptions,
                charged: work.charged,
            };
        }
    }

    /// Preemptions for each non-preemptive region that the victim was charged for: at most one,
    /// because each leaves the victim a whole region before the next. None without regions.
    fn preemptions_per_region(&self) -> Option<f64> {
        let region = Some(self.scene.region).filter(|region| *region > 0)?;
        let regions = self.worst.charged.div_ceil(region);
        (regions > 0).then(|| self.worst.preemptions as f64 / regions as f64)
    }

    /// The median of the rounds.
    fn throughput(&self) -> Option<f64> {
        Spread::of(self.throughput.iter().copied()).map(|spread| spread.median)
    }

    fn row(&self) -> Row {
        let [platform, machine] = platform_keys(self.scene.platform);
        row([
            ("policy", shielding_name(self.scene.shielding).into()),
            ("server", policy_name(self.scene.policy).into()),
            ("attack", self.scene.attack.name().into()),
            ("eta_ns", self.scene.region.into()),
            ("throughput_ratio", ratio_value(self.throughput())),
            platform,
            machine,
            ("preemptions", self.worst.preemptions.into()),
            ("charged_ns", self.worst.charged.into()),
        ])
    }
}

fn findings(points: &[Point], scale: &Scale) -> Vec<Finding> {
    let attacked = |point: &&Point| {
        point.scene.shielding == Shielding::Shielded && point.scene.attack != Attack::None
    };
    let mut findings = Vec::new();
    for point in points.iter().filter(attacked) {
        let scene = point.scene;
        let title = format!(
            "{}, {}, {}",
            scene.platform,
            policy_name(scene.policy),
            scene.attack.name()
        );
        if scene.is_judged() {
            findings.push(Finding::at_least(
                format!("{title}: throughput with η = 2 ms"),
                Unit::Ratio,
                point.throughput(),
                ENOUGH,
            ));
        }
        if let Some(allowed) = scene.allowed_loss(scale.budget) {
            let lost = point.throughput().map(|throughput| 1.0 - throughput);
            findings.push(Finding::at_most(
                format!(
                    "{title}, η = {}: lost, against what SPR eq. (2) allows",
                    Unit::Nanoseconds.tick(scene.region as f64)
                ),
                Unit::Ratio,
                lost.map(|lost| lost / allowed),
                1.0,
            ));
        }
        if scene.platform == CELL && scene.region > 0 {
            findings.push(Finding::at_most(
                format!(
                    "{title}, η = {}: preemptions for each region that was charged",
                    Unit::Nanoseconds.tick(scene.region as f64)
                ),
                Unit::Ratio,
                point.preemptions_per_region(),
                1.0,
            ));
        }
    }
    findings.extend(findings_on_a_cell(points));
    findings
}

/// The conditions for the measurements on a real cell to count: undisturbed victims are, and the
/// attack works on eager ones.
fn findings_on_a_cell(points: &[Point]) -> Vec<Finding> {
    let cell = || points.iter().filter(|point| point.scene.platform == CELL);
    let quiet = cell().filter(|point| point.scene.attack == Attack::None);
    let noise = quiet
        .filter_map(|point| Some((point.throughput()? - 1.0).abs()))
        .reduce(f64::max);
    let eager = cell().find(|point| {
        point.scene.shielding == Shielding::Eager && point.scene.attack == Attack::TimerFlood
    });
    let Some(eager) = eager else {
        return Vec::new();
    };
    let charged = eager.worst.charged.max(1);
    let preemptions = eager.worst.preemptions as f64 * MS as f64 / charged as f64;
    vec![
        Finding::at_most(
            "cell: without an attack, what is measured of one",
            Unit::Ratio,
            noise,
            NOISE,
        ),
        Finding::at_least(
            "cell: eager, preemptions by a timer flood for each millisecond of the victim's",
            Unit::Count,
            Some(preemptions),
            2.0,
        ),
    ]
}

/// The note on the charges of a preemption where an interrupt is expensive.
fn note_on_interrupts() -> String {
    let costs = MACHINES[1].costs;
    let interrupt = costs.interrupt + costs.handler;
    format!(
        "in a virtual machine a preemption takes {}, 1 % of a region of 2 ms; {} of it are the \
         interrupt, and {} the way back, which a shielded scheduler charges to the attacker, for which \
         they are, and an eager one to the victim",
        Unit::Nanoseconds.humane(costs.preemption(1) as f64),
        Unit::Nanoseconds.humane(interrupt as f64),
        Unit::Nanoseconds.humane(costs.redispatch() as f64)
    )
}

fn figure(points: &[Point]) -> Figure {
    let groups: Vec<String> = REGIONS
        .iter()
        .map(|region| match region {
            0 => "η = 0".into(),
            region => format!("η = {}", Unit::Nanoseconds.tick(*region as f64)),
        })
        .collect();
    let series = |platform: &str| {
        let of = |shielding, attack: Attack, name: String| Series {
            name,
            points: points
                .iter()
                .filter(|point| {
                    let scene = point.scene;
                    scene.platform == platform
                        && scene.policy == Policy::Sporadic
                        && scene.shielding == shielding
                        && scene.attack == attack
                })
                .filter_map(|point| {
                    let group = REGIONS
                        .iter()
                        .position(|region| *region == point.scene.region)?;
                    Some((group, Spread::of(point.throughput.iter().copied())?))
                })
                .collect(),
        };
        vec![
            of(Shielding::Eager, Attack::TimerFlood, "eager, flood".into()),
            of(
                Shielding::Shielded,
                Attack::TimerFlood,
                "shielded, flood".into(),
            ),
            of(Shielding::Eager, Attack::Cache, "eager, cache".into()),
            of(Shielding::Shielded, Attack::Cache, "shielded, cache".into()),
        ]
    };
    Figure {
        title: "Preemption storm (A3), sporadic servers".into(),
        panels: PLATFORMS
            .into_iter()
            .map(|platform| Panel {
                y: Axis::linear(format!("throughput, {platform}"), Unit::Ratio),
                marks: Marks::Bars {
                    title: "non-preemptive region".into(),
                    groups: groups.clone(),
                    series: series(platform),
                },
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Attack, MACHINES, MS, QUICK, REGIONS, Scale, Scene, findings, simulated};
    use leasehold_reserve::{Policy, Shielding};

    const SMALL: Scale = Scale {
        budget: 20 * MS,
        ..QUICK
    };

    #[test]
    fn a_region_bounds_the_preemptions_and_the_loss() {
        let points = simulated("test", &SMALL).expect("simulated");
        for finding in findings(&points, &SMALL) {
            assert!(finding.holds(), "{finding}");
        }
        for point in points {
            let region = point.scene.region;
            if point.scene.shielding == Shielding::Shielded && region > 0 {
                assert!(point.worst.preemptions < SMALL.budget.div_ceil(region));
                assert!(
                    point
                        .preemptions_per_region()
                        .is_some_and(|each| each < 1.0)
                );
            }
        }
    }

    #[test]
    fn without_a_region_the_storm_takes_much_of_the_throughput_of_the_server_that_pays_for_interrupts()
     {
        let kept = |shielding| {
            let work = |attack| {
                let scene = Scene {
                    platform: MACHINES[1].platform,
                    shielding,
                    policy: Policy::Sporadic,
                    region: REGIONS[0],
                    attack,
                };
                scene
                    .simulate(&MACHINES[1], &SMALL)
                    .expect("simulated")
                    .done
            };
            work(Attack::TimerFlood) / work(Attack::None)
        };
        assert!(kept(Shielding::Eager) < 0.5);
        // Reloading what the attacker evicted, for every ten microseconds, is left to it.
        let kept = kept(Shielding::Shielded);
        assert!((0.95..0.99).contains(&kept), "{kept}");
    }
}
