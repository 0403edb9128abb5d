//! A schedule as a picture: a lane per server with its execution and its remaining budget, like the
//! examples of SPR (fig. 1 to 6).

use std::ops::Range;

use anyhow::{Result, anyhow};
use leasehold_reserve::Nanos;
use leasehold_reserve::simulate::{Event, TaskIndex, Trace};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Polygon, Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE};

use crate::harness::plot::{COLOURS, FONT, GRID, INK};
use crate::harness::unit::Unit;

/// Width of the whole picture in pixels.
const WIDTH: i32 = 1180;
/// Room for the names of the lanes, left, and for air, right.
const LEFT: i32 = 150;
const RIGHT: i32 = 24;
/// Height of the title with the legend, of the strip of timer interrupts, of a lane, and of the
/// axis of time.
const HEAD: i32 = 78;
const TIMERS: i32 = 34;
const LANE: i32 = 96;
const AXIS: i32 = 46;
/// In a lane, from its bottom: the boxes of what ran, and above them the budget.
const BOX: i32 = 22;
const BUDGET: i32 = 52;
const PLOT: i32 = WIDTH - LEFT - RIGHT;

const OVERHEAD: RGBColor = RGBColor(0x4b, 0x50, 0x57);
const ALARM: RGBColor = RGBColor(0xc0, 0x1c, 0x28);
const FAINT: RGBColor = RGBColor(0x8a, 0x92, 0x9c);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The part of a trace to draw.
#[derive(Debug, Clone)]
pub struct Lanes<'a> {
    /// The title of the picture.
    pub title: &'a str,
    /// The trace, which must contain budgets.
    pub trace: &'a Trace,
    /// Names of the servers, from above.
    pub names: &'a [&'a str],
    /// From when until when.
    pub window: Range<Nanos>,
}

