//! Detects charges that are too low: every real cost is compared with its charge.
//!
//! A calibrated bound describes the host at the time of the measurement. Slower memory, a new
//! kernel, or a neighbour of the virtual machine can invalidate it. So a cell keeps, for each
//! [class](CostClass) of work,
//!
//! - a [sketch](Sketch) of the ratios of measured to charged time, from which quantiles can be told
//!   with their confidence, and
//! - a [sequential test](Drift) of whether the charge is exceeded more often than stated.
//!
//! When the test says so, the class costs more for tenants that are admitted from then on. What a
//! tenant was charged when it was admitted stays as it is. A price falls when a lower one would
//! have covered enough costs for the confidence of all quantiles, but never below that of the
//! profile. A disturbance of some seconds therefore does not raise prices for ever.
//!
//! Nothing here allocates: a class is an array of counters and five numbers.

use crate::confidence::{QuantileBound, larger_allowed};
use leasehold_reclaim::{Picos, Statement};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A class of work whose cost is charged in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostClass {
    /// The end of a top-level tenant whose memory is in the pool.
    End,
    /// The end of a top-level tenant that pages.
    EndOfPaging,
}

impl CostClass {
    /// All classes.
    pub const ALL: [CostClass; 2] = [CostClass::End, CostClass::EndOfPaging];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            CostClass::End => "end",
            CostClass::EndOfPaging => "end of a tenant that pages",
        }
    }

    /// That of a top-level tenant that pages or not.
    pub(crate) const fn of_root(pages: bool) -> Self {
        match pages {
            true => CostClass::EndOfPaging,
            false => CostClass::End,
        }
    }
}

/// A factor on what the profile charges, in 1,024ths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(u32);

impl Price {
    /// The value in the profile.
    pub const BASE: Price = Price(1024);

    /// The highest price: a larger ratio is an error of measurement.
    const HIGHEST: Price = Price(64 * 1024);

    /// Converts a time at the profile's price to this price, rounded up.
    pub(crate) fn of(self, base_ns: u64) -> u64 {
        let priced = u128::from(base_ns) * u128::from(self.0);
        u64::try_from(priced.div_ceil(1024)).unwrap_or(u64::MAX)
    }

    /// Converts a budget at this price to the profile's price, rounded down.
    pub(crate) fn buys(self, budget_ns: u64) -> u64 {
        let base = u128::from(budget_ns) * 1024 / u128::from(self.0);
        u64::try_from(base).unwrap_or(u64::MAX)
    }

    /// The factor on the price of the profile.
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 1024.0
    }

    /// Converts an account at the profile's price to this price.
    pub(crate) fn of_statement(self, mut statement: Statement) -> Statement {
        let price = |ps: &mut Picos| ps.0 = self.of(ps.0);
        let Statement {
            budget,
            charged,
            carved,
            left,
            peak,
            rows,
            ..
        } = &mut statement;
        [budget, charged, carved, left, peak]
            .into_iter()
            .for_each(price);
        for row in rows {
            row.ps.0 = self.of(row.ps.0);
        }
        statement
    }

    /// The next higher one: a quarter more.
    fn raised(self) -> Price {
        Price(self.0 + self.0.div_ceil(4)).min(Self::HIGHEST)
    }
}

/// Counts of ratios on a logarithmic scale: each bucket is an eighth of an octave wide, so that a
/// quantile is told to within 9 %, always upwards.
#[derive(Debug, Clone)]
pub(crate) struct Sketch {
    counts: [u64; Sketch::BUCKETS],
    samples: u64,
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            counts: [0; Self::BUCKETS],
            samples: 0,
        }
    }
}

impl Sketch {
    /// From 1/256 to 256 times the charge.
    const BUCKETS: usize = 16 * Self::PER_OCTAVE as usize;
    const PER_OCTAVE: u32 = 8;
    /// The lowest ratio that has a bucket of its own, in 65,536ths: 1/256.
    const LOWEST: u64 = 256;

    /// Counts what was measured against what was charged.
    pub(crate) fn record(&mut self, measured_ns: u64, charged_ns: u64) {
        self.counts[Self::bucket(measured_ns, charged_ns)] += 1;
        self.samples += 1;
    }

