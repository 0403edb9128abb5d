//! The second line of defence, from the command line: the places that a command needs, which no
//! tenant may be given.

use crate::exit::Failure;
use crate::log;
use crate::mounts::Mounts;
use leasehold_cell::user_files;
use leasehold_confine::{InForce, Locking, Mode, Place, Places, Thread};
use leasehold_lease::{Outgoing, TenantSpec};
use std::os::unix::fs::MetadataExt;
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
    fn mode(self) -> Mode {
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
}

/// The places that a command uses beside those of its tenants.
pub(crate) struct Needs<'a> {
    /// The tenants.
    pub(crate) tenants: &'a [TenantSpec],
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
    /// The directory of what operators change.
    pub(crate) state: Option<PathBuf>,
    /// The control socket.
    pub(crate) socket: Option<PathBuf>,
    /// The port of a collector of spans.
    pub(crate) collector: Option<u16>,
}

/// Confines the process before it starts a cell, and everything that it starts from then on.
///
/// # Errors
/// When a tenant would be given a directory that is not for tenants, or the kernel refuses a step.
pub(crate) fn enter(arguments: Arguments, needs: &Needs<'_>) -> Result<InForce, Failure> {
    let mounts = Mounts::read().map_err(|error| Failure::Host(error.into()))?;
    for tenant in needs.tenants {
        check_directories(needs, tenant, &mounts)?;
    }
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

fn failed(error: leasehold_confine::ConfineError) -> Failure {
    Failure::Host(anyhow::anyhow!(
        "the process cannot be confined: {error}; --no-confinement runs it all the same"
    ))
}

fn places(needs: &Needs<'_>) -> Places {
    let tenants = needs.tenants.iter();
    let directories = tenants.clone().flat_map(|tenant| &tenant.dirs);
    let directories = directories.map(|directory| match directory.write {
        true => Place::write(&directory.host),
        false => Place::read(&directory.host),
    });
    let outgoing = tenants
        .clone()
        .filter_map(|tenant| tenant.outgoing.as_ref());
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
    }
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// A place that no tenant may reach.
struct Guarded {
    what: &'static str,
    path: PathBuf,
    /// It may read it.
    may_read: bool,
}

/// The places that this tenant may not reach.
fn guarded(needs: &Needs<'_>, tenant: &TenantSpec) -> Vec<Guarded> {
    let entry = |what| {
        move |path| Guarded {
            what,
            path,
            may_read: false,
        }
    };
    let readable = |what| {
        move |path| Guarded {
            what,
            path,
            may_read: true,
        }
    };
    let leases = needs.control.leases.clone().map(readable("the lease file"));
    let others = || {
        needs
            .tenants
            .iter()
            .filter(|other| other.name != tenant.name)
    };
    let programs = others().map(|other| other.component.clone());
    let data = others().flat_map(|other| other.data.iter().map(|data| data.file.clone()));
    let swaps = needs
        .tenants
        .iter()
        .filter_map(|tenant| tenant.swap.clone());
    let stores = needs.tenants.iter();
    let stores = stores.filter_map(|tenant| Some(tenant.keyvalue.as_ref()?.file.clone()));
    let cache = user_files::cache().map(entry("the cache of compiled programs"));
    let state = user_files::state().map(entry("the state directory"));
    let profile = needs.profile.map(Path::to_owned).map(entry("the profile"));
    let socket = needs
        .control
        .socket
        .clone()
        .map(entry("the control socket"));
    let desired = needs.control.state.clone();
    let desired = desired.map(entry("what operators changed"));
    let processes = entry("the kernel's view of this process")("/proc".into());
    cache
        .into_iter()
        .chain(state)
        .chain(profile)
        .chain(socket)
        .chain(desired)
        .chain(swaps.map(entry("the swap file")))
        .chain(stores.map(entry("the store of a tenant")))
        .chain([processes])
        .chain(leases)
        .chain(programs.map(readable("the program of another tenant")))
        .chain(data.map(readable("a data set of another tenant")))
        .collect()
}

/// Refuses a directory of a tenant that contains a guarded place or lies in one, by whatever name.
///
/// # Errors
/// Which directory, and which place.
pub(crate) fn check_directories(
    needs: &Needs<'_>,
    tenant: &TenantSpec,
    mounts: &Mounts,
) -> Result<(), Failure> {
    if tenant.dirs.is_empty() {
        return Ok(());
    }
    let guarded = guarded(needs, tenant);
    for directory in &tenant.dirs {
        let ours = Chain::of(&directory.host);
        let refused = |relation: &str| {
            let key = match needs.origin {
                Origin::File(file) => {
                    format!("{}: tenant.{}.dirs", file.display(), tenant.name)
                }
                Origin::Flags => "--dir".to_owned(),
            };
            Failure::Configuration(format!(
                "{key}: found {found:?}, which {relation}; allowed: a directory that neither \
                     contains it nor lies in it",
                found = directory.host.display().to_string(),
            ))
        };
        let real = directory.host.canonicalize();
        let mounted = |place: &Path| {
            let ours = real.as_ref().ok();
            let reaching = ours.zip(place.canonicalize().ok());
            reaching.is_some_and(|(ours, place)| mounts.reaches(ours, &place).is_some())
        };
        for Guarded {
            what,
            path,
            may_read,
        } in &guarded
        {
            if *may_read && !directory.write {
                continue;
            }
            let theirs = Chain::of(path);
            let relation = match () {
                () if ours.lies_in(&theirs) => "lies in",
                () if theirs.lies_in(&ours) => "contains",
                () if mounted(path) => "has, through a mount,",
                () => continue,
            };
            return Err(refused(&format!("{relation} {what} ({})", path.display())));
        }
        if let Ok(real) = &real
            && let Some(point) = mounts.reaches_type(real, "proc")
        {
            return Err(refused(&format!(
                "reaches the kernel's view of this process ({})",
                point.display()
            )));
        }
    }
    Ok(())
}

/// The identity of a file and of the directories above it, which does not depend on links and
/// mounts.
struct Chain {
    /// Of the file, or of the directory nearest to where it would be, up to the root.
    identities: Vec<(u64, u64)>,
    /// Whether the file is there.
    exists: bool,
}

impl Chain {
    fn of(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut existing = None;
        for above in absolute.ancestors() {
            if let Ok(real) = above.canonicalize() {
                existing = Some((real, above == absolute));
                break;
            }
        }
        let (real, exists) = existing.unwrap_or_default();
        let identities = real.ancestors().filter_map(|path| {
            let status = std::fs::metadata(path).ok()?;
            Some((status.dev(), status.ino()))
        });
        Self {
            identities: identities.collect(),
            exists,
        }
    }

    /// Whether this is below the other or the same.
    fn lies_in(&self, other: &Self) -> bool {
        let top = other.identities.first().filter(|_| other.exists);
        top.is_some_and(|top| self.identities.contains(top))
    }
}

#[cfg(test)]
mod tests {
    use super::Chain;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_place_is_found_through_links_and_where_it_is_not_yet() {
        let directory = tempfile::tempdir().expect("directory");
        let inner = directory.path().join("a/b");
        std::fs::create_dir_all(&inner).expect("made");
        let link = directory.path().join("link");
        symlink(&inner, &link).expect("linked");
        let outer = Chain::of(&directory.path().join("a"));
        for inside in [
            inner.clone(),
            link.clone(),
            link.join("../b/not/there"),
            inner.join("x"),
        ] {
            let inside = Chain::of(&inside);
            assert!(inside.lies_in(&outer));
            assert!(!outer.lies_in(&inside));
        }
        let beside = Chain::of(&directory.path().join("c"));
        assert!(!beside.lies_in(&outer) && !outer.lies_in(&beside));
        assert!(outer.lies_in(&outer));
    }
}
