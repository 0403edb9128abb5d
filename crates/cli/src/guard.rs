//! What no tenant may reach, and what a tenant that writes must not decide about.
//!
//! A tenant with a directory to write can put links there, and other directories in the place of those. So no path
//! that is opened for anybody else may lead through it: where that ended would be the tenant's choice.

use crate::confinement::{Needs, Origin};
use crate::exit::Failure;
use crate::mounts::Mounts;
use crate::second_names;
use crate::walk::Walk;
use leasehold_cell::user_files;
use leasehold_lease::{Certificate, Directory, TenantSpec};
use std::path::{Path, PathBuf};

/// A place that no tenant may reach.
struct Guarded<'a> {
    what: &'static str,
    path: PathBuf,
    walk: Walk,
    /// A tenant may read it.
    may_read: bool,
    /// The tenant that may write it.
    owner: Option<&'a str>,
}

impl<'a> Guarded<'a> {
    fn new(what: &'static str, path: PathBuf) -> Self {
        Self {
            what,
            walk: Walk::of(&path),
            path,
            may_read: false,
            owner: None,
        }
    }

    fn readable(self) -> Self {
        Self {
            may_read: true,
            ..self
        }
    }

    fn owned_by(self, owner: &'a TenantSpec) -> Self {
        Self {
            owner: Some(&owner.name),
            ..self
        }
    }
}

/// The guarded places of a command.
pub(crate) struct Guard<'a> {
    origin: Origin<'a>,
    mounts: &'a Mounts,
    places: Vec<Guarded<'a>>,
    /// The directories of all tenants.
    directories: Vec<(&'a Directory, Walk)>,
}

impl<'a> Guard<'a> {
    /// The guard of a command with these needs. System calls for each of its paths.
    pub(crate) fn of(needs: &Needs<'a>, mounts: &'a Mounts) -> Self {
        let control = needs.control;
        let own = [
            ("the cache of compiled programs", user_files::cache()),
            ("the state directory", user_files::state()),
            ("the profile", needs.profile.map(Path::to_owned)),
            ("the control socket", control.socket.clone()),
            ("what operators changed", control.state.clone()),
            ("the kernel's view of this process", Some("/proc".into())),
        ];
        let own = own.into_iter();
        let mut places: Vec<_> = own
            .filter_map(|(what, path)| Some(Guarded::new(what, path?)))
            .collect();
        let leases = control.leases.clone();
        places.extend(leases.map(|path| Guarded::new("the lease file", path).readable()));
        for Certificate {
            certificate, key, ..
        } in &control.certificates
        {
            places.push(Guarded::new("the key of a certificate", key.clone()));
            let certificate = Guarded::new("a certificate", certificate.clone());
            places.push(certificate.readable());
        }
        for tenant in needs.tenants {
            let trusted = tenant.outgoing.as_ref().and_then(|it| it.ca.clone());
            let trusted =
                trusted.map(|path| Guarded::new("the certificates that a tenant trusts", path));
            places.extend(trusted.map(Guarded::readable));
            let swap = tenant.swap.clone();
            places.extend(swap.map(|path| Guarded::new("the swap file", path)));
            let store = tenant.keyvalue.as_ref().map(|store| store.file.clone());
            places.extend(store.map(|path| Guarded::new("the store of a tenant", path)));
            let program = tenant.component.clone();
            let program = Guarded::new("the program of another tenant", program);
            places.push(program.readable().owned_by(tenant));
            places.extend(tenant.data.iter().map(|data| {
                let data = Guarded::new("a data set of another tenant", data.file.clone());
                data.readable().owned_by(tenant)
            }));
        }
        let directories = needs.tenants.iter().flat_map(|tenant| &tenant.dirs);
        let directories = directories.map(|it| (it, Walk::of(&it.host))).collect();
        Self {
            origin: needs.origin,
            mounts,
            places,
            directories,
        }
    }

