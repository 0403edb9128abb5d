//! The rule that picks a technique for each shared area (SPC §IV-C).

/// The technique that keeps a shared area from being evicted while tenants use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Technique {
    /// Shared-Page Conservation: every sharer has a frame for every page that it uses.
    Spc,
    /// Shared-Page Eviction Lock: all pages are locked, and there is one frame for each.
    Spel,
}

/// Picks the technique that takes fewer frames.
///
/// With `n` sharers that have `R` frames each under SPC, `Max(S)` pages in the area and
/// `Avg(S)` of them used on average, SPC takes `n·R` frames. SPEL must give each sharer
/// `Max(S) − Avg(S)` more to leave as much to private pages, and saves `(n−1)·Max(S)`: together
/// `n·R + Max(S) − n·Avg(S)`. So SPEL is better exactly if `Max(S) < n·Avg(S)`.
///
/// `max` is in pages (or any unit), `total_average` is `n·Avg(S)` in the same unit: the sum over
/// the sharers of what each uses on average, which need not be the same for all.
pub const fn choose(max: u64, total_average: u64) -> Technique {
    if max < total_average {
        Technique::Spel
    } else {
        Technique::Spc
    }
}

#[cfg(test)]
mod tests {
    use super::{Technique, choose};

    #[test]
    fn the_rule_decides_the_areas_of_the_case_study_as_the_paper_does() {
        // SPC table IV: Max(S) and Avg(S) in KiB, for three players.
        let areas = [
            ("MPlayer code", 13_088, 900, Technique::Spc),
            ("libc", 1_512, 288, Technique::Spc),
            ("libSDL", 420, 4, Technique::Spc),
            ("libstdc++", 984, 8, Technique::Spc),
            ("libpthread", 96, 24, Technique::Spc),
            ("libm", 520, 92, Technique::Spc),
            ("libdl", 8, 4, Technique::Spel),
        ];
        for (name, max, average, technique) in areas {
            assert_eq!(choose(max, 3 * average), technique, "{name}");
        }
    }

    #[test]
    fn where_both_take_as_much_nothing_is_locked() {
        assert_eq!(choose(20, 20), Technique::Spc);
    }
}
