//! Panels of a measurement over time, in which instants are marked.

use anyhow::Result;
use plotters::element::{DashedPathElement, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, ShapeStyle, WHITE};

use super::{Area, Axis, COLOURS, FONT, INK, Panel, Ticked};

/// Height of the strip of a panel's caption.
const CAPTION: i32 = 24;
/// Size of the labels of instants, the distance of their lines, and how wide a character is, pixels.
const LABEL: i32 = 13;
const LINE: i32 = 19;
const CHARACTER: f64 = 6.7;
/// Where the first label stands: this share of the chart's height below its upper end.
const FIRST_LABEL: f64 = 0.3;
/// Beyond this share of the width, a label is placed on the left of its instant.
const TO_THE_LEFT: f64 = 0.6;

/// A measurement over time: the largest value in each of many short spans.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// The text above the panel.
    pub caption: String,
    /// The time axis.
    pub x: Axis,
    /// First and last instant that is shown. Panels that have this and `y_range` in common can be
    /// compared.
    pub x_range: (f64, f64),
    /// Smallest and largest value that the vertical axis covers.
    pub y_range: (f64, f64),
    /// Which of the figure's colours the line has.
    pub colour: usize,
    /// The instant from which each value counts, in the order of time; the last counts for an instant
    /// only.
    pub steps: Vec<(f64, f64)>,
    /// A span that is tinted.
    pub span: Option<(f64, f64)>,
    /// Instants that are marked.
    pub instants: Vec<Instant>,
}

/// An instant that is marked by a vertical line.
#[derive(Debug, Clone)]
pub struct Instant {
    /// When.
    pub at: f64,
    /// The event.
    pub label: String,
    /// Whether the line is dashed: the instant was promised, not observed.
    pub promised: bool,
}

impl Panel {
    pub(super) fn timeline(&self, area: &Area<'_>, timeline: &Timeline) -> Result<()> {
        let colour = COLOURS[timeline.colour % COLOURS.len()];
        let (strip, area) = area.split_vertically(CAPTION);
        let font = (FONT, 15).into_font().color(&colour);
        strip.draw(&Text::new(
            timeline.caption.clone(),
            (super::MARGIN, 8),
            font,
        ))?;
        let (first, last) = timeline.x_range;
        let across: Ticked = timeline.x.coordinate([first, last].into_iter());
        let label = |place: &f64| timeline.x.label(*place);
        let (low, high) = timeline.y_range;
        let values = [low, high].into_iter();
        let mut chart = self.chart(&area, across, &timeline.x.title, &label, values)?;
        let (x, y) = (chart.x_range(), chart.y_range());
        if let Some((from, to)) = timeline.span {
            let corners = [(from, y.start), (to, y.end)];
            chart.draw_series([Rectangle::new(corners, colour.mix(0.12).filled())])?;
        }
        let placed = timeline.steps.iter().filter_map(|(at, value)| {
            let value = self.y.place(*value)?.clamp(y.start, y.end);
            Some((*at, value))
        });
        let placed: Vec<(f64, f64)> = placed.collect();
        let corners = placed.windows(2).flat_map(|pair| {
            let [(at, value), (until, _)] = pair else {
                return [(0.0, 0.0); 2];
            };
            [(*at, *value), (*until, *value)]
        });
        let corners: Vec<(f64, f64)> = corners.collect();
        chart.draw_series([PathElement::new(corners, colour.stroke_width(2))])?;
        let style = ShapeStyle::from(&INK).stroke_width(1);
        for instant in &timeline.instants {
            let ends = [(instant.at, y.start), (instant.at, y.end)];
            if instant.promised {
                chart.draw_series([DashedPathElement::new(ends, 6, 4, style)])?;
            } else {
                chart.draw_series([PathElement::new(ends, style)])?;
            }
        }
        // Each on a line of its own, and on the lines of other instants.
        let (across, up) = chart.plotting_area().dim_in_pixel();
        let line = (y.end - y.start) * f64::from(LINE) / f64::from(up);
        let character = (x.end - x.start) * CHARACTER / f64::from(across);
        let mut height = y.end - (y.end - y.start) * FIRST_LABEL;
        for instant in &timeline.instants {
            let share = (instant.at - x.start) / (x.end - x.start);
            let (side, anchor) = match share > TO_THE_LEFT {
                true => (-1.0, HPos::Right),
                false => (1.0, HPos::Left),
            };
            let from = instant.at + side * character;
            let width = character * instant.label.chars().count() as f64;
            let corners = [
                (from, height + 0.4 * line),
                (from + side * width, height - 0.4 * line),
            ];
            chart.draw_series([Rectangle::new(corners, WHITE.mix(0.8).filled())])?;
            let style = (FONT, LABEL).into_font().color(&INK);
            let style = style.pos(Pos::new(anchor, VPos::Center));
            chart.draw_series([Text::new(instant.label.clone(), (from, height), style)])?;
            height -= line;
        }
        Ok(())
    }
}