impl Lanes<'_> {
    /// Draws the picture.
    ///
    /// # Errors
    /// If the plotting crate refuses, which it does for no trace.
    pub fn to_svg(&self) -> Result<String> {
        let lanes = i32::try_from(self.trace.servers().len())?;
        let height = HEAD + TIMERS + lanes * LANE + AXIS;
        let mut svg = String::new();
        {
            let size = (u32::try_from(WIDTH)?, u32::try_from(height)?);
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let drawn = self
                .draw(&root, HEAD + TIMERS + lanes * LANE)
                .and_then(|()| Ok(root.present()?));
            drawn.map_err(|error| anyhow!("cannot draw the schedule {:?}: {error}", self.title))?;
        }
        Ok(svg)
    }

    fn draw(&self, root: &Area<'_>, bottom: i32) -> Result<()> {
        root.fill(&WHITE)?;
        root.draw(&Text::new(self.title, (16, 14), text(19, INK)))?;
        self.legend(root)?;
        self.axis(root, bottom)?;
        self.timers(root, bottom)?;
        for server in 0..self.trace.servers().len() {
            self.lane(root, server)?;
        }
        Ok(())
    }

    /// The pixel of an instant, at the edge if it lies outside the window.
    fn x(&self, at: Nanos) -> i32 {
        let Range { start, end } = self.window;
        let span = end.saturating_sub(start).max(1);
        let share = (at.clamp(start, end) - start) as f64 / span as f64;
        LEFT + (share * f64::from(PLOT)).round() as i32
    }

    fn shows(&self, at: Nanos) -> bool {
        (self.window.start..=self.window.end).contains(&at)
    }

    fn is_of(&self, task: TaskIndex, server: usize) -> bool {
        self.trace.tasks()[task.get()].get() == server
    }

    fn legend(&self, root: &Area<'_>) -> Result<()> {
        let (y, mut x) = (56, 18);
        let colour = COLOURS[0];
        let mut entry = |width: i32, name: &str, draw: &dyn Fn(i32) -> Result<()>| -> Result<()> {
            draw(x)?;
            let style = text(13, INK).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(name.to_owned(), (x + width + 6, y), style))?;
            // The renderer of the picture chooses the font: allow for a wide one.
            x += width + 6 + 13 * name.chars().count() as i32 / 2 + 20;
            Ok(())
        };
        entry(18, "runs", &|x| {
            Ok(root.draw(&Rectangle::new(
                [(x, y - 7), (x + 18, y + 7)],
                colour.filled(),
            ))?)
        })?;
        entry(18, "overhead", &|x| {
            Ok(root.draw(&Rectangle::new(
                [(x, y - 7), (x + 18, y + 7)],
                OVERHEAD.filled(),
            ))?)
        })?;
        entry(26, "budget", &|x| {
            let line = [(x, y + 6), (x, y - 6), (x + 26, y + 6)];
            root.draw(&Polygon::new(line, colour.mix(0.16).filled()))?;
            Ok(root.draw(&PathElement::new(line, colour.stroke_width(2)))?)
        })?;
        entry(10, "activation", &|x| arrow(root, x + 5, y + 9, 18))?;
        entry(12, "replenishment", &|x| {
            triangle(root, x + 6, y + 5, colour)
        })?;
        entry(10, "timer interrupt that switches", &|x| {
            tick(root, x + 5, y, true)
        })?;
        entry(10, "and one that does not", &|x| {
            tick(root, x + 5, y, false)
        })?;
        entry(10, "missed deadline", &|x| cross(root, x + 5, y))
    }

    fn axis(&self, root: &Area<'_>, bottom: i32) -> Result<()> {
        let Range { start, end } = self.window;
        let step = step(end.saturating_sub(start));
        let mut at = start.div_ceil(step) * step;
        while at <= end {
            let x = self.x(at);
            root.draw(&PathElement::new(
                [(x, HEAD), (x, bottom + 6)],
                GRID.stroke_width(1),
            ))?;
            let style = text(13, INK).pos(Pos::new(HPos::Center, VPos::Top));
            root.draw(&Text::new(
                match at {
                    0 => "0".to_owned(),
                    at => Unit::Nanoseconds.tick(at as f64),
                },
                (x, bottom + 12),
                style,
            ))?;
            at += step;
        }
        Ok(())
    }

    /// The strip of timer interrupts. Those that did not switch are drawn through all lanes: they
    /// delay the server that runs below them.
    fn timers(&self, root: &Area<'_>, bottom: i32) -> Result<()> {
        let y = HEAD + TIMERS / 2;
        let style = text(13, FAINT).pos(Pos::new(HPos::Right, VPos::Center));
        root.draw(&Text::new("timer", (LEFT - 14, y), style))?;
        let mut last = None;
        for event in self.trace.events() {
            let Event::TimerInterrupt { at, switched, .. } = *event else {
                continue;
            };
            let x = self.x(at);
            // Of many at one pixel, one of a kind is drawn.
            if !self.shows(at) || last.replace((x, switched)) == Some((x, switched)) {
                continue;
            }
            if !switched {
                let line = [(x, y), (x, bottom)];
                root.draw(&PathElement::new(line, ALARM.mix(0.25).stroke_width(1)))?;
            }
            tick(root, x, y, switched)?;
        }
        Ok(())
    }

    fn lane(&self, root: &Area<'_>, server: usize) -> Result<()> {
        let colour = COLOURS[server % COLOURS.len()];
        let floor = HEAD + TIMERS + (i32::try_from(server)? + 1) * LANE;
        root.draw(&PathElement::new(
            [(LEFT, floor), (WIDTH - RIGHT, floor)],
            INK.stroke_width(1),
        ))?;
        self.title_of_lane(root, server, floor)?;
        self.budget(root, server, floor - BOX - 4, colour)?;
        self.boxes(root, server, floor, colour)?;
        self.marks(root, server, floor)
    }

    fn title_of_lane(&self, root: &Area<'_>, server: usize, floor: i32) -> Result<()> {
        let number = format!("server {server}");
        let name = self.names.get(server).map_or(&*number, |name| name);
        let right = |size, colour| text(size, colour).pos(Pos::new(HPos::Right, VPos::Center));
        let name = shortened(name);
        root.draw(&Text::new(name, (LEFT - 14, floor - 52), right(16, INK)))?;
        let units = |time: Nanos| Unit::Nanoseconds.tick(time as f64);
        let lines = match &self.trace.servers()[server] {
            Some(contract) => [
                format!(
                    "{} in {}",
                    units(contract.budget()),
                    units(contract.period())
                ),
                match contract.nonpreemptive() {
                    0 => format!("priority {}", contract.priority().0),
                    region => format!("priority {}, η {}", contract.priority().0, units(region)),
                },
            ],
            None => ["background".into(), String::new()],
        };
        for (line, y) in lines.into_iter().zip([floor - 32, floor - 15]) {
            root.draw(&Text::new(line, (LEFT - 14, y), right(12, FAINT)))?;
        }
        Ok(())
    }

    /// The running work in the colour of the lane, with overhead above it in grey.
    fn boxes(&self, root: &Area<'_>, server: usize, floor: i32, colour: RGBColor) -> Result<()> {
        let mut work = Strips::default();
        let mut overhead = Strips::default();
        for event in self.trace.events() {
            let (strips, task, from, to) = match *event {
                Event::Ran { task, from, to } => (&mut work, task, from, to),
                Event::Overhead {
                    task: Some(task),
                    from,
                    to,
                    ..
                } => (&mut overhead, task, from, to),
                _ => continue,
            };
            if self.is_of(task, server) && from < self.window.end && to > self.window.start {
                strips.add(self.x(from), self.x(to));
            }
        }
        for (strips, fill) in [(&work, colour), (&overhead, OVERHEAD)] {
            for &(from, to) in &strips.0 {
                // A span that is too short to be seen is drawn as one pixel.
                let to = to.max(from + 1);
                root.draw(&Rectangle::new(
                    [(from, floor - BOX), (to, floor)],
                    fill.filled(),
                ))?;
            }
        }
        Ok(())
    }

    /// The budget over time: it falls while the server is charged and rises when it is
    /// replenished.
    fn budget(&self, root: &Area<'_>, server: usize, floor: i32, colour: RGBColor) -> Result<()> {
        let Some(contract) = &self.trace.servers()[server] else {
            return Ok(());
        };
        let line = self.budget_line(server, contract.budget());
        let most = line.iter().map(|point| point.1).max().unwrap_or(1);
        let most = most.max(contract.budget());
        let y =
            |left: Nanos| floor - (left as f64 / most as f64 * f64::from(BUDGET)).round() as i32;
        let mut path: Vec<(i32, i32)> = Vec::new();
        for (at, left) in line {
            let point = (self.x(at), y(left));
            if path.last() != Some(&point) {
                path.push(point);
            }
        }
        let mut below = path.clone();
        below.push((path.last().map_or(LEFT, |point| point.0), floor));
        below.push((path.first().map_or(LEFT, |point| point.0), floor));
        root.draw(&Polygon::new(below, colour.mix(0.16).filled()))?;
        root.draw(&PathElement::new(path, colour.stroke_width(2)))?;
        let mut last = None;
        for event in self.trace.events() {
            if let Event::Budget {
                server: of,
                at,
                left,
                replenished: true,
            } = *event
                && of.get() == server
                && self.shows(at)
                && last.replace(self.x(at)) != Some(self.x(at))
            {
                triangle(root, self.x(at), y(left) - 1, colour)?;
            }
        }
        Ok(())
    }

    /// Corners of the budget's line within the window.
    fn budget_line(&self, server: usize, full: Nanos) -> Vec<(Nanos, Nanos)> {
        let Range { start, end } = self.window;
        let mut left = full;
        let mut line = vec![(start, left)];
        for event in self.trace.events() {
            match *event {
                Event::Ran { task, from, to }
                | Event::Overhead {
                    task: Some(task),
                    from,
                    to,
                    ..
                } if from <= end && self.is_of(task, server) => {
                    let until = |at: Nanos| left.saturating_sub(at.clamp(from, to) - from);
                    line.push((from.max(start), until(start)));
                    line.push((to.clamp(start, end), until(end)));
                    left = left.saturating_sub(to - from);
                }
                Event::Budget {
                    server: of,
                    at,
                    left: now,
                    ..
                } if at <= end && of.get() == server => {
                    line.push((at.max(start), left));
                    left = now;
                    line.push((at.max(start), left));
                }
                _ => {}
            }
            // Events before the window only determine where the line begins.
            if line.iter().all(|corner| corner.0 == start) {
                line = vec![(start, left)];
            }
        }
        let last = line.last().map_or(left, |corner| corner.1);
        line.push((end, last));
        line
    }

    /// Activations and missed deadlines.
    fn marks(&self, root: &Area<'_>, server: usize, floor: i32) -> Result<()> {
        let mut last = None;
        for event in self.trace.events() {
            match *event {
                Event::Activated { task, planned, .. }
                    if self.is_of(task, server) && self.shows(planned) =>
                {
                    let x = self.x(planned);
                    if last.replace(x) != Some(x) {
                        arrow(root, x, floor, BOX + 8)?;
                    }
                }
                Event::Missed { task, due, .. } if self.is_of(task, server) && self.shows(due) => {
                    cross(root, self.x(due), floor - BOX / 2)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Stretches of pixels, joined where they touch.
#[derive(Default)]
struct Strips(Vec<(i32, i32)>);

impl Strips {
    fn add(&mut self, from: i32, to: i32) {
        match self.0.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => self.0.push((from, to)),
        }
    }
}

/// The distance of ticks on an axis of this length: 1, 2 or 5 times a power of ten, about ten
/// of them.
fn step(length: Nanos) -> Nanos {
    let rough = (length / 10).max(1);
    let mut power = 1;
    while power <= rough / 10 {
        power *= 10;
    }
    [1, 2, 5, 10]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough)
        .unwrap_or(10 * power)
}

/// A name that fits beside a lane.
fn shortened(name: &str) -> String {
    const MOST: usize = 15;
    match name.chars().count() {
        0..=MOST => name.to_owned(),
        _ => name.chars().take(MOST - 1).chain(['…']).collect(),
    }
}

fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}

/// An arrow upwards whose foot stands on `y`.
fn arrow(root: &Area<'_>, x: i32, y: i32, length: i32) -> Result<()> {
    let style = ShapeStyle::from(&INK).stroke_width(1);
    root.draw(&PathElement::new([(x, y), (x, y - length + 4)], style))?;
    let head = [
        (x, y - length),
        (x - 4, y - length + 8),
        (x + 4, y - length + 8),
    ];
    Ok(root.draw(&Polygon::new(head, INK.filled()))?)
}

/// A triangle that points upwards, with its base on `y`.
fn triangle(root: &Area<'_>, x: i32, y: i32, colour: RGBColor) -> Result<()> {
    let corners = [(x, y - 8), (x - 5, y), (x + 5, y)];
    Ok(root.draw(&Polygon::new(corners, colour.filled()))?)
}

/// The mark of a timer interrupt.
fn tick(root: &Area<'_>, x: i32, y: i32, switched: bool) -> Result<()> {
    let colour = if switched { INK } else { ALARM };
    let half = if switched { 6 } else { 9 };
    let line = [(x, y - half), (x, y + half)];
    Ok(root.draw(&PathElement::new(line, colour.stroke_width(2)))?)
}

fn cross(root: &Area<'_>, x: i32, y: i32) -> Result<()> {
    let style = ShapeStyle::from(&ALARM).stroke_width(2);
    root.draw(&PathElement::new([(x - 5, y - 5), (x + 5, y + 5)], style))?;
    Ok(root.draw(&PathElement::new([(x - 5, y + 5), (x + 5, y - 5)], style))?)
}

#[cfg(test)]
mod tests {
    use super::{Lanes, Strips, step};
    use leasehold_reserve::simulate::{Behaviour, CostModel, Simulation, Trace};
    use leasehold_reserve::{Config, Contract, Nanos, Order, Priority, Shielding};

    const MS: Nanos = 1_000_000;

    fn trace(shielding: Shielding) -> Trace {
        let config = Config {
            order: Order::FixedPriority,
            shielding,
            servers: 3,
            tasks: 3,
            seed: 0,
        };
        let contract = |budget, period, priority| {
            Contract::new(budget, period)
                .expect("valid")
                .with_priority(Priority(priority))
        };
        let trace = Trace::new(1 << 16, true);
        let mut simulation = Simulation::new(config, CostModel::BARE_METAL, trace);
        let high = simulation
            .server(&contract(2 * MS, 10 * MS, 2))
            .expect("room");
        let low = simulation
            .server(&contract(6 * MS, 20 * MS, 1))
            .expect("room");
        let rest = simulation.background(MS).expect("room");
        let naps = Behaviour::Alternating {
            run: MS,
            sleep: 2 * MS,
        };
        for (server, behaviour) in [
            (high, naps),
            (low, Behaviour::Busy),
            (rest, Behaviour::Busy),
        ] {
            simulation.task(server, behaviour).expect("takes time");
        }
        simulation.run_until(100 * MS).expect("time passes");
        simulation.into_sink()
    }

    fn draw(trace: &Trace, window: std::ops::Range<Nanos>) -> String {
        Lanes {
            title: "A <schedule>",
            trace,
            names: &["high", "low"],
            window,
        }
        .to_svg()
        .expect("drawable")
    }

    #[test]
    fn a_lane_shows_what_ran_and_what_was_left() {
        let svg = draw(&trace(Shielding::Shielded), 0..40 * MS);
        for part in [
            "high",
            "low",
            "server 2",
            "background",
            "6 ms in 20 ms",
            "priority 2",
        ] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(svg.contains("A &lt;schedule&gt;") && !svg.contains("NaN"));
        let count = |what: &str| svg.matches(what).count();
        assert!(count("<rect") > 10 && count("<polyline") > 10 && count("<polygon") > 10);
        for instant in ["10 ms", "40 ms"] {
            assert!(svg.contains(instant), "{instant}");
        }
    }

    #[test]
    fn a_budget_falls_while_its_server_is_charged_and_never_rises_without_a_replenishment() {
        let trace = trace(Shielding::Shielded);
        for window in [0..100 * MS, 3 * MS + 1..17 * MS + 1, 55 * MS..56 * MS] {
            for (server, full) in [(0, 2 * MS), (1, 6 * MS)] {
                let lanes = Lanes {
                    title: "",
                    trace: &trace,
                    names: &[],
                    window: window.clone(),
                };
                let line = lanes.budget_line(server, full);
                let (first, last) = (line[0], line[line.len() - 1]);
                assert_eq!((first.0, last.0), (window.start, window.end));
                for pair in line.windows(2) {
                    let (before, after) = (pair[0], pair[1]);
                    assert!(before.0 <= after.0, "{pair:?}");
                    // Slopes are those of time; only a step goes up.
                    let time = after.0 - before.0;
                    let falls = before
                        .1
                        .checked_sub(after.1)
                        .is_some_and(|used| used <= time);
                    assert!(time == 0 || falls, "{pair:?}");
                }
            }
        }
    }

    #[test]
    fn only_the_window_is_drawn() {
        let trace = trace(Shielding::Shielded);
        let boxes = |window| draw(&trace, window).matches("<rect").count();
        assert!(boxes(0..10 * MS) < boxes(0..90 * MS));
        // Nothing happens after the end; the axes and the legend are still there.
        assert!(boxes(500 * MS..600 * MS) < boxes(0..10 * MS));
    }

    #[test]
    fn unnecessary_interrupts_are_drawn_through_all_lanes() {
        // Drawn in a transparent red, which nothing else is.
        let faint = |shielding| {
            draw(&trace(shielding), 0..100 * MS)
                .matches("opacity=\"0.25\"")
                .count()
        };
        assert_eq!(faint(Shielding::Shielded), 0);
        assert!(faint(Shielding::Eager) > 0);
    }

    #[test]
    fn stretches_that_touch_are_one() {
        let mut strips = Strips::default();
        for (from, to) in [(1, 3), (3, 5), (7, 7), (7, 9)] {
            strips.add(from, to);
        }
        assert_eq!(strips.0, [(1, 5), (7, 9)]);
    }

    #[test]
    fn ticks_are_1_2_or_5_times_a_power_of_ten_apart() {
        for (length, expected) in [(40 * MS, 5 * MS), (100, 10), (99, 10), (5, 1), (0, 1)] {
            assert_eq!(step(length), expected, "{length}");
        }
    }
}
