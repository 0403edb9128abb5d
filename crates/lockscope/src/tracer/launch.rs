//! Starting a command as a workload: it is in its control group before its first instruction, and
//! waits there until the tracer is attached. Or it starts, says that it is ready, and waits then: so
//! what a platform takes to start is not recorded (LockScope §5.2).

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_parent_process_death_signal, waitpid,
};

use crate::tracer::cgroup::Cgroup;
use crate::tracer::error::TracerError;
use crate::tracer::output::Listener;

/// What a workload is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Manners {
    /// Whether what it prints is shown.
    pub show_output: bool,
    /// Whether it says `ready` when it is, and begins when it reads a line.
    pub says_ready: bool,
}

/// A command of a workload that was started.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    /// Open while it may still wait for a line.
    input: Option<ChildStdin>,
    output: Listener,
    started: Option<Instant>,
    ran_ns: Option<u64>,
    status: Option<ExitStatus>,
}

impl Launched {
    /// Starts `command` in `cgroup`, through this program, whose `start` must be what
    /// [`become_workload`] is called for; and stops it before its first instruction.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn stopped(
        name: &str,
        command: &[OsString],
        cgroup: &Cgroup,
        manners: Manners,
    ) -> Result<Self, TracerError> {
        let failed = |why: String| TracerError::Start {
            name: name.into(),
            command: command.first().map_or_else(String::new, |program| {
                program.to_string_lossy().into_owned()
            }),
            why,
        };
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let input = match manners.says_ready {
            true => Stdio::piped(),
            false => Stdio::null(),
        };
        // A pipe on every platform, so that writing costs the same locks on each.
        let mut child = Command::new(program)
            .arg("start")
            .arg(cgroup.members())
            .args(command)
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let output = child.stdout.take();
        let listen = |output| Listener::of(output, manners.show_output);
        let output = output.map(listen).unwrap_or_default();
        let pid = Pid::from_child(&child);
        match waitpid(Some(pid), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => Ok(Self {
                input: child.stdin.take(),
                child,
                output,
                started: None,
                ran_ns: None,
                status: None,
            }),
            Ok(_) => Err(failed("it could not enter its control group".into())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Lets it run.
    ///
    /// # Errors
    /// It is gone.
    pub fn go(&mut self) -> io::Result<()> {
        self.started = Some(Instant::now());
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    /// Whether it has said that it is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.output.is_ready()
    }

    /// Tells one that is ready to begin. Its time counts from now.
    ///
    /// # Errors
    /// It is gone.
    pub fn begin(&mut self) -> io::Result<()> {
        self.started = Some(Instant::now());
        match &mut self.input {
            Some(input) => input.write_all(b"\n"),
            None => Ok(()),
        }
    }

    /// Counts its time from now.
    pub fn resume(&mut self) {
        self.started = Some(Instant::now());
    }

    /// When it said that it had done a round, since this was asked last.
    #[must_use]
    pub fn take_rounds(&self) -> Vec<Instant> {
        self.output.take_rounds()
    }

    /// Whether it ended, and how.
    ///
    /// # Errors
    /// The system refuses.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
            if self.status.is_some() {
                self.ran_ns = Some(self.ran_ns());
            }
        }
        Ok(self.status)
    }

    /// For how long it has run, in nanoseconds.
    #[must_use]
    pub fn ran_ns(&self) -> u64 {
        let running = || {
            let started = self.started?;
            u64::try_from(started.elapsed().as_nanos()).ok()
        };
        self.ran_ns.or_else(running).unwrap_or(0)
    }

    /// The exit code, if it ended by itself and not with success.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let status = self.status.filter(|status| !status.success())?;
        Some(match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown status".into(),
        })
    }
}

/// A stopped child that is dropped would wait for ever.
impl Drop for Launched {
    fn drop(&mut self) {
        if self.status.is_none() {
            // Gone already is as good as killed.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Turns this process into a workload: enters the group whose `members` file is given, stops, and
/// when it is continued becomes `command`. Ends with the process that started it. Returns only if
/// that failed.
#[must_use]
pub fn become_workload(members: &Path, command: &[OsString]) -> io::Error {
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no command");
    };
    let enter = || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        fs::write(members, getpid().as_raw_nonzero().to_string())?;
        Ok(kill_process(getpid(), Signal::STOP)?)
    };
    match enter() {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}