/// The largest value in each of `columns` equal spans from `x_range.0` to `x_range.1`, of values that
/// each count from one instant to another, `(from, until, value)`. Spans with the same value as the one
/// before are left out, and so are spans in which no value counts.
pub fn envelope(
    values: &[(f64, f64, f64)],
    x_range: (f64, f64),
    columns: usize,
) -> Vec<(f64, f64)> {
    let (first, last) = x_range;
    let width = (last - first) / columns.max(1) as f64;
    let mut largest: Vec<Option<f64>> = vec![None; columns];
    for (from, until, value) in values {
        let low = ((from - first) / width).floor().max(0.0);
        let high = ((until - first) / width).ceil();
        if high < 1.0 || low >= columns as f64 {
            continue;
        }
        let high = (high as usize).min(columns) - 1;
        for cell in &mut largest[low as usize..=high] {
            *cell = Some(cell.map_or(*value, |most| most.max(*value)));
        }
    }
    let mut steps: Vec<(f64, f64)> = Vec::new();
    let mut end = None;
    for (column, value) in largest.into_iter().enumerate() {
        let Some(value) = value else {
            continue;
        };
        let at = first + column as f64 * width;
        if steps.last().is_none_or(|(_, before)| *before != value) {
            steps.push((at, value));
        }
        end = Some((at + width, value));
    }
    steps.extend(end);
    steps
}

#[cfg(test)]
mod tests {
    use super::{Instant, Timeline, envelope};
    use crate::harness::plot::{Axis, Figure, Marks, Panel};
    use crate::harness::unit::Unit;

    #[test]
    fn an_envelope_has_the_largest_value_of_each_span() {
        let values = [
            (0.0, 1.0, 1.0),
            (1.0, 1.5, 0.5),
            (1.5, 1.9, 0.4),
            (1.9, 4.2, 2.3),
        ];
        let steps = envelope(&values, (0.0, 4.0), 8);
        assert_eq!(steps, [(0.0, 1.0), (1.0, 0.5), (1.5, 2.3), (4.0, 2.3)]);
        // Nothing counts before the first value or after the last.
        let steps = envelope(&[(1.2, 1.4, 3.0)], (0.0, 4.0), 4);
        assert_eq!(steps, [(1.0, 3.0), (2.0, 3.0)]);
        assert_eq!(
            envelope(&[(-3.0, -2.0, 1.0), (9.0, 10.0, 1.0)], (0.0, 4.0), 4),
            []
        );
        assert_eq!(envelope(&[], (0.0, 4.0), 4), []);
    }

    #[test]
    fn timelines_with_the_same_ranges_have_the_same_axes_and_mark_their_instants() {
        let timeline = |caption: &str, value: f64| Panel {
            y: Axis::logarithmic("latency", Unit::Nanoseconds),
            marks: Marks::Timeline(Timeline {
                caption: caption.into(),
                x: Axis::linear("time from the kill", Unit::Nanoseconds),
                x_range: (-5e8, 2e9),
                y_range: (1e5, 2e9),
                colour: 0,
                steps: vec![(-5e8, 2e5), (0.0, value), (1e9, 2e5), (2e9, 2e5)],
                span: Some((0.0, 1e9)),
                instants: vec![Instant {
                    at: 1.9e9,
                    label: "deadline".into(),
                    promised: true,
                }],
            }),
        };
        let figure = |panels| Figure {
            title: String::new(),
            panels,
        };
        let both = figure(vec![timeline("above", 1e9), timeline("below", 1e6)]);
        let svg = both.to_svg().expect("drawable");
        for text in ["above", "below", "deadline", "-500 ms", "2 s", "10 s"] {
            let count = svg.matches(&format!("\n{text}\n")).count();
            assert!(count > 0, "{text} in {svg}");
        }
        assert!(!svg.contains("NaN"));
        // One below the other: each has the whole width.
        assert!(svg.starts_with("<svg width=\"1180\""), "{svg}");
    }
}
