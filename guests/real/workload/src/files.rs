//! Metadata of files: a large directory that is listed, files that are created and deleted (LockScope
//! §6.1.2).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::{Outcome, Work};

/// Files of a round.
const ROUND: u64 = 100;
/// Bytes of a new file, as in LockScope §6.1.2.
const SIZE: usize = 4096;

/// Lists a directory.
pub(crate) struct List {
    directory: PathBuf,
    entries: u64,
}

impl List {
    pub(crate) fn prepare(parent: &Path, entries: u64) -> Outcome<Self> {
        let directory = fresh(parent, "list")?;
        for number in 0..entries {
            File::create(path_of(&directory, number))?;
        }
        Ok(Self { directory, entries })
    }
}

impl Work for List {
    fn round(&mut self) -> Outcome<bool> {
        let mut found = 0;
        for entry in fs::read_dir(&self.directory)? {
            entry?;
            found += 1;
        }
        match found == self.entries {
            true => Ok(true),
            false => Err(format!("found {found} entries, expected {}", self.entries).into()),
        }
    }
}

/// Creates files.
pub(crate) struct Create {
    directory: PathBuf,
    created: u64,
}

impl Create {
    pub(crate) fn prepare(parent: &Path) -> Outcome<Self> {
        let directory = fresh(parent, "create")?;
        Ok(Self {
            directory,
            created: 0,
        })
    }
}

impl Work for Create {
    fn round(&mut self) -> Outcome<bool> {
        for _ in 0..ROUND {
            let mut file = File::create_new(path_of(&self.directory, self.created))?;
            file.write_all(&[1; SIZE])?;
            self.created += 1;
        }
        Ok(true)
    }
}

/// Deletes files.
pub(crate) struct Delete {
    directory: PathBuf,
    left: u64,
}

impl Delete {
    pub(crate) fn prepare(parent: &Path, files: u64) -> Outcome<Self> {
        let directory = fresh(parent, "delete")?;
        for number in 0..files {
            File::create(path_of(&directory, number))?.write_all(&[1; SIZE])?;
        }
        Ok(Self {
            directory,
            left: files,
        })
    }
}

impl Work for Delete {
    fn round(&mut self) -> Outcome<bool> {
        for _ in 0..ROUND.min(self.left) {
            self.left -= 1;
            fs::remove_file(path_of(&self.directory, self.left))?;
        }
        Ok(self.left > 0)
    }
}

/// A directory with nothing in it.
fn fresh(parent: &Path, name: &str) -> Outcome<PathBuf> {
    let directory = parent.join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("file-{number:08}"))
}
