//! The second line of defence, from the command line: the places that a command needs, which no
//! tenant may be given.

use crate::exit::Failure;
use crate::guard::{Guard, check_stores};
use crate::log;
use crate::mounts::Mounts;
use leasehold_cell::user_files;
use leasehold_confine::{InForce, Locking, Mode, Place, Places, Thread};
use leasehold_lease::{Certificate, LeaseFile, ListenAddress, Listener, Outgoing, TenantSpec};
use std::path::{Path, PathBuf};

/// How far a command that runs guests is confined.
// Its group would have the name of the group of the command that it is a part of.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// Keep all privileges, system calls and files, for debuggers and tracers.
    #[arg(long)]
    no_confinement: bool,

    /// `enforce`; `trap`, in which a denied system call is named and ends the process; or `off`.
    #[arg(
        long = "confinement",
        value_name = "MODE",
        env = "LEASEHOLD_CONFINEMENT",
        default_value = "enforce",
        hide = true
    )]
    mode: Mode,
}

impl Arguments {
    pub(crate) fn mode(self) -> Mode {
        match self.no_confinement {
            true => Mode::Off,
            false => self.mode,
        }
    }
}

/// Where the tenants of a command come from, for what is said of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// A lease file.
    File(&'a Path),
    /// Flags, perhaps over a lease file.
    Flags,
    /// A node that runs, which says where they come from.
    Node,
}

/// The places that a command uses beside those of its tenants.
pub(crate) struct Needs<'a> {
    /// The tenants that may start.
    pub(crate) tenants: &'a [TenantSpec],
    /// Those whose places are to be reached.
    pub(crate) reached: &'a [TenantSpec],
    /// Where they come from.
    pub(crate) origin: Origin<'a>,
    /// Whether the cell holds frames for them.
    pub(crate) holds_memory: bool,
    /// The profile, if it is in a file.
    pub(crate) profile: Option<&'a Path>,
    /// What its operators need.
    pub(crate) control: &'a Control,
}

/// The places that operators of a node need.
#[derive(Debug, Clone, Default)]
pub(crate) struct Control {
    /// Whether its tenants may answer requests.
    pub(crate) serves: bool,
    /// Directories of programs of tenants that come later, and of the lease file that is read again.
    pub(crate) programs: Vec<PathBuf>,
    /// The lease file, if it is read again: a tenant that writes it would choose its own lease.
    pub(crate) leases: Option<PathBuf>,
    /// The certificates of listeners.
    pub(crate) certificates: Vec<Certificate>,
    /// The directory of what operators change.
    pub(crate) state: Option<PathBuf>,
    /// The control socket.
    pub(crate) socket: Option<PathBuf>,
    /// The port of a collector of spans.
    pub(crate) collector: Option<u16>,
    /// The address of the page, with the port that it got.
    pub(crate) page: Option<ListenAddress>,
}

impl Control {
    /// What of a lease file itself the operators of a node need that it is served by; of one that has no listeners,
    /// nothing.
    pub(crate) fn of_served(leases: &Path, file: &LeaseFile) -> Self {
        let certificates = file
            .listeners
            .iter()
            .flat_map(|it: &Listener| it.tls.clone());
        Self {
            leases: (!file.listeners.is_empty()).then(|| leases.to_owned()),
            certificates: certificates.collect(),
            ..Self::default()
        }
    }
}

/// Confines the process before it starts a cell, and everything that it starts from then on.
///
/// # Errors
/// When a tenant would be given a directory that is not for tenants, or the kernel refuses a step.
pub(crate) fn enter(arguments: Arguments, needs: &Needs<'_>) -> Result<InForce, Failure> {
    let mounts = Mounts::read().map_err(|error| Failure::Host(error.into()))?;
    check_stores(needs.tenants, needs.origin)?;
    let guard = Guard::of(needs, &mounts);
    needs
        .tenants
        .iter()
        .try_for_each(|tenant| guard.check(tenant))?;
    let locking = match needs.holds_memory {
        true => Locking::Memory,
        false => Locking::Never,
    };
    leasehold_cell::open_entropy();
    leasehold_confine::enter(arguments.mode(), places(needs), locking).map_err(failed)
}

/// Gives up the controller's privileges that only the start of the cell needed.
///
/// # Errors
/// When the kernel refuses it.
pub(crate) fn started() -> Result<(), Failure> {
    leasehold_confine::narrow(Thread::Controller).map_err(failed)?;
    // Its thread is confined like this one; no guest has been started.
    log::never_blocks();
    Ok(())
}

pub(crate) fn failed(error: leasehold_confine::ConfineError) -> Failure {
    Failure::Host(anyhow::anyhow!(
        "the process cannot be confined: {error}; --no-confinement runs it all the same"
    ))
}

fn places(needs: &Needs<'_>) -> Places {
    let tenants = needs.reached.iter();
    let directories = tenants.clone().flat_map(|tenant| &tenant.dirs);
    let directories = directories.map(|directory| match directory.write {
        true => Place::write(&directory.host),
        false => Place::read(&directory.host),
    });
    let outgoing = tenants
        .clone()
        .filter_map(|tenant| tenant.outgoing.as_ref());
    let listens = outgoing.clone().any(|outgoing| !outgoing.listen.is_empty());
    let ports = outgoing.flat_map(Outgoing::ports);
    let data = tenants.clone().flat_map(|tenant| &tenant.data);
    let programs = tenants.clone().map(|tenant| &tenant.component);
    let swaps = tenants.filter_map(|tenant| tenant.swap.as_deref());
    Places {
        tenants: directories
            .chain(data.map(|data| Place::read(&data.file)))
            .collect(),
        controller: programs
            .map(Place::read)
            .chain(user_files::cache().map(Place::write))
            .chain(needs.control.programs.iter().map(Place::read))
            .chain(needs.control.state.iter().map(Place::write))
            // It is removed at the end.
            .chain(
                needs
                    .control
                    .socket
                    .iter()
                    .map(|socket| Place::write(parent(socket))),
            )
            .collect(),
        start: ["/proc", "/sys/fs/cgroup", "/sys/kernel/mm"]
            .map(Place::read)
            .into_iter()
            // The swap file is made, and loses its name at once.
            .chain(swaps.map(|swap| Place::write(parent(swap))))
            .chain(user_files::state().map(Place::write))
            .collect(),
        ports: ports.chain(needs.control.collector).collect(),
        listens,
    }
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
