//! Rows for a terminal: as many columns as it is wide.

/// A column, and its order of removal when there is no room: the greatest number first, zero never.
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) goes: u8,
}

/// Longest names that are shown in full where there is little room, and where there is less.
const NAMES: [usize; 3] = [24, 16, 8];

/// Between two columns.
const GAP: usize = 2;

/// The header and the rows, one line each: the first two columns begin at the left, the others end
/// at the right. Without a `width` they are as wide as they are.
pub(crate) fn lines(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let Some(most) = width else {
        return Layout::of(columns, rows.to_vec(), usize::MAX).lines(columns, usize::MAX);
    };
    let mut layouts = NAMES
        .iter()
        .map(|&longest| Layout::of(columns, shortened(rows, longest), most));
    // Names are shortened before the last columns are cut.
    let fits = layouts.clone().find(|layout| layout.width() <= most);
    let layout = fits.or_else(|| layouts.next_back());
    layout.map_or_else(Vec::new, |layout| layout.lines(columns, most))
}

/// Rows, how wide their columns are, and which of them are shown.
struct Layout {
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
    shown: Vec<usize>,
}

impl Layout {
    /// All columns that there is room for, and those that never go.
    fn of(columns: &[Column], rows: Vec<Vec<String>>, most: usize) -> Self {
        let width = |(at, column): (usize, &Column)| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            let widest = cells.map(|cell| cell.chars().count()).max();
            widest.unwrap_or(0).max(column.title.chars().count())
        };
        let widths = columns.iter().enumerate().map(width).collect();
        let mut layout = Self {
            widths,
            shown: (0..columns.len()).collect(),
            rows,
        };
        while layout.width() > most {
            let shown = layout.shown.iter().copied();
            let goes = shown.max_by_key(|&at| columns[at].goes);
            let Some(last) = goes.filter(|&at| columns[at].goes > 0) else {
                break;
            };
            layout.shown.retain(|&at| at != last);
        }
        layout
    }

    fn width(&self) -> usize {
        let widths = self.shown.iter().map(|&at| self.widths[at] + GAP);
        widths.sum::<usize>().saturating_sub(GAP)
    }

    fn lines(&self, columns: &[Column], most: usize) -> Vec<String> {
        let titles: Vec<String> = columns.iter().map(|c| c.title.to_owned()).collect();
        std::iter::once(&titles)
            .chain(&self.rows)
            .map(|row| line(row, &self.shown, &self.widths, most))
            .collect()
    }
}

/// The rows with names that leave room for the rest.
fn shortened(rows: &[Vec<String>], longest: usize) -> Vec<Vec<String>> {
    let mut rows = rows.to_vec();
    for name in rows.iter_mut().filter_map(|row| row.first_mut()) {
        if name.chars().count() > longest {
            *name = name.chars().take(longest - 1).chain(['…']).collect();
        }
    }
    rows
}

fn line(row: &[String], shown: &[usize], widths: &[usize], most: usize) -> String {
    let cells: Vec<String> = shown
        .iter()
        .filter_map(|&at| Some((at, row.get(at)?)))
        .map(|(at, cell)| match at {
            0 | 1 => format!("{cell:<0$}", widths[at]),
            _ => format!("{cell:>0$}", widths[at]),
        })
        .collect();
    let text = cells.join("  ");
    text.trim_end().chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::{Column, lines};

    const COLUMNS: [Column; 4] = [
        Column {
            title: "tenant",
            goes: 0,
        },
        Column {
            title: "state",
            goes: 0,
        },
        Column {
            title: "used",
            goes: 2,
        },
        Column {
            title: "missed",
            goes: 1,
        },
    ];

    fn rows() -> Vec<Vec<String>> {
        [
            ["web", "running", "1.00 ms", "0"],
            ["a-tenant-with-a-very-long-name", "–", "1 ns", "12"],
        ]
        .map(|row| row.map(str::to_owned).to_vec())
        .to_vec()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 1..100 {
            for line in lines(&COLUMNS, &rows(), Some(width)) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn columns_go_in_their_order_and_come_back_with_room() {
        let header = |width| lines(&COLUMNS, &rows(), width)[0].clone();
        let words = |width| -> Vec<String> {
            header(width)
                .split_whitespace()
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(words(Some(60)), ["tenant", "state", "used", "missed"]);
        assert_eq!(words(Some(45)), ["tenant", "state", "missed"]);
        assert_eq!(words(Some(35)), ["tenant", "state"]);
        assert_eq!(words(Some(17)), ["tenant", "state"], "the name gives way");
        assert_eq!(words(None), ["tenant", "state", "used", "missed"]);
    }

    #[test]
    fn numbers_end_under_each_other() {
        let lines = lines(&COLUMNS, &rows(), None);
        let ends: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(ends.iter().all(|end| *end == ends[0]), "{lines:?}");
        assert!(lines[2].starts_with("a-tenant-with-a-very-long-name"));
    }
}
