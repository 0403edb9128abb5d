//! The headline of the demonstration: two lines, and a picture of the same two ends.

use super::deadline::Verdict;
use leasehold_study::plot::{Axis, Figure, Instant, Marks, Panel, Timeline};
use leasehold_study::rogue::{Duel, Runtime};
use leasehold_study::unit::Unit;

/// Columns of the picture in which the slowest request is shown.
const COLUMNS: usize = 240;

/// The numbers of the two lines, all of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Headline {
    /// The guest's request.
    pub(super) asked: u64,
    pub(super) wasmtime: StockEnd,
    /// The same with a thread for each guest.
    pub(super) wasmtime_threads: StockEnd,
    pub(super) leasehold: LeasedEnd,
}

/// An end in stock wasmtime.
#[derive(Debug, Clone, Copy)]
pub(super) struct StockEnd {
    /// The number of timers that the guest got.
    pub(super) made: u64,
    /// From the kill until everything was returned, ns.
    pub(super) end_ns: u64,
    /// The longest time without an answer of the neighbour, ns.
    pub(super) stall_ns: u64,
    /// The neighbour's 99th percentile over that before.
    pub(super) p99_ratio: f64,
}

/// An end in a cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeasedEnd {
    /// The number of timers that the guest got.
    pub(super) made: u64,
    /// The reclamation budget of its lease, ns.
    pub(super) budget_ns: u64,
    /// Processor time that the end took, ns.
    pub(super) cpu_ns: u64,
    /// From the kill until everything was returned, ns.
    pub(super) end_ns: u64,
    /// The longest time that it may take, ns.
    pub(super) deadline_ns: Option<u64>,
    pub(super) verdict: Verdict,
    /// The neighbour's slowest answer, ns.
    pub(super) slowest_ns: u64,
    /// The neighbour's 99th percentile over that before.
    pub(super) p99_ratio: f64,
}

impl Headline {
    /// The two lines: stock wasmtime's and Leasehold's.
    pub(super) fn lines(&self) -> [String; 2] {
        let (stock, leased) = (&self.wasmtime, &self.leasehold);
        [
            format!(
                "wasmtime: kill took {}, the neighbour stalled {}",
                time(stock.end_ns),
                time(stock.stall_ns)
            ),
            format!(
                "Leasehold: budget {}, took {}, the neighbour's p99 {:.2}×",
                time(leased.budget_ns),
                time(leased.cpu_ns),
                leased.p99_ratio
            ),
        ]
    }

    /// The facts that the two lines leave out.
    pub(super) fn explanation(&self) -> String {
        let (stock, leased) = (&self.wasmtime, &self.leasehold);
        let threads = &self.wasmtime_threads;
        let deadline = match leased.deadline_ns {
            Some(most) if leased.end_ns <= most => {
                format!("; its deadline was {}: kept", time(most))
            }
            Some(most) if leased.verdict == Verdict::HostTook => {
                format!(
                    "; its deadline was {}, and the host took the processor for longer than it is late",
                    time(most)
                )
            }
            Some(most) => format!("; its deadline was {}: BROKEN", time(most)),
            None => String::new(),
        };
        format!(
            "The same program asks for {asked} in each. wasmtime gives it {stock_made}; its lease\n\
             stops it at {leased_made}, which is what {budget} of reclamation pay for.\n\
             Leasehold: everything was returned {end} after the kill{deadline}.\n\
             The neighbour's slowest answer meanwhile took {slowest}.\n\
             wasmtime: tasks on one tokio thread for the one processor, which yield every millisecond; a kill\n\
             aborts the task, which drops its store. With a thread for each guest, the kernel shares the\n\
             processor: kill {threads_end}, the neighbour's slowest answer {threads_stall}, its p99 \
             {threads_p99}.",
            asked = timers(self.asked),
            stock_made = Unit::Count.humane(stock.made as f64),
            leased_made = Unit::Count.humane(leased.made as f64),
            budget = time(leased.budget_ns),
            end = time(leased.end_ns),
            slowest = time(leased.slowest_ns),
            threads_end = time(threads.end_ns),
            threads_stall = time(threads.stall_ns),
            threads_p99 = Unit::Ratio.humane(threads.p99_ratio),
        )
    }

