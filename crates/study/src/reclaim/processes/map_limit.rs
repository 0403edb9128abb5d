//! The kernel's limit of mappings per process, raised for the time of a measurement.
//!
//! The limit is the whole machine's, so it has to be restored however the measurement ends, an
//! interrupt from the terminal included. A process of its own restores it: it outlives the study by
//! the time that it takes to detect the closed pipe.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use crate::harness::child_command::command;

/// Role of the process that keeps the limit of mappings raised.
pub(crate) const LIMIT_ROLE: &str = "map-limit";

const PATH: &str = "/proc/sys/vm/max_map_count";
/// Mappings that a small process has besides those that it is measured by, with ample room.
const OTHERS: usize = 1000;

/// The limit while this value lives.
pub(super) struct MapLimit {
    keeper: Child,
    limit: usize,
}

impl MapLimit {
    /// Raises the limit so that a process can have `mappings` more than it has anyhow, if this
    /// program may; see [`mappings`](Self::mappings) for what can be had.
    ///
    /// # Errors
    /// If the limit cannot be read, or no process be started.
    pub(super) fn raise(mappings: usize) -> Result<Self> {
        let mut keeper = command(LIMIT_ROLE)?
            .arg((mappings + OTHERS).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Out of reach of signals from the terminal.
            .process_group(0)
            .spawn()
            .context("starting the process that raises the limit of mappings")?;
        let mut told = keeper.stdout.take().context("the pipe was asked for")?;
        // Once it has spoken, the limit is raised, or cannot be.
        told.read_exact(&mut [0])
            .context("raising the limit of mappings")?;
        Ok(Self {
            keeper,
            limit: read()?,
        })
    }

    /// How many mappings a small process can make.
    pub(super) fn mappings(&self) -> usize {
        self.limit.saturating_sub(OTHERS)
    }
}

impl Drop for MapLimit {
    fn drop(&mut self) {
        // Its end is waited for, since the limit is restored only then.
        drop(self.keeper.stdin.take());
        let restored = self.keeper.wait().is_ok_and(|status| status.success());
        if !restored {
            tracing::warn!("{PATH} could not be restored");
        }
    }
}

/// The life of the process that keeps the limit raised to `LIMIT` until its input ends.
pub(super) fn child(arguments: &[&str]) -> Result<()> {
    let [limit] = arguments else {
        bail!("the limit of mappings needs LIMIT")
    };
    let (former, limit): (usize, usize) = (read()?, limit.parse()?);
    // Refused to all but the superuser; there is then nothing to restore.
    let raised = former < limit && fs::write(PATH, limit.to_string()).is_ok();
    let told = io::stdout()
        .write_all(b"!")
        .and_then(|()| io::stdout().flush());
    let ended = io::copy(&mut io::stdin(), &mut io::sink());
    if raised {
        fs::write(PATH, former.to_string()).with_context(|| format!("restoring {PATH}"))?;
    }
    told.and(ended.map(drop)).context("listening to the study")
}

fn read() -> Result<usize> {
    let text = fs::read_to_string(PATH).with_context(|| format!("reading {PATH}"))?;
    text.trim()
        .parse()
        .with_context(|| format!("reading {PATH}"))
}
