//! Which kernel this is.

use std::fs;

use crate::trace::Kernel;
use crate::tracer::symbols::{IMAGE_END, Symbols, parse_modules};

/// `NT_GNU_BUILD_ID`.
const BUILD_ID_NOTE: u32 = 3;

/// The running kernel. What cannot be found out is empty.
pub(crate) fn running(symbols: &Symbols) -> Kernel {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let start = symbols.address("_sdata").or(symbols.address("_etext"));
    let end = symbols.address("_end").or(symbols.address("__bss_stop"));
    Kernel {
        release: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        build_id: build_id(&fs::read("/sys/kernel/notes").unwrap_or_default()),
        cpus: count(read("/sys/devices/system/cpu/online").trim()),
        text: symbols.address("_text").unwrap_or(0),
        data: start.map_or((0, 0), |start| (start, end.unwrap_or(IMAGE_END))),
        modules: parse_modules(&read("/proc/modules")),
    }
}

/// The build id among ELF notes: each has a header of three words, a name and a description, both
/// padded to four bytes.
fn build_id(mut notes: &[u8]) -> String {
    let padded = |length: u32| (length as usize).next_multiple_of(4);
    while let Some((header, rest)) = notes.split_at_checked(12) {
        let word = |i: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|at| header[4 * i + at]));
        let (name, description) = (word(0), word(1));
        let Some((name, rest)) = rest.split_at_checked(padded(name)) else {
            break;
        };
        let Some(bytes) = rest.get(..description as usize) else {
            break;
        };
        // Notes of others, such as Xen's, number their types for themselves.
        if word(2) == BUILD_ID_NOTE && name == b"GNU\0" {
            return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        }
        notes = rest.get(padded(description)..).unwrap_or_default();
    }
    String::new()
}

/// Number of processors in a list such as `0-3,6`.
fn count(list: &str) -> u32 {
    let of = |range: &str| match range.split_once('-') {
        Some((first, last)) => {
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            last.checked_sub(first)?.checked_add(1)
        }
        None => range.parse::<u32>().ok().map(|_| 1),
    };
    list.split(',').filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_in_lists_of_ranges() {
        assert_eq!(count("0-3,6"), 5);
        assert_eq!(count("0"), 1);
        assert_eq!(count(""), 0);
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let note = |name: &[u8; 4], kind: u32, bytes: &[u8]| {
            let mut note = Vec::new();
            note.extend(4u32.to_ne_bytes());
            note.extend((bytes.len() as u32).to_ne_bytes());
            note.extend(kind.to_ne_bytes());
            note.extend(name);
            note.extend(bytes);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let notes = [
            note(b"GNU\0", 6, &[9; 5]),
            note(b"Xen\0", 3, &[7; 8]),
            note(b"GNU\0", 3, &[0xab, 0x0c]),
        ]
        .concat();
        assert_eq!(build_id(&notes), "ab0c");
        assert_eq!(build_id(&notes[..20]), "");
        assert_eq!(build_id(&[0xff; 64]), "");
    }
}
