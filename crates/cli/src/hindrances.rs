//! What keeps the tenants of a lease file from being started, found without starting any: too small leases, places that
//! are not there, and what the host does not have.

use crate::confinement::{Control, Needs, Origin};
use crate::exit::Failure;
use crate::guard::{Guard, check_stores};
use crate::leases;
use crate::mounts::Mounts;
use crate::output::plain;
use crate::run::{failure, surroundings, unloaded};
use crate::stores::Stores;
use leasehold_cell::memory;
use leasehold_cell::profile::Profile;
use leasehold_cell::{
    DescriptorsRefused, Outlines, ProgramError, Rehearsal, RehearsedStart, Surroundings,
};
use leasehold_confine::ObeysPermissions;
use leasehold_front::check_certificates;
use leasehold_lease::{Lease, LeaseFile, Listener, TenantSpec};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Most lines for people of each kind.
const SHOWN: usize = 10;

/// What of the host decides about a start, and can be read only before the process is confined.
pub(crate) struct Host {
    /// The memory that the host can spare, bytes; `None` where that is not known.
    pub(crate) spare: Option<u64>,
    /// What is mounted; `None` if that cannot be read.
    pub(crate) mounts: Option<Mounts>,
}

impl Host {
    /// The host as it is now.
    pub(crate) fn look() -> Self {
        Self {
            spare: memory::available(),
            mounts: Mounts::read().ok(),
        }
    }
}

/// What a lease file is tested with.
pub(crate) struct Start<'a> {
    /// Its path.
    pub(crate) leases: &'a Path,
    /// The host.
    pub(crate) host: &'a Host,
    /// The costs of ends; without them no budget is known to be too small.
    pub(crate) profile: Option<&'a Profile>,
    /// The file with the profile.
    pub(crate) profile_file: Option<&'a Path>,
    /// What operators need.
    pub(crate) control: &'a Control,
    /// What is known of programs.
    pub(crate) outlines: &'a Arc<Outlines>,
    /// Why a node that runs could not start a tenant that is none of its start, by the tenant's name.
    pub(crate) unreached: Vec<(String, String)>,
}

/// Why a start would be refused.
struct Hindrance {
    /// The tenant, if it is one.
    tenant: Option<String>,
    failure: Failure,
}

/// All that would be refused, and what could not be tested.
pub(crate) struct Hindrances {
    found: Vec<Hindrance>,
    untested: Vec<String>,
}

impl Hindrances {
    /// Makes the checks that need no start, by the functions that a start makes them by.
    pub(crate) fn of(file: &LeaseFile, start: &Start<'_>) -> Self {
        let mut all = Self {
            found: Vec::new(),
            untested: Vec::new(),
        };
        if let Err(message) = leases::check_size(start.leases, file) {
            all.add(None, Failure::Configuration(message));
        }
        let needs = Needs {
            tenants: &file.tenants,
            reached: &file.tenants,
            origin: Origin::File(start.leases),
            holds_memory: false,
            profile: start.profile_file,
            control: start.control,
        };
        let mounts = start.host.mounts.as_ref();
        let guard = mounts.map(|mounts| Guard::of(&needs, mounts));
        if let Err(failure) = check_stores(&file.tenants, needs.origin) {
            all.add(None, failure);
        }
        let places = |tenant: &TenantSpec| {
            let there = leases::check_directories(tenant);
            there.map_err(|failure| failure.of_tenant(&tenant.name))?;
            guard.as_ref().map_or(Ok(()), |guard| guard.check(tenant))
        };
        let mut rehearsal = Rehearsal::new(
            start.profile.cloned().unwrap_or_else(Profile::free),
            start.outlines.clone(),
        );
        for listener in &*file.listeners {
            if let Err(refused) = rehearsal.listen(listener.connections) {
                let message = no_descriptors(start.leases, listener, &refused);
                all.add(None, Failure::Configuration(message));
            }
            if let Err(error) = check_certificates(listener) {
                all.add(None, Failure::of_front(&error, start.leases));
            }
        }
        // A start opens the files of tenants, and makes the swap file, when it has given up the right to ignore permissions.
        let _obeys = match ObeysPermissions::begin() {
            Ok(obeys) => Some(obeys),
            Err(error) => {
                all.add(None, Failure::Host(error.into()));
                None
            }
        };
        if let Some(held) = leases::held_memory(&file.tenants, file.memory)
            && let Err(unheld) = held.check(start.host.spare)
        {
            all.add(None, (&unheld).into());
        }
        for tenant in &file.tenants {
            let surroundings = surroundings(tenant, &Stores::default());
            let start = rehearsed(tenant, &surroundings);
            match rehearsal.check_program(&start) {
                Ok(()) => {}
                // It may come yet.
                Err(ProgramError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    all.untested.push(format!(
                        "tenant.{}: what its program begins with: it cannot be read",
                        tenant.name
                    ));
                }
                Err(error) => {
                    let failure = unloaded(&error, &tenant.component);
                    all.add(Some(&tenant.name), failure.of_tenant(&tenant.name));
                }
            }
            let begun = places(tenant).and_then(|()| {
                let begun = rehearsal.start(&start);
                begun.map_err(|error| failure(error).of_tenant(&tenant.name))
            });
            if let Err(failure) = begun {
                all.add(Some(&tenant.name), failure);
            }
        }
        for (tenant, message) in &start.unreached {
            all.add(Some(tenant), Failure::Configuration(message.clone()));
        }
        all.untested.extend(untested_code(file));
        if start.profile.is_none() {
            let unknown = "`reclaim.budget`: there is no profile of this host, which `leasehold calibrate` makes";
            all.untested.push(unknown.to_owned());
        }
        all
    }

