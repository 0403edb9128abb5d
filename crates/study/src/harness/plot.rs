//! Figures: panels of curves or of grouped bars, in one style, as SVG.
//!
//! Values are placed on the axes here (logarithmic axes are linear in the exponent), so that both
//! kinds of axis have ticks of our choosing and the plotting crate only draws.

mod timeline;

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, WHITE};

use crate::harness::samples::Spread;
use crate::harness::unit::Unit;

pub use timeline::{Instant, Timeline, envelope};

/// Width and height of a panel in pixels, legible at the width of a page with three in a row.
const PANEL: (u32, u32) = (460, 360);
/// The same of a panel that has a row to itself.
const WIDE: (u32, u32) = (1180, 330);
/// Panels in a row.
const ROW: usize = 3;
/// Height of a figure's title.
const TITLE: u32 = 36;
/// The space beside the axes of a panel: its margins, and the labels on the left.
const MARGIN: i32 = 10;
const MARGIN_RIGHT: i32 = 24;
const LABELS: i32 = 76;
const AROUND: i32 = MARGIN + LABELS + MARGIN_RIGHT;
/// Height of a panel's legend, and of each further line of it.
const LEGEND: i32 = 26;
const LEGEND_LINE: i32 = 20;
pub(crate) const FONT: &str = "sans-serif";
pub(crate) const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
pub(crate) const GRID: RGBColor = RGBColor(0xdd, 0xe1, 0xe6);
/// Colours that are distinguishable with red–green colour blindness (Okabe and Ito).
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ticked, Ticked>>;

/// A picture of one or more panels in rows. One without panels is an empty picture.
#[derive(Debug, Clone, Default)]
pub struct Figure {
    /// The subject of the whole figure.
    pub title: String,
    /// From left to right, and then downwards.
    pub panels: Vec<Panel>,
}

/// One pair of axes and what is drawn between them.
#[derive(Debug, Clone)]
pub struct Panel {
    /// The vertical axis.
    pub y: Axis,
    /// The figure's contents.
    pub marks: Marks,
}

/// The contents of a panel.
#[derive(Debug, Clone)]
pub enum Marks {
    /// Curves with error bars over a numeric axis.
    Curves {
        /// The horizontal axis.
        x: Axis,
        /// One curve for each.
        series: Vec<Series<f64>>,
    },
    /// Bars with error bars, in groups: one group for each name, in it one bar of each series.
    Bars {
        /// The meaning of the groups.
        title: String,
        /// Names of the groups, from left to right.
        groups: Vec<String>,
        /// Points name their group by its index.
        series: Vec<Series<usize>>,
    },
    /// A measurement over time.
    Timeline(Timeline),
}

/// An axis; its ticks carry the unit.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The quantity along it.
    pub title: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Whether equal lengths are equal factors. Values of zero and less are then not drawn.
    pub logarithmic: bool,
}

/// Points that belong together.
#[derive(Debug, Clone)]
pub struct Series<X> {
    /// Its name in the legend, which is drawn if there are several series.
    pub name: String,
    /// Its points, in the order in which they are joined.
    pub points: Vec<(X, Spread)>,
}

impl Axis {
    /// An axis with equal steps.
    pub fn linear(title: impl Into<String>, unit: Unit) -> Self {
        Self {
            title: title.into(),
            unit,
            logarithmic: false,
        }
    }

    /// An axis with equal factors.
    pub fn logarithmic(title: impl Into<String>, unit: Unit) -> Self {
        Self {
            title: title.into(),
            unit,
            logarithmic: true,
        }
    }

    /// Where `value` lies along the axis, or `None` where it has no place.
    fn place(&self, value: f64) -> Option<f64> {
        let place = if self.logarithmic {
            value.log10()
        } else {
            value
        };
        place.is_finite().then_some(place)
    }

    /// The value from which bars grow, if not from the lower end: no change, where equal lengths are
    /// equal factors.
    fn origin(&self) -> Option<f64> {
        (self.logarithmic && self.unit == Unit::Ratio).then_some(1.0)
    }

