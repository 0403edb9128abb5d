//! Units of measured values: their suffixes in the names of columns, and their readable form.

/// The unit of a number. Durations are always nanoseconds and sizes bytes; only the text table, the
/// page and the axes scale them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds; a key with a part `ns`.
    Nanoseconds,
    /// Bytes; a key with a part `bytes`.
    Bytes,
    /// A quotient of two like quantities; a key with a part `ratio`.
    Ratio,
    /// Anything that is counted; every other key.
    Count,
}

impl Unit {
    /// The unit that a column's key names: `exit_ns_p50` is nanoseconds.
    pub fn of_key(key: &str) -> Self {
        key.split('_')
            .find_map(|part| match part {
                "ns" => Some(Self::Nanoseconds),
                "bytes" => Some(Self::Bytes),
                "ratio" => Some(Self::Ratio),
                _ => None,
            })
            .unwrap_or(Self::Count)
    }

    /// The name that a result has it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Bytes => "bytes",
            Self::Ratio => "ratio",
            Self::Count => "count",
        }
    }

    /// The unit of this name; a count for any other name.
    pub fn of_name(name: &str) -> Self {
        [Self::Nanoseconds, Self::Bytes, Self::Ratio]
            .into_iter()
            .find(|unit| unit.name() == name)
            .unwrap_or(Self::Count)
    }

    /// `value` with three significant digits in the multiple that suits it: `69.3 µs`, `4.00 MiB`,
    /// `1.05×`. Whole counts are given in full: `1,000,000`.
    pub fn humane(self, value: f64) -> String {
        match self {
            Self::Nanoseconds => scaled(value, &NANOSECONDS),
            Self::Bytes if value.abs() < 1024.0 => format!("{value:.0} B"),
            Self::Bytes => scaled(value, &BINARY_BYTES),
            Self::Ratio => format!("{}×", significant(value)),
            Self::Count if value.fract() == 0.0 => grouped(value),
            Self::Count => significant(value),
        }
    }

    /// The label of an axis tick: as short as can be, and in decimal multiples throughout, since
    /// logarithmic axes have their ticks at powers of ten.
    pub(crate) fn tick(self, value: f64) -> String {
        let label = match self {
            Self::Nanoseconds => scaled(value, &NANOSECONDS),
            Self::Bytes => scaled(value, &DECIMAL_BYTES),
            Self::Ratio => format!("{}×", significant(value)),
            Self::Count => scaled(value, &DECIMAL),
        };
        let (number, suffix) = label.split_at(label.find([' ', '×']).unwrap_or(label.len()));
        let number = match number.contains('.') {
            true => number.trim_end_matches('0').trim_end_matches('.'),
            false => number,
        };
        format!("{number}{}", suffix.trim_end())
    }
}

type Multiples = [(f64, &'static str)];

const NANOSECONDS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const BINARY_BYTES: [(f64, &str); 3] = [
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
];
const DECIMAL_BYTES: [(f64, &str); 4] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")];
const DECIMAL: [(f64, &str); 4] = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

/// `value` in the largest of `multiples` that it reaches, or else in the smallest.
fn scaled(value: f64, multiples: &Multiples) -> String {
    let (size, name) = multiples
        .iter()
        .copied()
        .find(|(size, _)| value.abs() >= *size)
        .unwrap_or(multiples[multiples.len() - 1]);
    format!("{} {name}", significant(value / size))
}

/// Three significant digits.
fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => grouped(value.round()),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A whole number with its thousands separated.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    if value < 0.0 {
        text.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Unit;

    #[test]
    fn a_key_names_its_unit() {
        assert_eq!(Unit::of_key("exit_ns_p50"), Unit::Nanoseconds);
        assert_eq!(Unit::of_key("kernel_bytes"), Unit::Bytes);
        assert_eq!(Unit::of_key("neighbour_p99_ratio"), Unit::Ratio);
        assert_eq!(Unit::of_key("instances"), Unit::Count);
    }

    #[test]
    fn a_unit_is_found_by_its_name() {
        for unit in [Unit::Nanoseconds, Unit::Bytes, Unit::Ratio, Unit::Count] {
            assert_eq!(Unit::of_name(unit.name()), unit);
        }
    }

    #[test]
    fn values_are_scaled_to_three_digits() {
        assert_eq!(Unit::Nanoseconds.humane(69_312.0), "69.3 µs");
        assert_eq!(Unit::Nanoseconds.humane(0.43), "0.43 ns");
        assert_eq!(Unit::Nanoseconds.humane(13.8e9), "13.8 s");
        assert_eq!(Unit::Bytes.humane(4_194_304.0), "4.00 MiB");
        assert_eq!(Unit::Bytes.humane(12.0), "12 B");
        assert_eq!(Unit::Ratio.humane(1.049), "1.05×");
        assert_eq!(Unit::Count.humane(1_000_000.0), "1,000,000");
        assert_eq!(Unit::Count.humane(-1234.0), "-1,234");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(Unit::Nanoseconds.tick(1e5), "100 µs");
        assert_eq!(Unit::Nanoseconds.tick(1e6), "1 ms");
        assert_eq!(Unit::Bytes.tick(1e4), "10 kB");
        assert_eq!(Unit::Count.tick(1e6), "1 M");
        assert_eq!(Unit::Count.tick(10.0), "10");
        assert_eq!(Unit::Ratio.tick(1.5), "1.5×");
    }
}
