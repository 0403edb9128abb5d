//! The process as a whole: entering confinement once, narrowing each thread once.

use crate::calls::Thread;
use crate::filter::{self, FilterError};
use crate::places::{self, FilesInForce, Places};
use crate::privileges::{self, Locking};
use crate::{limits, trapped};
use serde::Serialize;
use std::fmt;
use std::io;
use std::sync::OnceLock;

/// How denials are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A call that is on no list fails with `EPERM`; one that only an intruder makes ends the
    /// process.
    Enforce,
    /// Any call that is on no list is named on standard error and ends the process: for tests of
    /// the lists.
    Trap,
    /// Nothing is confined: for debuggers and tracers.
    Off,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "enforce" => Ok(Self::Enforce),
            "trap" => Ok(Self::Trap),
            "off" => Ok(Self::Off),
            _ => Err(format!("found {text:?}; allowed: enforce, trap, off")),
        }
    }
}

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// It has threads that would not be.
    #[error("the process has {0} threads; it is confined while it has one")]
    Threads(usize),
    /// It was entered before.
    #[error("the process is confined already")]
    Twice,
    /// A step was refused by the system.
    #[error("{step}: {source}")]
    System {
        /// Which one.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The filter of system calls.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Landlock's rules.
    #[error("the rules for files: {0}")]
    Files(#[from] landlock::RulesetError),
}

/// The present confinement of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InForce {
    /// How denials are treated.
    pub mode: Mode,
    /// It cannot gain privileges, has no capabilities once it has started, and leaves no core file.
    pub privileges_dropped: bool,
    /// Each kind of thread has a list of system calls.
    pub system_calls: bool,
    /// Files are reachable in the places of the leases only; `None` if confinement is off.
    pub files: Option<FilesInForce>,
}

impl InForce {
    const OFF: Self = Self {
        mode: Mode::Off,
        privileges_dropped: false,
        system_calls: false,
        files: None,
    };
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mode == Mode::Off {
            return f.write_str("confinement: off");
        }
        f.write_str("confinement: no privileges, system calls by kind of thread")?;
        match self.files {
            Some(FilesInForce::Full { abi }) => {
                write!(f, ", files of leases only (Landlock {abi})")
            }
            Some(FilesInForce::Partial { abi }) => {
                write!(f, ", files of leases only, as far as Landlock {abi} goes")
            }
            Some(FilesInForce::Absent) | None => {
                f.write_str(", files NOT confined (this kernel has no Landlock)")
            }
        }?;
        match self.mode {
            Mode::Trap => f.write_str(", denials are fatal"),
            Mode::Enforce | Mode::Off => Ok(()),
        }
    }
}

struct Confinement {
    places: Places,
    locking: Locking,
    in_force: InForce,
}

static CONFINEMENT: OnceLock<Confinement> = OnceLock::new();

/// Confines this process: it must have one thread, the calling one. What is started from here on
/// inherits it, and threads may ask for what start-up takes until they [narrow] themselves.
/// `locking` says whether cells lock memory.
///
/// With [`Mode::Off`] nothing happens, and [`narrow`] does nothing.
///
/// # Errors
/// When the process has other threads, or the kernel refuses a step other than Landlock's.
pub fn enter(mode: Mode, places: Places, locking: Locking) -> Result<InForce, ConfineError> {
    enter_as(Thread::Start, mode, places, locking)
}

/// The same for a process whose threads are of this kind before they narrow themselves.
///
/// # Errors
/// As those of [`enter`].
pub(crate) fn enter_as(
    kind: Thread,
    mode: Mode,
    places: Places,
    locking: Locking,
) -> Result<InForce, ConfineError> {
    if CONFINEMENT.get().is_some() {
        return Err(ConfineError::Twice);
    }
    if mode == Mode::Off {
        return Ok(InForce::OFF);
    }
    check_one_thread()?;
    limits::set().map_err(system("setting limits"))?;
    privileges::begin().map_err(system("dropping privileges"))?;
    if kind == Thread::ForkServer {
        // What a cell's start takes is no matter of it.
        privileges::drop_all(Locking::Never).map_err(system("dropping privileges"))?;
    }
    let ports = || places.ports.iter().copied();
    let all = [&places.tenants, &places.controller, &places.start];
    let files = places::restrict(all.into_iter().flatten(), ports())?;
    if mode == Mode::Trap {
        trapped::install().map_err(system("the handler of SIGSYS"))?;
    }
    filter::begin(kind, mode, places.network())?;
    let in_force = InForce {
        mode,
        privileges_dropped: true,
        system_calls: true,
        files: Some(files),
    };
    let confinement = Confinement {
        places,
        locking,
        in_force: in_force.clone(),
    };
    match CONFINEMENT.set(confinement) {
        Ok(()) => Ok(in_force),
        Err(_) => Err(ConfineError::Twice),
    }
}

/// Leaves the calling thread what threads of its kind need. Does nothing in a process that is not
/// confined.
///
/// # Errors
/// When the kernel refuses it: the thread must do nothing for a guest then.
pub fn narrow(kind: Thread) -> Result<(), ConfineError> {
    let Some(confinement) = CONFINEMENT.get() else {
        return Ok(());
    };
    if matches!(kind, Thread::Start | Thread::ForkServer) {
        return Ok(());
    }
    let locking = match kind {
        Thread::Cell => confinement.locking,
        // It loads programs.
        Thread::Controller => Locking::Memory,
        _ => Locking::Never,
    };
    privileges::drop_all(locking).map_err(system("dropping privileges"))?;
    let Places {
        tenants,
        controller,
        ports,
        ..
    } = &confinement.places;
    let none = std::iter::empty();
    match kind {
        Thread::Controller => places::restrict(tenants.iter().chain(controller), none)?,
        Thread::Cell | Thread::Io => places::restrict(tenants.iter(), none)?,
        Thread::Outgoing => places::restrict(std::iter::empty(), ports.iter().copied())?,
        Thread::Front
        | Thread::Control
        | Thread::Compiler
        | Thread::Donor
        | Thread::Job
        | Thread::ForkServer
        | Thread::Start => places::restrict(std::iter::empty(), none)?,
    };
    let network = confinement.places.network();
    Ok(filter::narrow(kind, confinement.in_force.mode, network)?)
}

/// The confinement of this process.
pub fn in_force() -> InForce {
    CONFINEMENT
        .get()
        .map_or(InForce::OFF, |confinement| confinement.in_force.clone())
}

/// Whether [`enter`] has succeeded.
pub fn is_confined() -> bool {
    CONFINEMENT.get().is_some()
}

/// # Errors
/// When the process has another thread than the calling one.
pub(crate) fn check_one_thread() -> Result<(), ConfineError> {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(system("counting threads"))?;
    match tasks.count() {
        1 => Ok(()),
        threads => Err(ConfineError::Threads(threads)),
    }
}

pub(crate) fn system(step: &'static str) -> impl Fn(io::Error) -> ConfineError {
    move |source| ConfineError::System { step, source }
}
