//! Rows for a terminal: as many columns as it is wide.

/// A column, and how soon it goes when there is no room: the greatest number first, zero never.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) goes: u8,
}

/// Longest name that is shown in full where there is little room.
const NAME: usize = 24;

/// Between two columns.
const GAP: usize = 2;

/// The header and the rows, one line each: the first two columns begin at the left, the others end
/// at the right. Without a `width` they are as wide as they are.
pub(super) fn lines(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let most = width.unwrap_or(usize::MAX);
    let cells: Vec<Vec<String>> = rows.iter().map(|row| shortened(row, width)).collect();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let cells = cells.iter().filter_map(|row| row.get(at));
            let widest = cells.map(|cell| cell.chars().count()).max();
            widest.unwrap_or(0).max(column.title.chars().count())
        })
        .collect();
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let needed = |shown: &[usize]| shown.iter().map(|&at| widths[at] + GAP).sum::<usize>() - GAP;
    while needed(&shown) > most {
        let goes = shown.iter().copied().max_by_key(|&at| columns[at].goes);
        let Some(last) = goes.filter(|&at| columns[at].goes > 0) else {
            break;
        };
        shown.retain(|&at| at != last);
    }
    let titles: Vec<String> = columns.iter().map(|c| c.title.to_owned()).collect();
    std::iter::once(&titles)
        .chain(&cells)
        .map(|row| line(row, &shown, &widths, most))
        .collect()
}

/// A row with a name that leaves room for the rest.
fn shortened(row: &[String], width: Option<usize>) -> Vec<String> {
    let mut row = row.to_vec();
    if let (Some(name), Some(_)) = (row.first_mut(), width)
        && name.chars().count() > NAME
    {
        *name = name.chars().take(NAME - 1).chain(['…']).collect();
    }
    row
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
