//! Stacked bars as SVG (LockScope figures 2 and 3): one bar for each recording, in it one layer for
//! each subsystem.

use std::collections::{BTreeMap, BTreeSet};

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::{Color, IntoFont, RGBColor, WHITE};

/// Height of the picture, of its title and of its legend, in pixels.
const HEIGHT: u32 = 420;
const TITLE: u32 = 36;
const LEGEND: u32 = 26;
/// Width of a bar with the space around it, and of what is beside the bars.
const BAR: u32 = 80;
const MARGIN: u32 = 130;
/// Space between groups, in bars.
const GAP: f64 = 0.4;
/// At least so wide, for the title.
const NARROWEST: u32 = 560;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
const GRID: RGBColor = RGBColor(0xdd, 0xe1, 0xe6);
/// Colours that are distinguishable with red–green colour blindness (Okabe and Ito), and a grey.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x99, 0x99, 0x99),
];

/// Bars next to each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StackedBars {
    /// Above the picture.
    pub title: String,
    /// What the height is.
    pub axis: String,
    /// From left to right.
    pub bars: Vec<Bar>,
}

/// One of the bars.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bar {
    /// Below the bar.
    pub name: String,
    /// Below that, once for neighbours that have it in common; nothing if it is empty.
    pub group: String,
    /// Its layers by name. Values below zero or not finite count as zero.
    pub layers: BTreeMap<String, f64>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failure = Box<dyn std::error::Error>;

impl StackedBars {
    /// The picture. Layers have the same colour and the same order in every bar.
    ///
    /// # Panics
    /// Never: drawing into a string does not fail.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let mut svg = String::new();
        let (_, bars) = self.places();
        let width = ((bars * f64::from(BAR)) as u32).saturating_add(MARGIN);
        let size = (width.clamp(NARROWEST, 16_000), HEIGHT + TITLE + LEGEND);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        self.draw(&root).expect("a string takes every picture");
        drop(root);
        svg
    }

    fn draw(&self, root: &Area<'_>) -> Result<(), Failure> {
        root.fill(&WHITE)?;
        let (title, rest) = root.split_vertically(TITLE);
        let font = (FONT, 17).into_font().color(&INK);
        title.draw(&Text::new(self.title.clone(), (16, 10), font))?;
        let (legend, chart) = rest.split_vertically(LEGEND);
        let layers = self.layers();
        draw_legend(&legend, &layers)?;
        self.draw_bars(&chart, &layers)?;
        root.present()?;
        Ok(())
    }

    /// The names of all layers, the highest in total first.
    fn layers(&self) -> Vec<&str> {
        let names: BTreeSet<_> = self.bars.iter().flat_map(|bar| bar.layers.keys()).collect();
        let total = |name: &String| -> f64 { self.bars.iter().map(|bar| bar.height(name)).sum() };
        let mut names: Vec<_> = names
            .into_iter()
            .map(|name| (total(name), name.as_str()))
            .collect();
        names.sort_by(|one, two| two.0.total_cmp(&one.0));
        names.into_iter().map(|(_, name)| name).collect()
    }

    fn draw_bars(&self, area: &Area<'_>, layers: &[&str]) -> Result<(), Failure> {
        let total = |bar: &Bar| -> f64 { bar.layers.keys().map(|name| bar.height(name)).sum() };
        let tallest = self.bars.iter().map(total).fold(0.0, f64::max);
        let top = if tallest > 0.0 { tallest * 1.05 } else { 1.0 };
        let (places, width) = self.places();
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..width.max(1.0), 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .axis_style(INK)
            .label_style((FONT, 12).into_font().color(&INK))
            .axis_desc_style((FONT, 14).into_font().color(&INK))
            .y_desc(&*self.axis)
            .x_labels(0)
            .draw()?;
        let mut group = "";
        for (bar, left) in self.bars.iter().zip(places) {
            let mut floor = 0.0;
            for (layer, colour) in layers.iter().zip(COLOURS.iter().cycle()) {
                let top = floor + bar.height(layer);
                if top > floor {
                    let corners = [(left + 0.1, floor), (left + 0.9, top)];
                    chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                }
                floor = top;
            }
            let (x, y) = chart.backend_coord(&(left + 0.1, 0.0));
            let (origin_x, origin_y) = area.get_base_pixel();
            let place = |line| (x - origin_x, y - origin_y + 8 + 16 * line);
            let font = (FONT, 12).into_font().color(&INK);
            area.draw(&Text::new(shortened(&bar.name), place(0), font))?;
            if bar.group != group {
                let font = (FONT, 13).into_font().color(&INK);
                area.draw(&Text::new(bar.group.clone(), place(1), font))?;
                group = &bar.group;
            }
        }
        Ok(())
    }

    /// Where each bar begins, and how wide all of them are, in bars.
    fn places(&self) -> (Vec<f64>, f64) {
        let mut places = Vec::with_capacity(self.bars.len());
        let mut next = 0.0;
        for (at, bar) in self.bars.iter().enumerate() {
            if at > 0 && self.bars[at - 1].group != bar.group {
                next += GAP;
            }
            places.push(next);
            next += 1.0;
        }
        (places, next)
    }
}