    /// The picture: stock wasmtime above, Leasehold below, with the same axes.
    pub(super) fn figure(
        &self,
        duels: &[(Runtime, Duel)],
        before_ns: u64,
        after_ns: u64,
    ) -> Figure {
        let x_range = (-(before_ns as f64), after_ns as f64);
        let steps = duels.iter().map(|(_, duel)| duel.slowest(x_range, COLUMNS));
        let steps: Vec<Vec<(f64, f64)>> = steps.collect();
        let values = || steps.iter().flatten().map(|(_, value)| *value);
        let y_range = (
            values().fold(f64::INFINITY, f64::min),
            values().fold(0.0, f64::max),
        );
        let lines = self.lines();
        let panels = duels.iter().zip(&steps).map(|((runtime, _), steps)| {
            let (caption, colour, end_ns, deadline_ns) = match runtime {
                Runtime::Wasmtime => (&lines[0], 1, self.wasmtime.end_ns, None),
                Runtime::Leasehold => {
                    let leased = &self.leasehold;
                    (&lines[1], 0, leased.end_ns, leased.deadline_ns)
                }
            };
            let observed = |at: f64, label: String| Instant {
                at,
                label,
                promised: false,
            };
            let mut instants = vec![
                observed(0.0, "kill".into()),
                observed(
                    end_ns as f64,
                    format!("everything returned after {}", time(end_ns)),
                ),
            ];
            instants.extend(deadline_ns.map(|ns| Instant {
                at: ns as f64,
                label: format!("deadline: {}", time(ns)),
                promised: true,
            }));
            Panel {
                y: Axis::logarithmic("neighbour's latency", Unit::Nanoseconds),
                marks: Marks::Timeline(Timeline {
                    caption: caption.clone(),
                    x: Axis::linear("time from the kill", Unit::Nanoseconds),
                    x_range,
                    y_range,
                    colour,
                    steps: steps.clone(),
                    span: Some((0.0, end_ns as f64)),
                    instants,
                }),
            }
        });
        Figure {
            title: format!(
                "A guest that asked for {} is killed beside a neighbour on the same processor",
                timers(self.asked)
            ),
            panels: panels.collect(),
        }
    }
}

/// So many of them.
fn timers(n: u64) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} timer{plural}", Unit::Count.humane(n as f64))
}

