//! The grammar that times and sizes share: a decimal number directly followed by a unit.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::error::excerpt;

/// Why a text is not an accepted time or size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuantityFault {
    /// It does not start with a plain decimal number: signs, `NaN`, `1.` and the like.
    #[error("not a plain decimal number")]
    NotANumber,
    /// A number without a unit: microseconds and milliseconds cannot be told apart.
    #[error("no unit")]
    NoUnit,
    /// A number followed by something that is not one of the units.
    #[error("unknown unit")]
    UnknownUnit,
    /// A fraction finer than a nanosecond or a byte.
    #[error("not a whole number of the smallest unit")]
    NotWhole,
    /// Zero reserves nothing, so it is never what the author meant.
    #[error("zero")]
    Zero,
    /// Above the largest value that the system gives a meaning to.
    #[error("too large")]
    TooLarge,
}

/// A text that is not an accepted time or size; displays what was found and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("found {found} ({fault}); allowed: {allowed}")]
pub struct QuantityError {
    found: String,
    fault: QuantityFault,
    allowed: &'static str,
}

impl QuantityError {
    /// What is wrong with the text.
    #[must_use]
    pub fn fault(&self) -> QuantityFault {
        self.fault
    }

    /// The text, quoted, and what is wrong with it.
    pub(crate) fn found(&self) -> String {
        format!("{} ({})", self.found, self.fault)
    }

    /// The accepted values, as text.
    #[must_use]
    pub fn allowed(&self) -> &'static str {
        self.allowed
    }
}

/// A kind of quantity.
pub(crate) trait Quantity: FromStr<Err = QuantityError> {
    const GRAMMAR: Grammar;
}

/// Units, largest value and wording of one kind of quantity.
pub(crate) struct Grammar {
    /// Symbol and factor, ascending; the first has factor 1.
    pub(crate) units: &'static [(&'static str, u64)],
    pub(crate) max: u64,
    pub(crate) allowed: &'static str,
}

impl Grammar {
    /// Parses `text` exactly: no rounding, no white space, no sign.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, QuantityError> {
        self.value(text).map_err(|fault| QuantityError {
            found: excerpt(text),
            fault,
            allowed: self.allowed,
        })
    }

    /// Writes `value` in the largest unit that needs no fraction, so that parsing gives it back.
    pub(crate) fn format(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (symbol, factor) = self
            .units
            .iter()
            .rev()
            .find(|(_, factor)| value.is_multiple_of(*factor))
            .expect("the smallest unit has factor 1, which divides every value");
        f.pad(&format!("{}{symbol}", value / factor))
    }

    fn value(&self, text: &str) -> Result<u64, QuantityFault> {
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = match number.split_once('.') {
            Some((_, "")) => return Err(QuantityFault::NotANumber),
            Some(parts) => parts,
            None => (number, ""),
        };
        if whole.is_empty() || fraction.contains('.') {
            return Err(QuantityFault::NotANumber);
        }
        if unit.is_empty() {
            return Err(QuantityFault::NoUnit);
        }
        let factor = self
            .units
            .iter()
            .find_map(|(symbol, factor)| (*symbol == unit).then_some(*factor))
            .ok_or(QuantityFault::UnknownUnit)?;
        // The whole part is all digits, so the only way not to parse is not to fit.
        let whole = whole
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(factor));
        let value = whole
            .ok_or(QuantityFault::TooLarge)?
            .checked_add(part(fraction, factor)?);
        match value {
            Some(0) => Err(QuantityFault::Zero),
            Some(value) if value <= self.max => Ok(value),
            _ => Err(QuantityFault::TooLarge),
        }
    }
}

/// `0.fraction` times `factor`, if that is a whole number; `fraction` is ASCII digits.
fn part(fraction: &str, factor: u64) -> Result<u64, QuantityFault> {
    // Long multiplication from the last digit: exact for any length, and since the carry stays
    // below the factor (at most 2^40) no intermediate value comes near 64 bits.
    fraction.bytes().rev().try_fold(0, |carry, byte| {
        let product = u64::from(byte - b'0') * factor + carry;
        if product.is_multiple_of(10) {
            Ok(product / 10)
        } else {
            Err(QuantityFault::NotWhole)
        }
    })
}