    fn label(&self, place: f64) -> String {
        self.unit.tick(if self.logarithmic {
            10f64.powf(place)
        } else {
            place
        })
    }

    /// The axis over `values`: its ends rounded outwards to ticks, about six ticks.
    fn coordinate(&self, values: impl Iterator<Item = f64>) -> Ticked {
        let mut range: Option<(f64, f64)> = None;
        for place in values.filter_map(|value| self.place(value)) {
            let (low, high) = range.unwrap_or((place, place));
            range = Some((low.min(place), high.max(place)));
        }
        let (mut low, high) = range.unwrap_or((0.0, 1.0));
        if !self.logarithmic {
            low = low.min(0.0);
        }
        let step = step(high - low, self.logarithmic);
        let (first, mut last) = ((low / step).floor(), (high / step).ceil());
        if last <= first {
            last = first + 1.0;
        }
        let ticks = (0..=(last - first) as u32)
            .map(|n| (first + f64::from(n)) * step)
            .collect();
        Ticked {
            range: first * step..last * step,
            ticks,
        }
    }
}

/// A range of places and those of them that have a tick.
struct Ticked {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }

    fn map(&self, place: &f64, pixels: (i32, i32)) -> i32 {
        let share = (place - self.range.start) / (self.range.end - self.range.start);
        pixels.0 + (share * f64::from(pixels.1 - pixels.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.clone()
        }
    }
}

/// The distance of ticks on an axis of this `length`: 1, 2 or 5 times a power of ten; whole
/// powers of ten on a logarithmic axis.
fn step(length: f64, logarithmic: bool) -> f64 {
    let rough = (length / 6.0).max(f64::MIN_POSITIVE);
    if logarithmic {
        return rough.ceil().max(1.0);
    }
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|f| f * power >= rough);
    factor.unwrap_or(10.0) * power
}

impl Figure {
    /// Draws the figure, up to three panels in a row, or one if a panel needs the width: for the names
    /// of its bars, or as a timeline.
    ///
    /// # Errors
    /// If the plotting crate refuses, which it does for no figure that can be described here.
    pub fn to_svg(&self) -> Result<String> {
        let (columns, panel) = if self.panels.iter().any(|panel| panel.marks.are_wide()) {
            (1, WIDE)
        } else {
            (self.panels.len().clamp(1, ROW), PANEL)
        };
        let rows = self.panels.len().max(1).div_ceil(columns);
        let width = panel.0 * u32::try_from(columns)?;
        let height = panel.1 * u32::try_from(rows)? + TITLE;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
            let drawn = self
                .draw(&root, (rows, columns))
                .and_then(|()| Ok(root.present()?));
            drawn.map_err(|error| anyhow!("cannot draw the figure {:?}: {error}", self.title))?;
        }
        Ok(svg)
    }

    fn draw(&self, root: &Area<'_>, rows_and_columns: (usize, usize)) -> Result<()> {
        root.fill(&WHITE)?;
        let body = root.titled(&self.title, (FONT, 19).into_font().color(&INK))?;
        for (panel, area) in self.panels.iter().zip(body.split_evenly(rows_and_columns)) {
            panel.draw(&area)?;
        }
        Ok(())
    }
}