    /// How many were counted.
    pub(crate) const fn samples(&self) -> u64 {
        self.samples
    }

    fn bucket(measured_ns: u64, charged_ns: u64) -> usize {
        let ratio = u128::from(measured_ns) * 65_536 / u128::from(charged_ns.max(1));
        let ratio = u64::try_from(ratio).unwrap_or(u64::MAX).max(Self::LOWEST);
        let octave = ratio.ilog2();
        // The three bits below the leading one.
        let eighth = (ratio >> (octave - 3)) & 7;
        let bucket = (octave - Self::LOWEST.ilog2()) * Self::PER_OCTAVE + eighth as u32;
        (bucket as usize).min(Self::BUCKETS - 1)
    }

    /// The largest ratio that a bucket counts.
    fn upper(bucket: usize) -> f64 {
        let (octave, eighth) = (
            bucket as u32 / Self::PER_OCTAVE,
            bucket as u32 % Self::PER_OCTAVE,
        );
        let of_octave = Self::LOWEST as f64 / 65_536.0 * f64::from(1_u32 << octave);
        of_octave * (1.0 + f64::from(eighth + 1) / 8.0)
    }

    /// Returns the bound that all but one in `one_in` ratios stay below, with this confidence;
    /// `None` if too few were counted.
    pub(crate) fn bound(&self, one_in: u64, confidence: f64) -> Option<QuantileBound> {
        let mut larger = larger_allowed(self.samples, one_in, confidence)?;
        let bucket = self.counts.iter().enumerate().rev().find(|(_, count)| {
            let found = **count > larger;
            larger = larger.saturating_sub(**count);
            found
        });
        let (bucket, _) = bucket?;
        Some(QuantileBound {
            one_in,
            confidence,
            samples: self.samples,
            ratio: Self::upper(bucket),
        })
    }
}

/// A sequential test of whether a charge is exceeded too often.
///
/// The hypothesis is that it is exceeded by at most one in 10,000, as is stated. Each observation
/// moves the logarithm of a likelihood ratio against «one in 100»: up where the charge was
/// exceeded, a little down where it was not, and never below zero (a CUSUM test). An alarm is a
/// ratio of a million. While the hypothesis holds there is, on average, at most one alarm in a
/// million observations; one outlier is none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Drift {
    /// Base 2, in 2²⁰ths.
    evidence: u32,
}

impl Drift {
    /// log₂(0.01 ÷ 0.0001).
    const EXCEEDED: u32 = 6_966_588;
    /// log₂(0.9999 ÷ 0.99).
    const WITHIN: u32 = 15_053;
    /// log₂(1,000,000), rounded up.
    const ALARM: u32 = 20_899_765;

    /// Nothing was observed yet.
    pub(crate) const NEW: Self = Self { evidence: 0 };

    /// So many observations that were within the charge.
    pub(crate) fn within(&mut self, observations: u64) {
        let against = observations.saturating_mul(Self::WITHIN.into());
        let against = u32::try_from(against).unwrap_or(u32::MAX);
        self.evidence = self.evidence.saturating_sub(against);
    }

    /// The next observation; true is an alarm, after which the test begins anew.
    pub(crate) fn observe(&mut self, exceeded: bool) -> bool {
        self.evidence = match exceeded {
            true => self.evidence + Self::EXCEEDED,
            false => self.evidence.saturating_sub(Self::WITHIN),
        };
        let alarm = self.evidence >= Self::ALARM;
        if alarm {
            self.evidence = 0;
        }
        alarm
    }

    /// Whether no evidence against the charge has accumulated.
    const fn is_quiet(self) -> bool {
        self.evidence == 0
    }
}

/// The state of a class.
#[derive(Debug, Clone)]
struct Class {
    sketch: Sketch,
    drift: Drift,
    price: Price,
    /// The smallest ratio of cost to base charge, in 1,024ths, among costs above the price since
    /// the evidence was last zero.
    least_exceeding: u64,
    exceeded: u64,
    alarms: u32,
    /// The ratios since the price was set or confirmed.
    since: Sketch,
}

impl Default for Class {
    fn default() -> Self {
        Self {
            sketch: Sketch::default(),
            drift: Drift::default(),
            price: Price::BASE,
            least_exceeding: u64::MAX,
            exceeded: 0,
            alarms: 0,
            since: Sketch::default(),
        }
    }
}