/// A time with two significant digits, and without a fraction from ten on: `2.2 s`, `9.1 ms`, `20 ms`.
pub(super) fn time(ns: u64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
    let value = ns as f64;
    // 999,960 ns are 1.0 ms, and not 1000 µs.
    let unit = units
        .iter()
        .find(|(size, _)| (value / size * 1e3).round() >= 1e3);
    let (size, name) = unit.copied().unwrap_or((1.0, "ns"));
    match value / size {
        whole if whole.fract() == 0.0 || whole >= 9.95 => format!("{whole:.0} {name}"),
        part => format!("{part:.1} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict;
    use super::{Headline, LeasedEnd, StockEnd, time, timers};
    use leasehold_study::neighbour::Interval;
    use leasehold_study::rogue::{Duel, Ending, GuestEnd, Round, Runtime};
    use leasehold_study::samples::Samples;
    use leasehold_study::taken::Taken;

    fn headline() -> Headline {
        let wasmtime = StockEnd {
            made: 9_999_993,
            end_ns: 2_204_000_000,
            stall_ns: 1_903_000_000,
            p99_ratio: 6_340.0,
        };
        Headline {
            asked: 10_000_000,
            wasmtime,
            wasmtime_threads: StockEnd {
                end_ns: 4_100_000_000,
                stall_ns: 8_400_000,
                p99_ratio: 14.2,
                ..wasmtime
            },
            leasehold: LeasedEnd {
                made: 611_870,
                budget_ns: 20_000_000,
                cpu_ns: 9_080_000,
                end_ns: 15_400_000,
                deadline_ns: Some(123_000_000),
                verdict: Verdict::Kept,
                slowest_ns: 4_300_000,
                p99_ratio: 1.014,
            },
        }
    }

    #[test]
    fn two_lines_say_what_each_kill_took_and_what_the_neighbour_felt() {
        let expected = [
            "wasmtime: kill took 2.2 s, the neighbour stalled 1.9 s",
            "Leasehold: budget 20 ms, took 9.1 ms, the neighbour's p99 1.01×",
        ];
        assert_eq!(headline().lines(), expected);
    }

    #[test]
    fn the_explanation_says_what_the_lines_leave_out() {
        let explanation = headline().explanation();
        for text in [
            "asks for 10,000,000 timers",
            "gives it 9,999,993; its lease\nstops it at 611,870, which is what 20 ms",
            "returned 15 ms after the kill; its deadline was 123 ms: kept",
            "slowest answer meanwhile took 4.3 ms",
            "kill 4.1 s, the neighbour's slowest answer 8.4 ms, its p99 14.2×",
        ] {
            assert!(explanation.contains(text), "{text} in {explanation}");
        }
        assert!(
            explanation.lines().all(|line| line.chars().count() <= 110),
            "{explanation}"
        );
        let mut late = headline();
        late.leasehold.end_ns = 124_000_000;
        assert!(
            late.explanation()
                .contains("its deadline was 123 ms: BROKEN")
        );
        late.leasehold.deadline_ns = None;
        assert!(!late.explanation().contains("deadline"));
    }

    #[test]
    fn the_picture_has_the_same_lines_and_the_deadline_of_the_end_that_has_one() {
        let duel = |pictures_ns: u64| {
            let ending = Interval {
                start_ns: 1_000_000_000,
                end_ns: 1_900_000_000,
            };
            let ending = Ending {
                guest: "timers",
                guest_end: GuestEnd {
                    ending,
                    end_ns: 900_000_000,
                    killed: true,
                    reclaimed: None,
                    statement: None,
                    taken: Taken::default(),
                },
                made: Some(1),
                during: Samples::new(),
                before: Samples::new(),
            };
            let pictures = (0..2_500_000_000 / pictures_ns).map(|n| Interval {
                start_ns: n * pictures_ns,
                end_ns: (n + 1) * pictures_ns,
            });
            let round = Round {
                endings: vec![ending],
                pictures: pictures.collect(),
                first_kill_ns: 1_000_000_000,
            };
            Duel::of(round).expect("one guest")
        };
        let duels = [
            (Runtime::Wasmtime, duel(200_000_000)),
            (Runtime::Leasehold, duel(1_000_000)),
        ];
        let figure = headline().figure(&duels, 500_000_000, 2_500_000_000);
        let svg = figure.to_svg().expect("drawable");
        let [stock, leased] = headline().lines();
        let leased = leased.replace('\'', "&apos;");
        for (text, times) in [
            (&*stock, 1),
            (&leased, 1),
            ("kill", 2),
            ("everything returned after 2.2 s", 1),
            ("everything returned after 15 ms", 1),
            ("deadline: 123 ms", 1),
            (
                "A guest that asked for 10,000,000 timers is killed beside a neighbour on the same processor",
                1,
            ),
        ] {
            let found = svg.matches(&format!("\n{text}\n")).count();
            assert_eq!(found, times, "{text} in {svg}");
        }
        // Well-formed: every element is closed, and no text opens one.
        let (opened, closed) = (svg.matches('<').count(), svg.matches('>').count());
        let (pairs, alone) = (svg.matches("</").count(), svg.matches("/>").count());
        assert_eq!((opened, opened), (closed, 2 * pairs + alone), "{svg}");
    }

    #[test]
    fn times_have_two_digits_and_counts_a_plural() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (20_000, "20 µs"),
            (999_960, "1.0 ms"),
            (1_000_000, "1 ms"),
            (9_080_000, "9.1 ms"),
            (9_960_000, "10 ms"),
            (123_456_789, "123 ms"),
            (2_204_000_000, "2.2 s"),
            (120_000_000_000, "120 s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(timers(1), "1 timer");
        assert_eq!(timers(10_000_000), "10,000,000 timers");
    }
}
