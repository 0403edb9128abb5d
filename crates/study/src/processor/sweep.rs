//! A sweep over the number of attackers: their effect on a victim, eager and shielded, on the
//! simulated machines and on a real cell (SPR fig. 10 and 12).
//!
//! A study of one attack defines its variants (`V`: the size of a ring, a policy), how one point is
//! played, and the measured effect. The order of the points, their curves, the measure of growth
//! and the figure are the same for every attack, and are here.

use anyhow::Result;
use leasehold_reserve::Shielding;

use crate::harness::plot::{Axis, Figure, Marks, Panel, Series};
use crate::harness::progress::Progress;
use crate::harness::report::Finding;
use crate::harness::samples::{Samples, Spread, interleaved};
use crate::harness::unit::Unit;
use crate::processor::reservation::{
    CELL, MACHINES, Machine, PLATFORMS, SHIELDINGS, shielding_name,
};

/// Most of what one attacker does to a shielded victim that all of them together may do.
const SHIELDED: f64 = 1.2;

/// So many attackers, and how timeouts are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attack<V> {
    pub(crate) shielding: Shielding,
    pub(crate) attackers: u32,
    pub(crate) variant: V,
}

/// The effects of an attack on one platform.
pub(crate) struct Point<V, E> {
    pub(crate) attack: Attack<V>,
    pub(crate) platform: &'static str,
    pub(crate) effect: E,
}

/// The measurements of a victim.
pub(crate) trait Effect {
    /// Delays, ns: what growth is measured by.
    fn delays(&self) -> &Samples;

    /// Delays in the same minutes without the attack, ns, if there are any but the attack's: what
    /// the host does by itself.
    fn undisturbed(&self) -> Option<&Samples> {
        None
    }
}

/// Every attack on every simulated machine.
///
/// # Errors
/// The first of `play`.
pub(crate) fn simulated<V: Copy, E>(
    study: &'static str,
    variants: &[V],
    attackers: &[u32],
    mut play: impl FnMut(&Machine, Attack<V>) -> Result<E>,
) -> Result<Vec<Point<V, E>>> {
    let attacks: Vec<Attack<V>> = variants
        .iter()
        .flat_map(|&variant| SHIELDINGS.map(|shielding| (variant, shielding)))
        .flat_map(|(variant, shielding)| {
            attackers.iter().map(move |&attackers| Attack {
                shielding,
                attackers,
                variant,
            })
        })
        .collect();
    let mut progress = Progress::new(study, (attacks.len() * MACHINES.len()) as u64);
    let mut points = Vec::new();
    for machine in &MACHINES {
        for &attack in &attacks {
            progress.at(format!("{} attackers", attack.attackers));
            points.push(Point {
                attack,
                platform: machine.platform,
                effect: play(machine, attack)?,
            });
            progress.step();
        }
    }
    Ok(points)
}

/// Every attack on a real cell: eager and shielded alternate in rounds.
///
/// # Errors
/// The first of `play`.
pub(crate) fn measured<V: Copy, E: Default>(
    study: &'static str,
    variants: &[V],
    attackers: &[u32],
    rounds: usize,
    mut play: impl FnMut(&mut Point<V, E>) -> Result<()>,
) -> Result<Vec<Point<V, E>>> {
    let turns = variants.len() * attackers.len() * SHIELDINGS.len() * rounds;
    let mut progress = Progress::new(study, turns as u64);
    let mut points = Vec::new();
    for &variant in variants {
        for &attackers in attackers {
            let mut compared = SHIELDINGS.map(|shielding| Point {
                attack: Attack {
                    shielding,
                    attackers,
                    variant,
                },
                platform: CELL,
                effect: E::default(),
            });
            for arm in interleaved(compared.len(), rounds) {
                progress.at(format!("a cell with {attackers} attackers"));
                play(&mut compared[arm])?;
                progress.step();
            }
            points.extend(compared);
        }
    }
    Ok(points)
}

/// The points of one curve, in the order of the number of attackers.
pub(crate) fn curve<'a, V: PartialEq + 'a, E>(
    points: &'a [Point<V, E>],
    platform: &'a str,
    shielding: Shielding,
    variant: V,
) -> impl DoubleEndedIterator<Item = &'a Point<V, E>> {
    points.iter().filter(move |point| {
        point.platform == platform
            && point.attack.shielding == shielding
            && point.attack.variant == variant
    })
}

/// The two ends of a curve: what fewest and most attackers did.
pub(crate) fn ends<'a, V: PartialEq + 'a, E>(
    points: &'a [Point<V, E>],
    platform: &'a str,
    shielding: Shielding,
    variant: V,
) -> Option<[&'a Point<V, E>; 2]> {
    let mut curve = curve(points, platform, shielding, variant);
    Some([curve.next()?, curve.next_back()?])
}