    /// Adds a failure, of a tenant or of all.
    pub(crate) fn add(&mut self, tenant: Option<&str>, failure: Failure) {
        self.found.push(Hindrance {
            tenant: tenant.map(str::to_owned),
            failure,
        });
    }

    /// Whether nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let found = self.found.iter();
        let found = found.map(|hindrance| plain(&hindrance.failure.to_string()));
        lines(&mut text, "cannot be started", found);
        let untested = self.untested.iter().map(|what| plain(what));
        lines(&mut text, "not tested", untested);
        text
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let found = self.found.iter().map(|hindrance| {
            json!({
                "name": hindrance.tenant,
                "reason": hindrance.failure.to_string(),
            })
        });
        json!({
            "fits": self.is_empty(),
            "refusals": found.collect::<Vec<_>>(),
            "untested": self.untested,
        })
    }
}

/// The limits on machine code that are stated, and smaller than the default: how much a program takes is known when it has
/// been compiled.
fn untested_code(file: &LeaseFile) -> Vec<String> {
    const WHAT: &str = "what the machine code takes is known when it has been compiled";
    let most = Lease::default().memory.code;
    let small = |tenant: &&TenantSpec| tenant.lease.memory.code < most;
    let of_tenants = file.tenants.iter().filter(small);
    let of_tenants = of_tenants.map(|tenant| format!("tenant.{}.memory.code: {WHAT}", tenant.name));
    let of_cell = file.code.map(|_| format!("cell.code: {WHAT}"));
    of_tenants.chain(of_cell).collect()
}

/// Writes the first lines, and how many more there are.
fn lines(text: &mut String, what: &str, all: impl ExactSizeIterator<Item = String>) {
    let more = all.len().saturating_sub(SHOWN);
    // Writing to a string cannot fail.
    for line in all.take(SHOWN) {
        let _ = writeln!(text, "{what}: {line}");
    }
    if more > 0 {
        let _ = writeln!(text, "{what}: {more} more");
    }
}

/// Why a listener cannot have so many connections.
pub(crate) fn no_descriptors(
    file: &Path,
    listener: &Listener,
    refused: &DescriptorsRefused,
) -> String {
    let (file, name, found) = (file.display(), &listener.name, listener.connections);
    format!("{file}: listener.{name}.connections: found {found}: {refused}")
}

/// What a tenant of a file asks for when it is started.
pub(crate) fn rehearsed<'a>(
    tenant: &'a TenantSpec,
    surroundings: &'a Surroundings,
) -> RehearsedStart<'a> {
    let outgoing = tenant.outgoing.as_ref();
    RehearsedStart {
        program: &tenant.component,
        lease: &tenant.lease,
        surroundings,
        has_store: tenant.keyvalue.is_some(),
        is_handler: tenant.http.is_some(),
        calls: outgoing.map_or(0, |lease| lease.concurrency),
        addresses: outgoing.map_or(0, |lease| lease.listen.len()),
    }
}