impl Marks {
    /// Whether a panel among others has no room: names below the axis would run into each other, or the
    /// labels of instants.
    fn are_wide(&self) -> bool {
        let groups = match self {
            Self::Bars { groups, .. } => groups,
            Self::Curves { .. } => return false,
            Self::Timeline(_) => return true,
        };
        let longest = groups.iter().map(|name| name.chars().count()).max();
        let name = longest.map_or(0, text_width);
        let across = i32::try_from(PANEL.0).unwrap_or(i32::MAX) - AROUND;
        i32::try_from(groups.len()).map_or(true, |groups| groups.saturating_mul(name) > across)
    }
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        match &self.marks {
            Marks::Curves { x, series } => self.curves(area, x, series),
            Marks::Bars {
                title,
                groups,
                series,
            } => self.bars(area, title, groups, series),
            Marks::Timeline(timeline) => self.timeline(area, timeline),
        }
    }

    fn curves(&self, area: &Area<'_>, x: &Axis, series: &[Series<f64>]) -> Result<()> {
        let across = x.coordinate(series.iter().flat_map(|s| s.points.iter().map(|(x, _)| *x)));
        let area = legend(area, series)?;
        let label = |place: &f64| x.label(*place);
        let mut chart = self.chart(&area, across, &x.title, &label, values(series))?;
        for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
            let placed: Vec<(f64, f64, Spread)> = series
                .points
                .iter()
                .filter_map(|(at, y)| Some((x.place(*at)?, self.y.place(y.median)?, *y)))
                .collect();
            for (at, _, spread) in &placed {
                self.error_bar(&mut chart, *at, spread, *colour)?;
            }
            let line = LineSeries::new(placed.iter().map(|p| (p.0, p.1)), colour.stroke_width(2));
            let dots = placed
                .iter()
                .map(|p| Circle::new((p.0, p.1), 3, colour.filled()));
            chart.draw_series(dots)?;
            chart.draw_series(line)?;
        }
        Ok(())
    }

    fn bars(
        &self,
        area: &Area<'_>,
        title: &str,
        groups: &[String],
        series: &[Series<usize>],
    ) -> Result<()> {
        let across = Ticked {
            range: -0.5..groups.len() as f64 - 0.5,
            ticks: (0..groups.len()).map(|n| n as f64).collect(),
        };
        let name = |place: &f64| groups.get(*place as usize).cloned().unwrap_or_default();
        let area = legend(area, series)?;
        let origin = self.y.origin();
        let mut chart = self.chart(&area, across, title, &name, values(series).chain(origin))?;
        let foot = origin
            .and_then(|origin| self.y.place(origin))
            .unwrap_or(chart.y_range().start);
        // A fifth of each group's width stays empty.
        let width = 0.8 / series.len().max(1) as f64;
        for (index, (series, colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let mut bars = Vec::new();
            for (group, spread) in &series.points {
                let Some(top) = self.y.place(spread.median) else {
                    continue;
                };
                let left = *group as f64 - 0.4 + index as f64 * width;
                bars.push(Rectangle::new(
                    [(left + 0.04 * width, foot), (left + 0.96 * width, top)],
                    colour.filled(),
                ));
            }
            chart.draw_series(bars)?;
            for (group, spread) in &series.points {
                let middle = *group as f64 - 0.4 + (index as f64 + 0.5) * width;
                self.error_bar(&mut chart, middle, spread, INK)?;
            }
        }
        Ok(())
    }

    /// The frame of a chart: axes, their titles and ticks; `values` are on the vertical one.
    fn chart<'a, 'b>(
        &self,
        area: &'a Area<'b>,
        across: Ticked,
        title: &str,
        tick: &dyn Fn(&f64) -> String,
        values: impl Iterator<Item = f64>,
    ) -> Result<Chart<'a, 'b>> {
        let up = self.y.coordinate(values);
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_right(MARGIN_RIGHT)
            .x_label_area_size(48)
            .y_label_area_size(LABELS)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style((FONT, 13).into_font().color(&INK))
            .axis_desc_style((FONT, 15).into_font().color(&INK))
            .x_desc(title)
            .y_desc(&*self.y.title)
            .x_label_formatter(&|place| tick(place))
            .y_label_formatter(&|place| self.y.label(*place))
            .draw()?;
        Ok(chart)
    }

    /// A vertical bar from the 5th to the 95th percentile, with caps.
    fn error_bar(
        &self,
        chart: &mut Chart<'_, '_>,
        at: f64,
        spread: &Spread,
        colour: RGBColor,
    ) -> Result<()> {
        let Some(high) = self.y.place(spread.p95).filter(|_| spread.p5 < spread.p95) else {
            return Ok(());
        };
        let floor = chart.y_range().start;
        let low = self.y.place(spread.p5).unwrap_or(floor).max(floor);
        let across = chart.x_range();
        let cap = (across.end - across.start) * 0.008;
        let style = ShapeStyle::from(&colour).stroke_width(1);
        chart.draw_series([
            PathElement::new([(at, low), (at, high)], style),
            PathElement::new([(at - cap, low), (at + cap, low)], style),
            PathElement::new([(at - cap, high), (at + cap, high)], style),
        ])?;
        Ok(())
    }
}

