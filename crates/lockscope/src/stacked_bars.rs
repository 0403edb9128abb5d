//! Stacked bars as SVG (LockScope figures 2 and 3): one bar for each recording, in it one layer for
//! each subsystem.

use std::collections::{BTreeMap, BTreeSet};

use crate::style::{FONT, GRID, INK};
use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::{Color, IntoFont, RGBColor, WHITE};

/// Height of the picture, of its title and of its legend, in pixels.
const HEIGHT: u32 = 420;
const TITLE: u32 = 36;
/// A row of the legend, and what is beside its entries.
const LEGEND: u32 = 26;
const INDENT: i32 = 94;
/// Width of a bar with the space around it, and of what is beside the bars.
const BAR: u32 = 80;
const MARGIN: u32 = 130;
/// Space between groups, in bars.
const GAP: f64 = 0.4;
/// At least so wide, for the title.
const NARROWEST: u32 = 560;
/// Each directory of the kernel's source has a colour of its own, the same in every picture. Those that
/// lead can be told apart without telling red from green (Okabe and Ito).
const KNOWN: [(&str, RGBColor); 12] = [
    ("fs", RGBColor(0x00, 0x72, 0xb2)),
    ("mm", RGBColor(0xd5, 0x5e, 0x00)),
    ("kernel", RGBColor(0x00, 0x9e, 0x73)),
    ("net", RGBColor(0xcc, 0x79, 0xa7)),
    ("lib", RGBColor(0xe6, 0x9f, 0x00)),
    ("block", RGBColor(0x56, 0xb4, 0xe9)),
    ("drivers", RGBColor(0x66, 0x45, 0x8c)),
    ("security", RGBColor(0x7a, 0x3b, 0x12)),
    ("arch", RGBColor(0xf0, 0xe4, 0x42)),
    ("ipc", RGBColor(0x1b, 0x3a, 0x4b)),
    ("io_uring", RGBColor(0xa6, 0xd8, 0x54)),
    ("unknown", RGBColor(0x99, 0x99, 0x99)),
];
/// For other names, in alphabetical order.
const SPARE: [RGBColor; 6] = [
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x44, 0xaa, 0x99),
    RGBColor(0xdd, 0xcc, 0x77),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0xcc, 0x66, 0x77),
    RGBColor(0x11, 0x77, 0x33),
];
/// What there is no colour left for is one layer.
const REST: (&str, RGBColor) = ("other", RGBColor(0xc8, 0xcc, 0xd0));

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
        let width = width.clamp(NARROWEST, 16_000);
        let layers = self.layers();
        let legend = Legend::of(&layers, width);
        let size = (width, HEIGHT + TITLE + legend.height());
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        self.draw(&root, &layers, &legend)
            .expect("a string takes every picture");
        drop(root);
        svg
    }

    fn draw(&self, root: &Area<'_>, layers: &[Layer<'_>], legend: &Legend) -> Result<(), Failure> {
        root.fill(&WHITE)?;
        let (title, rest) = root.split_vertically(TITLE);
        let font = (FONT, 17).into_font().color(&INK);
        title.draw(&Text::new(self.title.clone(), (16, 10), font))?;
        let (above, chart) = rest.split_vertically(legend.height());
        legend.draw(&above, layers)?;
        self.draw_bars(&chart, layers)?;
        root.present()?;
        Ok(())
    }

    /// All layers, the highest in total first.
    fn layers(&self) -> Vec<Layer<'_>> {
        let names: BTreeSet<_> = self.bars.iter().flat_map(|bar| bar.layers.keys()).collect();
        let total = |name: &str| -> f64 { self.bars.iter().map(|bar| bar.height(name)).sum() };
        let mut spare = SPARE.iter();
        let mut layers: Vec<Layer<'_>> = Vec::new();
        let mut rest = Vec::new();
        for name in names.into_iter().map(String::as_str) {
            let known = KNOWN.iter().find(|(known, _)| *known == name);
            match known.map(|(_, colour)| colour).or_else(|| spare.next()) {
                Some(&colour) => layers.push(Layer {
                    name,
                    parts: vec![name],
                    colour,
                }),
                None => rest.push(name),
            }
        }
        let height = |layer: &Layer<'_>| -> f64 { layer.parts.iter().copied().map(total).sum() };
        layers.sort_by(|one, two| height(two).total_cmp(&height(one)));
        if !rest.is_empty() {
            let (name, colour) = REST;
            layers.push(Layer {
                name,
                parts: rest,
                colour,
            });
        }
        layers
    }

    fn draw_bars(&self, area: &Area<'_>, layers: &[Layer<'_>]) -> Result<(), Failure> {
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
            for layer in layers {
                let heights = layer.parts.iter().map(|part| bar.height(part));
                let top = floor + heights.sum::<f64>();
                if top > floor {
                    let corners = [(left + 0.1, floor), (left + 0.9, top)];
                    chart.draw_series([Rectangle::new(corners, layer.colour.filled())])?;
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

/// What has a colour of its own.
struct Layer<'a> {
    name: &'a str,
    /// The names in the bars that it stands for.
    parts: Vec<&'a str>,
    colour: RGBColor,
}

/// Where the names of the layers stand: in as many rows as they need.
struct Legend {
    places: Vec<(i32, i32)>,
    rows: u32,
}

impl Legend {
    fn of(layers: &[Layer<'_>], width: u32) -> Self {
        let (mut left, mut row) = (INDENT, 0u32);
        let mut places = Vec::new();
        for layer in layers {
            let length = 32 + 8 * layer.name.chars().count().min(200) as i32;
            if left > INDENT && left + length > width as i32 {
                (left, row) = (INDENT, row + 1);
            }
            places.push((left, (row * LEGEND) as i32));
            left += length;
        }
        Self {
            places,
            rows: row + 1,
        }
    }

    fn height(&self) -> u32 {
        self.rows * LEGEND
    }

    fn draw(&self, area: &Area<'_>, layers: &[Layer<'_>]) -> Result<(), Failure> {
        for (layer, &(left, top)) in layers.iter().zip(&self.places) {
            let corners = [(left, top + 6), (left + 12, top + 18)];
            area.draw(&Rectangle::new(corners, layer.colour.filled()))?;
            let font = (FONT, 13).into_font().color(&INK);
            area.draw(&Text::new(
                layer.name.to_owned(),
                (left + 18, top + 6),
                font,
            ))?;
        }
        Ok(())
    }
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

    /// The colours of the layers' legend, by name.
    fn colours(bars: &StackedBars) -> BTreeMap<String, (u8, u8, u8)> {
        let layers = bars.layers();
        let entry = |layer: &Layer<'_>| {
            let RGBColor(red, green, blue) = layer.colour;
            (layer.name.to_owned(), (red, green, blue))
        };
        layers.iter().map(entry).collect()
    }

    #[test]
    fn a_subsystem_has_one_colour_in_every_picture_and_no_two_have_the_same() {
        let names: Vec<_> = (0..30).map(|n| format!("new{n:02}")).collect();
        let mut many: Vec<(&str, f64)> = KNOWN.iter().map(|(name, _)| (*name, 1.0)).collect();
        many.extend(names.iter().map(|name| (name.as_str(), 2.0)));
        let (all, one) = (colours(&bars(&[&many])), colours(&bars(&[&[("net", 1.0)]])));
        assert_eq!(all["net"], one["net"]);
        let distinct: BTreeSet<_> = all.values().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(all.len(), KNOWN.len() + SPARE.len() + 1);
        assert!(all.contains_key(REST.0));
    }

    #[test]
    fn the_legend_ends_before_the_picture_does() {
        let many: Vec<(&str, f64)> = KNOWN.iter().map(|(name, _)| (*name, 1.0)).collect();
        let picture = bars(&[&many]);
        let layers = picture.layers();
        let legend = Legend::of(&layers, NARROWEST);
        assert!(legend.rows > 1);
        for (layer, (left, top)) in layers.iter().zip(&legend.places) {
            let right = left + 18 + 8 * layer.name.len() as i32;
            assert!(right <= NARROWEST as i32, "{} ends at {right}", layer.name);
            assert!(*top + (LEGEND as i32) <= legend.height() as i32);
        }
    }
}