impl Class {
    /// The number of costs after which a lower price is considered. It is large enough for a
    /// quantile's bound to leave some costs out.
    const TRIAL: u64 = 1 << 17;

    /// Records a cost that was charged something; returns whether the price rises.
    fn observe(&mut self, measured_ns: u64, base_ns: u64, paid: Price) -> bool {
        self.sketch.record(measured_ns, base_ns);
        self.exceeded += u64::from(measured_ns > paid.of(base_ns));
        // The present price applies: tenants that were admitted long ago show present costs as
        // well.
        let exceeds = measured_ns > self.price.of(base_ns);
        if self.drift.is_quiet() {
            self.least_exceeding = u64::MAX;
        }
        if exceeds {
            let ratio = u128::from(measured_ns) * 1024 / u128::from(base_ns);
            let ratio = u64::try_from(ratio).unwrap_or(u64::MAX);
            self.least_exceeding = self.least_exceeding.min(ratio);
        }
        self.since.record(measured_ns, base_ns);
        if !self.drift.observe(exceeds) {
            if self.since.samples() == Self::TRIAL {
                self.fall();
            }
            return false;
        }
        self.since = Sketch::default();
        self.alarms += 1;
        // At least one step, and as many as cover the smallest exceeding cost. If that is not
        // enough, there is another alarm.
        let before = self.price;
        self.price = self.price.raised();
        while u64::from(self.price.0) < self.least_exceeding && self.price < Price::HIGHEST {
            self.price = self.price.raised();
        }
        self.least_exceeding = u64::MAX;
        self.price > before
    }

    /// Lowers the price to the lowest that would have covered all but the stated share of the costs
    /// of a trial, if that is lower.
    fn fall(&mut self) {
        let trial = std::mem::take(&mut self.since);
        let Some(bound) = trial.bound(ONE_IN, CONFIDENCE) else {
            return;
        };
        let mut price = Price::BASE;
        while price.factor() < bound.ratio && price < self.price {
            price = price.raised();
        }
        self.price = self.price.min(price);
    }
}

/// The report of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassCosts {
    /// Which one.
    pub class: CostClass,
    /// Costs that were compared with their charge.
    pub samples: u64,
    /// How many were more than their tenant had been charged.
    pub exceeded: u64,
    /// Alarms that the charge does not hold.
    pub drifts: u32,
    /// The present charge of tenants, as a factor on the profile.
    pub price: Price,
    /// The bound of measured ÷ charged (at the profile's price) that all but one in 10,000 costs
    /// stay below, with a confidence of 95 %; `None` while there are too few costs.
    pub bound: Option<QuantileBound>,
}

/// The confidence with which quantiles are stated.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// The exceptions that a bound has.
pub(crate) const ONE_IN: u64 = 10_000;

/// The prices for tenants that are admitted now: set by a cell's thread, read where tenants are admitted. At first those
/// of the profile.
#[derive(Debug)]
pub struct PresentPrices([AtomicU32; CostClass::ALL.len()]);

impl Default for PresentPrices {
    fn default() -> Self {
        Self([const { AtomicU32::new(Price::BASE.0) }; CostClass::ALL.len()])
    }
}

impl PresentPrices {
    /// That of a class.
    pub fn of(&self, class: CostClass) -> Price {
        Price(self.0[class as usize].load(Relaxed))
    }

    fn set(&self, class: CostClass, price: Price) {
        self.0[class as usize].store(price.0, Relaxed);
    }
}

/// The prices of a cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prices {
    classes: [Class; CostClass::ALL.len()],
    /// Those of the classes.
    present: Arc<PresentPrices>,
}

impl Prices {
    /// The prices of the profile, which are told as `present` from now on.
    pub(crate) fn told_as(present: Arc<PresentPrices>) -> Self {
        Self {
            present,
            ..Self::default()
        }
    }

    /// Returns the price of a class for tenants that are admitted now.
    pub(crate) fn price(&self, class: CostClass) -> Price {
        self.classes[class as usize].price
    }

