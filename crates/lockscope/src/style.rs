//! What all pictures have in common.

use plotters::style::RGBColor;

/// Letters.
pub(crate) const FONT: &str = "sans-serif";
/// The colour of letters and axes.
pub(crate) const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
/// The colour of lines behind the data.
pub(crate) const GRID: RGBColor = RGBColor(0xdd, 0xe1, 0xe6);