/// The claims that every platform must meet for one variant: at each of `quantiles`, with their
/// names, most attackers do no more to a shielded victim than one does, and in the middle at least
/// `growth` times as much to an eager one. If the host's disturbance without an attack is known,
/// its growth is allowed for. A platform without points has no findings.
pub(crate) fn findings<V: Copy + PartialEq, E: Effect>(
    points: &[Point<V, E>],
    variant: V,
    title: &str,
    quantiles: &[(&str, f64)],
    growth: impl Fn(&str) -> f64,
) -> Vec<Finding> {
    let grown = |platform, shielding, quantile| {
        let [least, most] = ends(points, platform, shielding, variant)?;
        most.effect
            .delays()
            .ratio_to(least.effect.delays(), quantile)
    };
    let grown_alone = |platform, quantile| {
        let [least, most] = ends(points, platform, Shielding::Shielded, variant)?;
        most.effect
            .undisturbed()?
            .ratio_to(least.effect.undisturbed()?, quantile)
    };
    let has_points = |platform: &&str| points.iter().any(|point| point.platform == *platform);
    let mut findings = Vec::new();
    for platform in PLATFORMS.into_iter().filter(has_points) {
        for (name, quantile) in quantiles {
            findings.push(Finding::at_most(
                format!("{platform}, {title}: shielded, most attackers against one, {name}"),
                Unit::Ratio,
                grown(platform, Shielding::Shielded, *quantile),
                SHIELDED,
            ));
            if let Some(alone) = grown_alone(platform, *quantile) {
                findings.push(Finding::at_most(
                    format!("{platform}, {title}: the same over what grew without them, {name}"),
                    Unit::Ratio,
                    grown(platform, Shielding::Shielded, *quantile).map(|grown| grown / alone),
                    SHIELDED,
                ));
            }
        }
        findings.push(Finding::at_least(
            format!("{platform}, {title}: eager, the attack works"),
            Unit::Ratio,
            grown(platform, Shielding::Eager, 0.5),
            growth(platform),
        ));
    }
    findings
}

/// One panel for each platform, with a curve for each variant, eager and shielded.
pub(crate) fn figure<V: Copy + PartialEq, E: Effect>(
    points: &[Point<V, E>],
    title: &str,
    felt: &str,
    variants: &[(V, String)],
) -> Figure {
    let series = |platform| {
        variants
            .iter()
            .flat_map(|variant| SHIELDINGS.map(|shielding| (variant, shielding)))
            .map(|((variant, name), shielding)| Series {
                name: format!("{}, {name}", shielding_name(shielding)),
                points: curve(points, platform, shielding, *variant)
                    .filter_map(|point| {
                        let spread = Spread::of_samples(point.effect.delays())?;
                        Some((f64::from(point.attack.attackers), spread))
                    })
                    .collect(),
            })
            .collect()
    };
    Figure {
        title: title.into(),
        panels: PLATFORMS
            .into_iter()
            .map(|platform| Panel {
                y: Axis::logarithmic(format!("{felt}, {platform}"), Unit::Nanoseconds),
                marks: Marks::Curves {
                    x: Axis::logarithmic("attackers", Unit::Count),
                    series: series(platform),
                },
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Attack, Effect, Point, ends, findings};
    use crate::harness::samples::Samples;
    use crate::processor::reservation::CELL;
    use leasehold_reserve::Shielding;

    struct Felt {
        attacked: Samples,
        alone: Option<Samples>,
    }

    impl Effect for Felt {
        fn delays(&self) -> &Samples {
            &self.attacked
        }

        fn undisturbed(&self) -> Option<&Samples> {
            self.alone.as_ref()
        }
    }

    /// A victim with a delay of `each` per attacker, and 100 besides.
    fn points(eager: u64, shielded: u64) -> Vec<Point<(), Felt>> {
        let point = |shielding, attackers: u32, each: u64| Point {
            attack: Attack {
                shielding,
                attackers,
                variant: (),
            },
            platform: CELL,
            effect: Felt {
                attacked: Samples::from_iter([100 + each * u64::from(attackers)]),
                alone: None,
            },
        };
        [1, 16, 100]
            .into_iter()
            .flat_map(|n| {
                [
                    point(Shielding::Eager, n, eager),
                    point(Shielding::Shielded, n, shielded),
                ]
            })
            .collect()
    }

    #[test]
    fn growth_is_between_the_ends_of_a_curve() {
        let points = points(3, 0);
        let [least, most] = ends(&points, CELL, Shielding::Eager, ()).expect("a curve");
        assert_eq!((least.attack.attackers, most.attack.attackers), (1, 100));
    }

    #[test]
    fn a_platform_that_was_played_must_show_the_attack_and_the_shield() {
        let hold = |eager, shielded| {
            let points = points(eager, shielded);
            let findings = findings(&points, (), "", &[("median", 0.5)], |_| 2.0);
            let holds: Vec<bool> = findings.iter().map(|finding| finding.holds()).collect();
            holds
        };
        assert_eq!(hold(3, 0), [true, true]);
        assert_eq!(hold(3, 1), [false, true], "the shield has a hole");
        assert_eq!(hold(0, 0), [true, false], "the attack does nothing");
    }

    #[test]
    fn what_grows_without_the_attack_is_told_apart() {
        let mut points = points(3, 1);
        for point in &mut points {
            let Felt { attacked, alone } = &mut point.effect;
            *alone = Some(attacked.clone());
        }
        let findings = findings(&points, (), "", &[("median", 0.5)], |_| 2.0);
        let holds: Vec<bool> = findings.iter().map(|finding| finding.holds()).collect();
        assert_eq!(holds, [false, true, true]);
    }
}
