//! Exit codes: each failure of Leasehold itself has one that no ordinary program uses.

use leasehold_cell::memory::Unheld;
use leasehold_front::FrontError;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Shown under `--help`.
pub(crate) const HELP: &str = "\
Examples:
  leasehold run --budget 10ms --kill-after 1s --report program.wasm
  leasehold serve leases.toml
  leasehold help kill

Times are written as 500us, 1.5ms or 2s, sizes as 64KiB or 0.5GiB: a number and its unit.

Exit codes of all commands: 0 done; 2 wrong usage; 65 not a program that can run here; 66 a file,
directory, tenant or node is missing; 70 an error of the host or the node; 77 refused: the lease
does not pay for it, or reservations cannot be kept; 78 a lease file or profile is wrong. The help
of a command says when it returns these, and which others it has.";

/// The failures of a command, with their exit codes (the numbers of `sysexits.h`).
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked on the command line cannot be.
    Usage(String),
    /// The program is damaged or asks for what is not offered.
    Program(String),
    /// A file or directory is missing.
    Missing(String),
    /// The host failed.
    Host(anyhow::Error),
    /// The lease was refused.
    Refused(String),
    /// A lease file, flag or profile is wrong.
    Configuration(String),
}

impl Failure {
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) => 2,
            Failure::Program(_) => 65,
            Failure::Missing(_) => 66,
            Failure::Host(_) => 70,
            Failure::Refused(_) => 77,
            Failure::Configuration(_) => 78,
        })
    }
}

impl Failure {
    /// Why the listeners of a lease file cannot be had.
    pub(crate) fn of_front(error: &FrontError, leases: &Path) -> Self {
        let message = format!("{}: {error}", leases.display());
        match error {
            FrontError::Unreadable { .. } => Self::Missing(message),
            FrontError::Address { .. } | FrontError::Thread(_) => {
                Self::Host(anyhow::anyhow!(message))
            }
            _ => Self::Configuration(message),
        }
    }

    /// The same of one of several tenants.
    pub(crate) fn of_tenant(self, name: &str) -> Self {
        self.at(&format!("tenant.{name}"))
    }

    /// The failure, whose cause is in this place.
    pub(crate) fn at(self, place: &str) -> Self {
        let of = |message: String| format!("{place}: {message}");
        match self {
            Self::Usage(message) => Self::Usage(of(message)),
            Self::Program(message) => Self::Program(of(message)),
            Self::Missing(message) => Self::Missing(of(message)),
            Self::Refused(message) => Self::Refused(of(message)),
            Self::Configuration(message) => Self::Configuration(of(message)),
            Self::Host(error) => Self::Host(error.context(place.to_owned())),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message)
            | Failure::Program(message)
            | Failure::Missing(message)
            | Failure::Refused(message)
            | Failure::Configuration(message) => f.write_str(message),
            Failure::Host(error) => write!(f, "{error:#}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast_ref::<Unheld>() {
            Some(unheld) => unheld.into(),
            None => Failure::Host(error),
        }
    }
}

impl From<&Unheld> for Failure {
    fn from(unheld: &Unheld) -> Self {
        match unheld {
            Unheld::Swap(_) => Failure::Configuration(unheld.to_string()),
            Unheld::Memory { .. } => Failure::Refused(unheld.to_string()),
            Unheld::FileSize { .. } => Failure::Host(anyhow::anyhow!("{unheld}")),
        }
    }
}
