//! What ends the workloads of a tracer that cannot do so itself, because it was killed.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::setsid;

use crate::tracer::cgroup::{Cgroup, Hierarchy};
use crate::tracer::error::TracerError;

/// A process that waits for the end of this one and then ends a control group, if it is still there.
/// A workload that forks outlives its first process, and no signal reaches all of it.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    /// Closed by the kernel when this process ends, however it does.
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard of `group`, through this program, whose `guard` must be what [`guard`] is
    /// called for.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn of(group: &Cgroup) -> Result<Self, TracerError> {
        let failed = |source| TracerError::Io {
            what: "cannot start what ends the workloads if this program is killed".into(),
            source,
        };
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg("guard")
            .arg(group.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let input = child.stdin.take();
        Ok(Self { child, input })
    }
}

/// The group is gone by then, and the guard finds nothing to do.
impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.input.take());
        // It has ended, or ends now.
        drop(self.child.wait());
    }
}

/// Waits until standard input ends, and then ends the control group at `path`, if there is one.
///
/// # Errors
/// A member does not end, or the system refuses.
pub fn guard(path: &Path) -> Result<(), TracerError> {
    // Ctrl-C is for the tracer, which then ends the group in its own time. It fails for a process
    // that leads a session already.
    let _ = setsid();
    let mut byte = [0];
    loop {
        match io::stdin().read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    if !path.exists() {
        return Ok(());
    }
    Hierarchy::mounted()?.open(path)?.end()
}