impl Bar {
    /// What a layer adds to the bar.
    fn height(&self, layer: &str) -> f64 {
        let height = self.layers.get(layer).copied();
        height
            .filter(|height| height.is_finite() && *height > 0.0)
            .unwrap_or(0.0)
    }
}

/// A name that fits below its bar.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 11;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn draw_legend(area: &Area<'_>, layers: &[&str]) -> Result<(), Failure> {
    let mut left = 94;
    for (layer, colour) in layers.iter().zip(COLOURS.iter().cycle()) {
        let corners = [(left, 6), (left + 12, 18)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
        let font = (FONT, 13).into_font().color(&INK);
        area.draw(&Text::new((*layer).to_owned(), (left + 18, 6), font))?;
        left += 32 + 8 * i32::try_from(layer.chars().count())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[&[(&str, f64)]]) -> StackedBars {
        let bar = |layers: &&[(&str, f64)]| {
            let layers = layers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value));
            Bar {
                name: "host <a>".to_owned(),
                group: "files".to_owned(),
                layers: layers.collect(),
            }
        };
        StackedBars {
            title: "Shared locks".into(),
            axis: "acquisitions per second".into(),
            bars: values.iter().map(bar).collect(),
        }
    }

    fn rectangles(bars: &StackedBars) -> usize {
        bars.to_svg().matches("<rect").count()
    }

    #[test]
    fn every_layer_of_every_bar_is_drawn_and_named() {
        let two = bars(&[&[("mm", 3.0), ("fs", 1.0)], &[("mm", 2.0)]]);
        // One more rectangle for each layer's legend.
        assert_eq!(rectangles(&two) - rectangles(&bars(&[])), 3 + 2);
        let svg = two.to_svg();
        assert!(svg.contains("\nmm\n") && svg.contains("\nfs\n"));
        assert!(!svg.contains("<a>"), "names are escaped");
    }

    #[test]
    fn a_group_is_named_once_and_stands_apart() {
        let mut three = bars(&[&[("mm", 3.0)], &[("mm", 2.0)], &[("mm", 1.0)]]);
        three.bars[2].group = "memory".into();
        let svg = three.to_svg();
        assert_eq!(svg.matches("\nfiles\n").count(), 1);
        assert_eq!(svg.matches("\nmemory\n").count(), 1);
        let (places, width) = three.places();
        let apart = |one: usize| places[one + 1] - places[one];
        assert!(apart(0) < apart(1) && places[2] < width);
    }

    #[test]
    fn what_has_no_height_is_not_drawn() {
        let strange = bars(&[&[("mm", f64::NAN), ("fs", -1.0), ("net", 0.0)]]);
        assert_eq!(
            rectangles(&strange) - rectangles(&bars(&[])),
            3,
            "the legend"
        );
        assert!(!strange.to_svg().contains("NaN"));
    }
}