/// The range that the vertical axis has to cover for these series.
fn values<X>(series: &[Series<X>]) -> impl Iterator<Item = f64> {
    let points = series.iter().flat_map(|series| &series.points);
    points.flat_map(|(_, spread)| [spread.p5, spread.median, spread.p95])
}

/// How wide a text of so many characters may be, pixels. The renderer of the picture chooses the
/// font: allows for a wide one.
fn text_width(characters: usize) -> i32 {
    i32::try_from(characters).map_or(i32::MAX, |characters| characters.saturating_mul(8))
}

/// Draws the legend into a strip of its own, where it hides no mark, if there is more than one
/// series to tell apart; the rest of the area is for the chart. What does not fit beside the others
/// goes into another line.
fn legend<'a, X>(area: &Area<'a>, series: &[Series<X>]) -> Result<Area<'a>> {
    /// The first entry stands above the chart's left edge.
    const LEFT: i32 = MARGIN + LABELS;
    if series.len() < 2 {
        return Ok(area.clone());
    }
    let right = i32::try_from(area.dim_in_pixel().0)?;
    let mut places = Vec::new();
    let (mut left, mut line) = (LEFT, 0);
    for series in series {
        let width = text_width(series.name.chars().count()).saturating_add(18);
        if left > LEFT && left + width > right {
            (left, line) = (LEFT, line + 1);
        }
        places.push((left, line * LEGEND_LINE));
        left += width + 14;
    }
    let (strip, rest) = area.split_vertically(LEGEND + line * LEGEND_LINE);
    for ((series, colour), (left, top)) in series.iter().zip(COLOURS.iter().cycle()).zip(places) {
        strip.draw(&Rectangle::new(
            [(left, top + 9), (left + 12, top + 21)],
            colour.filled(),
        ))?;
        let font = (FONT, 13).into_font().color(&INK);
        strip.draw(&Text::new(series.name.clone(), (left + 18, top + 9), font))?;
    }
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::{Axis, Figure, Marks, Panel, Series};
    use crate::harness::samples::Spread;
    use crate::harness::unit::Unit;

    fn spread(median: f64) -> Spread {
        Spread {
            median,
            p5: median * 0.8,
            p95: median * 1.5,
        }
    }

    fn curves() -> Figure {
        let series = |name: &str, factor: f64| Series {
            name: name.into(),
            points: (0..7)
                .map(|n| 10f64.powi(n))
                .map(|x| (x, spread(7e4 + x * factor)))
                .collect(),
        };
        Figure {
            title: "Ending <tenants>".into(),
            panels: vec![Panel {
                y: Axis::logarithmic("latency", Unit::Nanoseconds),
                marks: Marks::Curves {
                    x: Axis::logarithmic("objects", Unit::Count),
                    series: vec![series("grouped", 0.0), series("one by one", 800.0)],
                },
            }],
        }
    }

    #[test]
    fn a_figure_is_well_formed_and_names_axes_series_and_units() {
        let svg = curves().to_svg().expect("drawable");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["latency", "objects", "grouped", "one by one", "1 ms", "1 M"] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text} in {svg}");
        }
        assert!(!svg.contains("<tenants>"));
    }

    #[test]
    fn an_axis_covers_its_values_with_ticks_at_both_ends() {
        let covers = |axis: Axis, values: &[f64]| {
            let coordinate = axis.coordinate(values.iter().copied());
            let (range, ticks) = (coordinate.range, coordinate.ticks);
            assert_eq!(
                (ticks.first(), ticks.last()),
                (Some(&range.start), Some(&range.end))
            );
            assert!((2..=9).contains(&ticks.len()), "{ticks:?}");
            for place in values.iter().filter_map(|value| axis.place(*value)) {
                assert!(
                    range.start <= place && place <= range.end,
                    "{place} in {range:?}"
                );
            }
        };
        for values in [
            &[][..],
            &[5.0],
            &[0.0],
            &[1.0, 1.02],
            &[3e-9, 4e12],
            &[0.0, 0.1, 1e6],
        ] {
            covers(Axis::linear("", Unit::Ratio), values);
            covers(Axis::logarithmic("", Unit::Nanoseconds), values);
        }
    }

    #[test]
    fn what_cannot_be_placed_is_left_out() {
        let mut figure = curves();
        let Marks::Curves { series, .. } = &mut figure.panels[0].marks else {
            unreachable!()
        };
        series.truncate(1);
        series[0].points = vec![
            (0.0, spread(1.0)),
            (10.0, spread(-1.0)),
            (10.0, spread(f64::NAN)),
        ];
        let svg = figure.to_svg().expect("drawable");
        assert!(!svg.contains("<circle") && !svg.contains("NaN"));
    }

    #[test]
    fn bars_draw_one_rectangle_for_each_point() {
        let series = |name: &str| Series {
            name: name.into(),
            points: vec![(0, spread(2.0)), (2, spread(3.0))],
        };
        let bars = |series| Figure {
            title: String::new(),
            panels: vec![Panel {
                y: Axis::linear("slowdown", Unit::Ratio),
                marks: Marks::Bars {
                    title: "guest".into(),
                    groups: vec!["a".into(), "b".into(), "c".into()],
                    series,
                },
            }],
        };
        let count = |series| {
            bars(series)
                .to_svg()
                .expect("drawable")
                .matches("<rect")
                .count()
        };
        assert_eq!(count(vec![series("one")]) - count(vec![]), 2);
        assert!(
            bars(vec![series("x"), series("y")])
                .to_svg()
                .expect("drawable")
                .contains("\nb\n")
        );
    }

    #[test]
    fn panels_beyond_a_row_go_below() {
        let panel = curves().panels.remove(0);
        let figure = |panels: usize| Figure {
            title: String::new(),
            panels: vec![panel.clone(); panels],
        };
        let size = |svg: String| -> (u32, u32) {
            let number = |key: &str| {
                let (_, rest) = svg.split_once(key)?;
                rest.split('"').next()?.parse().ok()
            };
            let (width, height) = (number("width=\""), number("height=\""));
            (width.expect("a width"), height.expect("a height"))
        };
        let drawn = |panels| size(figure(panels).to_svg().expect("drawable"));
        let ((one, low), (three, same), (four, high)) = (drawn(1), drawn(3), drawn(4));
        assert_eq!((three, same), (3 * one, low));
        assert_eq!((four, high > low), (three, true));
        // Bars whose names would not fit beside each other have a row to themselves.
        let bars = |groups: usize| Figure {
            title: String::new(),
            panels: vec![
                Panel {
                    y: Axis::linear("speed", Unit::Ratio),
                    marks: Marks::Bars {
                        title: "guest".into(),
                        groups: vec!["recursion".into(); groups],
                        series: Vec::new(),
                    },
                };
                3
            ],
        };
        let drawn = |groups| size(bars(groups).to_svg().expect("drawable"));
        assert_eq!(drawn(4), (three, low));
        let (wide, tall) = drawn(12);
        assert!(wide > one && tall > high);
    }

    #[test]
    fn a_figure_without_panels_is_an_empty_picture() {
        assert!(
            Figure::default()
                .to_svg()
                .expect("drawable")
                .contains("<svg")
        );
    }
}
