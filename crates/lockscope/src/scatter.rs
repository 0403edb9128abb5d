//! Predicted against measured losses as SVG: a point for each direction of a pair.

use crate::style::{FONT, GRID, INK};
use plotters::chart::ChartBuilder;
use plotters::coord::combinators::IntoLogRange;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, Text, TriangleMarker};
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::{Color, IntoFont, RGBColor, WHITE};

/// Width and height of the picture, in pixels.
const SIZE: (u32, u32) = (720, 640);
/// The least and the largest loss of both axes, in per cent. What is outside is drawn at the edge.
const LEAST: f64 = 0.1;
const MOST: f64 = 1_000.0;
/// How many pairs are named: those that are wrong by the largest factor.
const NAMED: usize = 6;
const TUNED: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const HELD_OUT: RGBColor = RGBColor(0xd5, 0x5e, 0x00);

/// Predictions beside measurements.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scatter {
    /// In any order.
    pub points: Vec<ScatterPoint>,
    /// What may be measured of a workload that loses nothing, as a part of its time: points below are not
    /// named.
    pub noise: f64,
}

/// What one workload loses to another one, in parts of its time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScatterPoint {
    /// What the pair is called.
    pub name: String,
    /// By the trace.
    pub predicted: f64,
    /// Without a tracer.
    pub measured: f64,
    /// Whether nothing was tuned by it.
    pub held_out: bool,
}

impl ScatterPoint {
    fn place(&self) -> (f64, f64) {
        let percent = |loss: f64| (loss * 100.0).clamp(LEAST, MOST);
        (percent(self.predicted), percent(self.measured))
    }

    fn factor(&self) -> f64 {
        let (predicted, measured) = self.place();
        (predicted / measured).max(measured / predicted)
    }
}

impl Scatter {
    /// The picture.
    ///
    /// # Panics
    /// Never: drawing into a string does not fail.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let mut svg = String::new();
        self.draw(&mut svg).expect("a string takes every picture");
        svg
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .margin(20)
            .caption(
                "Loss beside the other workload (triangles: held out)",
                (FONT, 16).into_font().color(&INK),
            )
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d((LEAST..MOST).log_scale(), (LEAST..MOST).log_scale())?;
        let percent = |value: &f64| format!("{value} %");
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .axis_style(INK)
            .x_desc("predicted, % of its own time (0.1: that or less)")
            .y_desc("measured, % of its own time (0.1: that or less)")
            .x_label_formatter(&percent)
            .y_label_formatter(&percent)
            .label_style((FONT, 13).into_font().color(&INK))
            .draw()?;
        chart.draw_series(LineSeries::new([(LEAST, LEAST), (MOST, MOST)], INK))?;
        let of = |held_out: bool| {
            let points = self.points.iter();
            points.filter(move |point| point.held_out == held_out)
        };
        let circle = |point: &ScatterPoint| Circle::new(point.place(), 4, TUNED.filled());
        chart.draw_series(of(false).map(circle))?;
        let triangle =
            |point: &ScatterPoint| TriangleMarker::new(point.place(), 6, HELD_OUT.filled());
        chart.draw_series(of(true).map(triangle))?;
        let font = (FONT, 11).into_font().color(&INK);
        let name = |point: &ScatterPoint| Text::new(point.name.clone(), point.place(), &font);
        chart.draw_series(self.worst().into_iter().map(name))?;
        root.present()?;
        Ok(())
    }

    /// One point of each of the pairs that are wrong by the largest factor, of what is above the noise.
    fn worst(&self) -> Vec<&ScatterPoint> {
        let above = self
            .points
            .iter()
            .filter(|point| point.measured > self.noise);
        let mut points: Vec<_> = above.collect();
        points.sort_by(|one, two| two.factor().total_cmp(&one.factor()));
        let mut worst: Vec<&ScatterPoint> = Vec::new();
        for point in points {
            if worst.len() < NAMED && worst.iter().all(|other| other.name != point.name) {
                worst.push(point);
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, predicted: f64, measured: f64, held_out: bool) -> ScatterPoint {
        ScatterPoint {
            name: name.into(),
            predicted,
            measured,
            held_out,
        }
    }

    #[test]
    fn a_scatter_names_its_axes_and_the_worst_pairs_and_marks_what_is_held_out() {
        let scatter = Scatter {
            points: vec![
                point("pipe+pipe", 0.1, 3.0, false),
                point("list+list", 0.003, 0.2, true),
                point("quiet+quiet", 0.9, 0.01, false),
            ],
            noise: 0.05,
        };
        let svg = scatter.to_svg();
        for text in ["predicted, %", "measured, %", "pipe+pipe", "list+list"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("quiet+quiet"), "below the noise");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("<polygon").count(), 1);
    }

    #[test]
    fn losses_of_nothing_and_without_a_number_are_drawn_at_the_edge() {
        let scatter = Scatter {
            points: vec![point("a", 0.0, -0.1, false), point("b", 1e9, 2e9, true)],
            noise: 0.05,
        };
        let svg = scatter.to_svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
