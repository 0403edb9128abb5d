//! The host steps that programs reach, remembered while their files stay as they are: in the process, and in notes beside the
//! [code cache](CodeCache).
//!
//! A node tests all of its tenants whenever one is put, and each start tests its own. To read their programs again each
//! time would take some ten milliseconds for each that contains a language engine. What a program that was loaded
//! reaches is remembered, too, so that the test which follows does not read it at all. Nothing is at stake but what
//! admission counts on: a cell that starts a program looks at it again.

use crate::steps::Reach;
use leasehold_wasm::artifact::CodeCache;
use leasehold_wasm::stamp::Stamp;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most programs that are remembered.
const MOST: usize = 1024;

/// A file that is about to be read.
pub(crate) struct Look<'a> {
    path: &'a Path,
    stamp: Option<Stamp>,
}

impl<'a> Look<'a> {
    /// Looks at the file, before it is read: a change meanwhile is seen at the next look.
    pub(crate) fn at(path: &'a Path) -> Self {
        Self {
            path,
            stamp: stamp_of(path),
        }
    }

    /// What the program in the file reaches, if that is remembered or noted.
    pub(crate) fn remembered(&self, notes: Option<&CodeCache>) -> Option<Reach> {
        if let Some(reach) = known().get(self) {
            return Some(reach);
        }
        let noted = notes?.noted(&asked(), self.stamp.as_ref()?)?;
        let reach = Reach::from_bytes(&noted)?;
        known().put(self, &reach);
        Some(reach)
    }

    /// Remembers and notes what the program in the file was found to reach.
    pub(crate) fn remember(&self, reach: &Reach, notes: Option<&CodeCache>) {
        if known().get(self).as_ref() == Some(reach) {
            return;
        }
        known().put(self, reach);
        if let (Some(notes), Some(stamp)) = (notes, self.stamp)
            && stamp_of(self.path) == Some(stamp)
        {
            notes.note(&asked(), &stamp, &reach.to_bytes());
        }
    }
}

fn stamp_of(path: &Path) -> Option<Stamp> {
    Stamp::of(&fs::metadata(path).ok()?)
}

fn known() -> MutexGuard<'static, Known> {
    static KNOWN: Mutex<Known> = Mutex::new(Known(None));
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The word for what is asked of a file.
fn asked() -> String {
    format!("steps, read as {:x}", Reach::reading())
}

/// What is remembered.
#[derive(Default)]
struct Known(Option<HashMap<PathBuf, (Stamp, Reach)>>);

impl Known {
    fn get(&self, look: &Look<'_>) -> Option<Reach> {
        let (of, reach) = self.0.as_ref()?.get(look.path)?;
        (look.stamp == Some(*of)).then(|| reach.clone())
    }

    fn put(&mut self, look: &Look<'_>, reach: &Reach) {
        let known = self.0.get_or_insert_default();
        match look.stamp {
            Some(stamp) => {
                if known.len() >= MOST {
                    known.clear();
                }
                known.insert(look.path.to_owned(), (stamp, reach.clone()));
            }
            None => drop(known.remove(look.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Look};
    use crate::steps::Reach;
    use leasehold_wasm::stamp::Stamp;
    use std::fs;
    use std::path::Path;

    #[test]
    fn what_a_file_reaches_is_remembered_until_it_has_changed_or_may_have() {
        let stamp = |path| Stamp::of(&fs::metadata(path).expect("there"));
        let (one, other) = (stamp("/bin/sh"), stamp("/bin/ls"));
        assert!(one.is_some() && other.is_some() && one != other);
        let young = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(stamp(young.path().to_str().expect("text")), None);
        let look = |stamp| Look {
            path: Path::new("a.wasm"),
            stamp,
        };
        let mut known = Known::default();
        assert_eq!(known.get(&look(one)), None);
        known.put(&look(one), &Reach::any());
        assert_eq!(known.get(&look(one)), Some(Reach::any()));
        assert_eq!(known.get(&look(other)), None, "it has changed");
        assert_eq!(known.get(&look(None)), None, "it changed just now");
        known.put(&look(None), &Reach::any());
        assert_eq!(known.get(&look(one)), None);
    }

    #[test]
    fn a_note_says_what_was_found_and_none_of_another_table_is_read() {
        let any = Reach::any();
        let bytes = any.to_bytes();
        assert_eq!(Reach::from_bytes(&bytes), Some(any));
        assert_eq!(Reach::from_bytes(&bytes[1..]), None);
        assert_eq!(Reach::from_bytes(&bytes[..7]), None);
        let beyond = [&bytes[..8], &u16::MAX.to_le_bytes()].concat();
        assert_eq!(Reach::from_bytes(&beyond), None);
    }
}