    /// Records the time of a tenant's work that was charged `base_ns` at the profile's price, and
    /// admitted at the price `paid`. Returns whether the price rises.
    pub(crate) fn observe(
        &mut self,
        class: CostClass,
        measured_ns: u64,
        base_ns: u64,
        paid: Price,
    ) -> bool {
        if base_ns == 0 {
            // Nothing is charged: there is no price to be wrong.
            return false;
        }
        let of_class = &mut self.classes[class as usize];
        let rises = of_class.observe(measured_ns, base_ns, paid);
        self.present.set(class, of_class.price);
        rises
    }

    /// The costs of each class, as known so far.
    pub(crate) fn costs(&self) -> Vec<ClassCosts> {
        let costs = |class: CostClass| {
            let of_class = &self.classes[class as usize];
            ClassCosts {
                class,
                samples: of_class.sketch.samples(),
                exceeded: of_class.exceeded,
                drifts: of_class.alarms,
                price: of_class.price,
                bound: of_class.sketch.bound(ONE_IN, CONFIDENCE),
            }
        };
        CostClass::ALL.into_iter().map(costs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, CostClass, Drift, Price, Prices, Sketch};
    use leasehold_reserve::simulate::SplitMix;

    const BASE_NS: u64 = 300_000;

    struct Random(SplitMix);

    impl Random {
        fn new(seed: u64) -> Self {
            Random(SplitMix::new(seed))
        }

        fn next(&mut self) -> u64 {
            self.0.bits()
        }

        /// A cost between a quarter and three quarters of the charge, and above the charge once in
        /// `one_in`.
        fn cost(&mut self, charge: u64, one_in: u64) -> u64 {
            match self.next().is_multiple_of(one_in) {
                true => charge * 3,
                false => charge / 4 + self.next() % (charge / 2),
            }
        }
    }

    #[test]
    fn what_exceeds_its_charge_as_rarely_as_is_stated_is_no_drift() {
        let (mut prices, mut random) = (Prices::default(), Random::new(1));
        for _ in 0..1_000_000 {
            let cost = random.cost(BASE_NS, 10_000);
            let raised = prices.observe(CostClass::End, cost, BASE_NS, Price::BASE);
            assert!(!raised);
        }
        let costs = prices.costs()[0];
        assert_eq!((costs.price, costs.drifts), (Price::BASE, 0));
        assert!((50..200).contains(&costs.exceeded), "{costs:?}");
    }

    #[test]
    fn false_alarms_are_as_rare_as_is_stated() {
        let mut random = Random::new(2);
        let mut drift = Drift::default();
        let alarms = (0..20_000_000).filter(|_| {
            let exceeded = random.next().is_multiple_of(10_000);
            drift.observe(exceeded)
        });
        assert!(alarms.count() <= 20);
    }

    #[test]
    fn one_outlier_is_no_drift_however_large() {
        let mut prices = Prices::default();
        for cost in [u64::MAX, u64::MAX / 2] {
            assert!(!prices.observe(CostClass::End, cost, BASE_NS, Price::BASE));
            for _ in 0..5_000 {
                assert!(!prices.observe(CostClass::End, BASE_NS, BASE_NS, Price::BASE));
            }
        }
        assert_eq!(prices.price(CostClass::End), Price::BASE);
        assert_eq!(prices.costs()[0].exceeded, 2);
    }

    #[test]
    fn costs_that_always_exceed_are_noticed_within_four_ends() {
        let mut prices = Prices::default();
        for _ in 0..10_000 {
            prices.observe(CostClass::End, BASE_NS / 2, BASE_NS, Price::BASE);
        }
        let noticed =
            (1..).find(|_| prices.observe(CostClass::End, BASE_NS * 6 / 5, BASE_NS, Price::BASE));
        assert!(noticed <= Some(4), "{noticed:?}");
        assert_eq!(prices.price(CostClass::EndOfPaging), Price::BASE);
    }

    #[test]
    fn costs_that_exceed_once_in_fifty_are_noticed_within_a_thousand_ends() {
        for seed in 0..100 {
            let (mut prices, mut random) = (Prices::default(), Random::new(seed));
            let noticed = (0..1_000).any(|_| {
                let cost = random.cost(BASE_NS, 50);
                prices.observe(CostClass::End, cost, BASE_NS, Price::BASE)
            });
            assert!(noticed, "seed {seed}");
        }
    }

    #[test]
    fn the_price_rises_until_it_covers_what_things_cost_and_no_further() {
        for factor in [2, 5, 20] {
            let (mut prices, mut random) = (Prices::default(), Random::new(3));
            for _ in 0..20_000 {
                // Costs are `factor` times what they were, and were half of the charge.
                let cost = BASE_NS * factor / 2 * (900 + random.next() % 200) / 1000;
                prices.observe(CostClass::End, cost, BASE_NS, Price::BASE);
            }
            let price = prices.price(CostClass::End).factor();
            let most = factor as f64 / 2.0 * 1.1;
            assert!((most..most * 1.7).contains(&price), "{factor}: {price}");
            let drifts = prices.costs()[0].drifts;
            for _ in 0..100_000 {
                let cost = BASE_NS * factor / 2 * (900 + random.next() % 200) / 1000;
                prices.observe(CostClass::End, cost, BASE_NS, Price::BASE);
            }
            assert_eq!(prices.costs()[0].drifts, drifts, "{factor}: it has settled");
        }
    }

    #[test]
    fn a_price_falls_when_costs_are_again_what_they_were_and_not_below_the_profile() {
        let (mut prices, mut random) = (Prices::default(), Random::new(4));
        for _ in 0..100 {
            prices.observe(CostClass::End, BASE_NS * 12, BASE_NS, Price::BASE);
        }
        assert!(prices.price(CostClass::End).factor() >= 12.0);
        for _ in 0..2 * Class::TRIAL {
            let cost = random.cost(BASE_NS, 50_000);
            prices.observe(CostClass::End, cost, BASE_NS, Price::BASE);
        }
        assert_eq!(prices.price(CostClass::End), Price::BASE);
    }

    #[test]
    fn a_price_falls_no_further_than_to_what_covers_the_stated_share() {
        let (mut prices, mut random) = (Prices::default(), Random::new(5));
        for _ in 0..100 {
            prices.observe(CostClass::End, BASE_NS * 12, BASE_NS, Price::BASE);
        }
        for _ in 0..4 * Class::TRIAL {
            // Three times the charge once in a thousand: more often than is stated.
            let cost = random.cost(BASE_NS, 1_000);
            prices.observe(CostClass::End, cost, BASE_NS, Price::BASE);
        }
        let price = prices.price(CostClass::End).factor();
        assert!((3.0..4.8).contains(&price), "{price}");
    }

    #[test]
    fn a_price_is_never_absurd_and_nothing_overflows() {
        let mut prices = Prices::default();
        for _ in 0..1_000 {
            prices.observe(CostClass::End, u64::MAX, 1, Price::BASE);
            prices.observe(CostClass::End, u64::MAX, u64::MAX, Price::BASE);
        }
        let price = prices.price(CostClass::End);
        assert_eq!(price, Price::HIGHEST);
        assert_eq!(price.of(u64::MAX), u64::MAX);
        assert_eq!(price.buys(price.of(1_000_000)), 1_000_000);
        assert_eq!(Price::BASE.of(7), 7);
        assert_eq!(Price::BASE.buys(7), 7);
    }

    #[test]
    fn what_is_paid_for_is_never_more_than_the_budget() {
        let mut price = Price::BASE;
        while price < Price::HIGHEST {
            for budget in [0, 1, 999, 50_000_000, u64::MAX / 2] {
                assert!(price.of(price.buys(budget)) <= budget, "{price:?} {budget}");
            }
            price = price.raised();
        }
    }

    #[test]
    fn a_sketch_tells_a_quantile_upwards_and_within_an_eighth() {
        let mut sketch = Sketch::default();
        assert!(sketch.bound(10_000, 0.95).is_none());
        for n in 1..=100_000_u64 {
            sketch.record(n, 100_000);
        }
        let bound = sketch.bound(10_000, 0.95).expect("enough");
        assert!((0.9999..1.13).contains(&bound.ratio), "{bound:?}");
        let median = sketch.bound(2, 0.95).expect("enough");
        assert!((0.5..0.57).contains(&median.ratio), "{median:?}");
        for (measured, charged) in [(0, 1), (1, 0), (u64::MAX, 1), (1, u64::MAX)] {
            sketch.record(measured, charged);
        }
        assert_eq!(sketch.samples(), 100_004);
    }
}