    /// Refuses a directory of a tenant that contains a guarded place or lies in one, by whatever name, or through which
    /// the path of one leads.
    ///
    /// # Errors
    /// Which directory, and which place.
    pub(crate) fn check(&self, tenant: &TenantSpec) -> Result<(), Failure> {
        for directory in &tenant.dirs {
            let ours = Walk::of(&directory.host);
            if let Some(relation) = self.relation(tenant, directory, &ours) {
                let found = directory.host.display().to_string();
                let why = format!(
                    "found {found:?}, which {relation}; allowed: a directory that neither contains it nor lies in it"
                );
                return Err(refused(self.origin, tenant, "dirs", "--dir", &why));
            }
        }
        Ok(())
    }

    /// What a tenant's directory has to do with a place that is guarded from it, if with any.
    fn relation(&self, tenant: &TenantSpec, directory: &Directory, ours: &Walk) -> Option<String> {
        let guarded = self.places.iter();
        let guarded = guarded.filter(|place| place.owner != Some(&tenant.name));
        for Guarded {
            what, path, walk, ..
        } in guarded.filter(|place| directory.write || !place.may_read)
        {
            let relation = match () {
                () if ours.lies_in(walk) => "lies in",
                () if walk.lies_in(ours) => "contains",
                () if walk.leads_through(ours) => "is on the way to",
                () if self.mounts.reaches(ours.end(), walk.end()).is_some() => {
                    "has, through a mount,"
                }
                () if second_names::may_be_below(walk.end(), ours.end()) => {
                    "has, or has too many entries to tell, a hard link to"
                }
                () => continue,
            };
            return Some(format!("{relation} {what} ({})", path.display()));
        }
        let below = |(_, theirs): &&(_, Walk)| theirs.leads_through(ours) && !theirs.meets(ours);
        if directory.write
            && let Some((below, _)) = self.directories.iter().find(below)
        {
            let below = below.host.display();
            return Some(format!(
                "is on the way to a directory of a tenant ({below})"
            ));
        }
        let point = self.mounts.reaches_type(ours.end(), "proc")?;
        let point = point.display();
        Some(format!(
            "reaches the kernel's view of this process ({point})"
        ))
    }
}

/// Says that a value of a tenant's key is refused.
fn refused(origin: Origin<'_>, tenant: &TenantSpec, key: &str, flag: &str, why: &str) -> Failure {
    let key = match origin {
        Origin::File(file) => format!("{}: tenant.{}.{key}", file.display(), tenant.name),
        Origin::Flags => flag.to_owned(),
        Origin::Node => format!("tenant.{}.{key}", tenant.name),
    };
    Failure::Configuration(format!("{key}: {why}"))
}

/// Refuses a store whose file another tenant has, too, or to which the path leads through a directory that a tenant
/// has. Makes no file.
///
/// # Errors
/// Which store, and why.
pub(crate) fn check_stores(tenants: &[TenantSpec], origin: Origin<'_>) -> Result<(), Failure> {
    let mut seen: Vec<(&TenantSpec, Walk)> = Vec::new();
    for tenant in tenants {
        let Some(stated) = &tenant.keyvalue else {
            continue;
        };
        let refused = |allowed: &str| {
            let found = stated.file.display().to_string();
            let why = format!("found {found:?}; allowed: {allowed}");
            Err(refused(origin, tenant, "keyvalue.file", "--keyvalue", &why))
        };
        let walk = Walk::of(&stated.file);
        let mut directories = tenants.iter().flat_map(|other| &other.dirs);
        if let Some(directory) =
            directories.find(|directory| walk.leads_through(&Walk::of(&directory.host)))
        {
            let through = directory.host.display();
            return refused(&format!(
                "a path that does not lead through a directory that a tenant has ({through})"
            ));
        }
        let same = |(other, theirs): &&(&TenantSpec, Walk)| {
            other.name != tenant.name && walk.meets(theirs)
        };
        if let Some((other, _)) = seen.iter().find(same) {
            return refused(&format!(
                "a file of its own: tenant.{} has this one",
                other.name
            ));
        }
        seen.push((tenant, walk));
    }
    Ok(())
}
