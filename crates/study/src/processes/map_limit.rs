//! The kernel's limit of mappings per process, raised for the time of a measurement.

use std::fs;

use anyhow::{Context, Result};

const PATH: &str = "/proc/sys/vm/max_map_count";
/// Mappings that a small process has besides those that it is measured by, with ample room.
const OTHERS: usize = 1000;

/// The limit while this value lives; dropping it restores what was before. (Killed in between, a
/// run leaves the limit raised, which harms nobody.)
pub(super) struct MapLimit {
    former: usize,
    current: usize,
}

impl MapLimit {
    /// Raises the limit so that a process can have `mappings` more than it has anyhow, if this
    /// program may; see [`mappings`](Self::mappings) for what can be had.
    ///
    /// # Errors
    /// If the limit cannot be read.
    pub(super) fn raise(mappings: usize) -> Result<Self> {
        let former = Self::read()?;
        if former < mappings + OTHERS {
            // Refused to all but the superuser; the limit in force is read back.
            let _ = fs::write(PATH, (mappings + OTHERS).to_string());
        }
        Ok(Self {
            former,
            current: Self::read()?,
        })
    }

    /// How many mappings a small process can make.
    pub(super) fn mappings(&self) -> usize {
        self.current.saturating_sub(OTHERS)
    }

    fn read() -> Result<usize> {
        let text = fs::read_to_string(PATH).with_context(|| format!("reading {PATH}"))?;
        text.trim()
            .parse()
            .with_context(|| format!("reading {PATH}"))
    }
}

impl Drop for MapLimit {
    fn drop(&mut self) {
        if self.current != self.former
            && let Err(error) = fs::write(PATH, self.former.to_string())
        {
            tracing::warn!("{PATH} stays at {}: {error}", self.current);
        }
    }
}
