//! Whether tenants that come later can be kept beside those that are there.

use crate::admission::{self as processor, Scheduling};
use crate::admit;
use crate::confinement::{Control, Needs, Origin, parent};
use crate::exit::Failure;
use crate::guard::{Guard, check_stores};
use crate::hindrances::{Host, Start, rehearsed};
use crate::leases::{self, Ends};
use crate::memory_admission::MemoryVerdict;
use crate::overhead::{HostSteps, HostTime};
use crate::run::surroundings;
use crate::stores::Stores;
use crate::transit::{self, Transit};
use leasehold_cell::memory::HeldMemory;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::profile::Profile;
use leasehold_cell::steps::RowBounds;
use leasehold_cell::{Outlines, PresentPrices, Rehearsal, StartError};
use leasehold_lease::{
    Addresses, ByteSize, Families, KeyValue, LeaseFile, ListenAddress, Outgoing, RegularFile,
    TenantSpec,
};
use leasehold_node::view::{EndBound, ErrorKind};
use leasehold_node::{Admission, Admitted, Problem};
use leasehold_reserve::{Contract, Order};
use serde_json::Value;
use std::io::{self, ErrorKind as Io};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a cell was started with, which decides about all tenants after that.
pub(crate) struct Rules {
    pub(crate) leases: PathBuf,
    pub(crate) profile: Profile,
    pub(crate) overhead: HostTime,
    pub(crate) backtraces: bool,
    /// How the tenants of its cell are preempted.
    pub(crate) mechanism: Mechanism,
    pub(crate) unadmitted: bool,
    pub(crate) order: Order,
    /// What the lease file states that the cell holds of the host's memory.
    pub(crate) memory: Option<ByteSize>,
    /// What it holds.
    pub(crate) held: Option<HeldMemory>,
    /// The host as it was before the process was confined.
    pub(crate) host: Host,
    /// The file with the profile.
    pub(crate) profile_file: Option<PathBuf>,
    /// What operators need.
    pub(crate) control: Control,
    /// The cell's reservation for ends.
    pub(crate) ends: Option<Contract>,
    /// The connections that each listener may have, which have descriptors of the process since the start.
    pub(crate) connections: Vec<u32>,
    /// The tenants whose places the process reaches since the start.
    pub(crate) reached: Vec<TenantSpec>,
    /// How long the host steps of its cell may be by now.
    pub(crate) raised: Option<Arc<RowBounds>>,
    /// What new tenants are charged by now.
    pub(crate) prices: Arc<PresentPrices>,
    /// What is known of programs that the node has not loaded.
    pub(crate) outlines: Arc<Outlines>,
}

impl Rules {
    fn steps(&self, tenants: &[TenantSpec]) -> HostSteps {
        let fault = HostTime::of_fault(None, Some(&self.profile));
        let profile = Some(&self.profile);
        let raised = self.raised.as_deref();
        let steps = HostSteps::raised_as(
            (self.mechanism, raised),
            tenants,
            fault,
            profile,
            &self.outlines,
        );
        match self.backtraces {
            true => steps.with_backtraces(),
            false => steps,
        }
    }

    /// What the host had available at the start for requests on their way, bytes.
    fn available(&self) -> Option<u64> {
        transit::available(self.host.spare, self.memory)
    }

    /// Whether the memory that the cell has held since its start is enough for these tenants.
    fn test_memory(&self, tenants: &[TenantSpec]) -> Result<(), Problem> {
        let refused = |message: String| Err(Problem::new(ErrorKind::Refused, message));
        let pages = |tenant: &&TenantSpec| tenant.lease.memory.paging.is_some();
        let verdict = match (&self.held, self.memory) {
            (_, Some(stated)) => MemoryVerdict::among(tenants, Some(stated), &self.outlines),
            (Some(held), None) => {
                let paging = tenants.iter().filter(pages);
                MemoryVerdict::among(paging, ByteSize::new(held.bytes), &self.outlines)
            }
            (None, None) => match tenants.iter().find(pages) {
                None => return Ok(()),
                Some(tenant) => {
                    return refused(format!(
                        "tenant.{}.memory: found one that pages; allowed: none: the cell holds no memory for such \
                         tenants since its start",
                        tenant.name
                    ));
                }
            },
        };
        if let (false, Some(why)) = (verdict.fits(), verdict.text()) {
            return refused(why);
        }
        let swap = |held: &HeldMemory| held.swap.as_ref().map_or(0, |swap| swap.bytes);
        let needed = leases::held_memory(tenants, self.memory);
        let (needed, held) = (
            needed.as_ref().map_or(0, swap),
            self.held.as_ref().map_or(0, swap),
        );
        if needed > held {
            return refused(format!(
                "memory.swap: found {needed} bytes that tenants may page out; allowed: {held}, as at the start"
            ));
        }
        Ok(())
    }

    /// Whether the process has room for all of these tenants at once, so that each can be started whatever others do: it has
    /// so many descriptors, mappings and threads, and a change that they do not fit is never done.
    fn test_room(&self, tenants: &[TenantSpec]) -> Result<(), Problem> {
        let mut rehearsal = Rehearsal::new(self.profile.clone(), self.outlines.clone());
        for connections in &self.connections {
            let listens = rehearsal.listen(*connections);
            listens.map_err(|refused| {
                Problem::new(ErrorKind::Refused, format!("listener: {refused}"))
            })?;
        }
        for tenant in tenants {
            let surroundings = surroundings(tenant, &Stores::default());
            let promised = rehearsal.promise(&rehearsed(tenant, &surroundings));
            promised.map_err(|error| Problem::from(&error).of_tenant(&tenant.name))?;
        }
        Ok(())
    }

    /// Whether no tenant is given a place that is not for tenants, or could change where one of another leads.
    fn check_places(&self, tenants: &[TenantSpec]) -> Result<(), Problem> {
        let needs = Needs {
            tenants,
            reached: tenants,
            origin: Origin::Node,
            holds_memory: self.held.is_some(),
            profile: self.profile_file.as_deref(),
            control: &self.control,
        };
        let bad = |failure: Failure| Problem::new(ErrorKind::BadLease, failure.to_string());
        check_stores(tenants, needs.origin).map_err(bad)?;
        check_page_address(tenants, self.control.page)
            .and_then(|()| check_addresses(tenants))
            .map_err(|message| Problem::new(ErrorKind::BadLease, message))?;
        let Some(mounts) = &self.host.mounts else {
            return Ok(());
        };
        let guard = Guard::of(&needs, mounts);
        let mut tenants = tenants.iter();
        tenants.try_for_each(|tenant| guard.check(tenant).map_err(bad))
    }

    fn programs(&self) -> impl Iterator<Item = &Path> {
        let own = parent(&self.leases);
        self.control
            .programs
            .iter()
            .map(PathBuf::as_path)
            .chain([own])
    }
}

/// Checks that no two tenants would listen at one address.
///
/// # Errors
/// What was found, and what is allowed.
pub(crate) fn check_addresses(tenants: &[TenantSpec]) -> Result<(), String> {
    let mut taken = Addresses::default();
    let is_free = |address| taken.take(address, Families::Own);
    let allowed = "an address that no other tenant has";
    check_each_address(tenants, is_free, allowed)
}

/// Checks that no tenant would listen at the address of the page.
///
/// # Errors
/// What was found, and what is allowed.
pub(crate) fn check_page_address(
    tenants: &[TenantSpec],
    page: Option<ListenAddress>,
) -> Result<(), String> {
    let Some(page) = page else {
        return Ok(());
    };
    let mut taken = Addresses::default();
    taken.take(page, Families::Both);
    let is_free = |address| taken.is_free(address, Families::Own);
    let allowed = format!(
        "an address that the page does not have: --page {}",
        page.get()
    );
    check_each_address(tenants, is_free, &allowed)
}

/// Checks that the addresses at which tenants may listen are free.
///
/// # Errors
/// The first one that is not, and what is allowed.
fn check_each_address(
    tenants: &[TenantSpec],
    mut is_free: impl FnMut(ListenAddress) -> bool,
    allowed: &str,
) -> Result<(), String> {
    for tenant in tenants {
        for stated in tenant.outgoing.iter().flat_map(|it| &it.listen) {
            let key = format!("tenant.{}.outgoing.listen", tenant.name);
            let address = ListenAddress::try_from(*stated);
            let address = address.map_err(|error| format!("{key}: {stated}: {error}"))?;
            if !is_free(address) {
                return Err(format!("{key}: found {stated}; allowed: {allowed}"));
            }
        }
    }
    Ok(())
}

impl Admission for Rules {
    fn test(&self, tenants: &[TenantSpec]) -> Result<Admitted, Problem> {
        let refused = |message: String| Problem::new(ErrorKind::Refused, message);
        self.check_places(tenants)?;
        let steps = self.steps(tenants);
        let scheduling = Scheduling {
            order: self.order,
            overhead: self.overhead.overhead(),
            ends: self.ends,
        };
        let admission = processor::Admission::of(tenants, &steps, scheduling);
        if let (Some(why), false) = (admission.refusal(), self.unadmitted) {
            return Err(refused(why));
        }
        self.test_memory(tenants)?;
        self.test_room(tenants)?;
        let transit = Transit::among(tenants, self.available());
        if let (false, false, Some(why)) = (transit.fits(), self.unadmitted, transit.text()) {
            return Err(refused(why));
        }
        let ends = Ends::with(tenants, &steps, self.overhead, self.order, self.ends);
        let anew = Ends::of(tenants, &steps, self.overhead, self.order);
        if let (Some(unbounded), false) = (ends.unbounded(&anew, tenants), self.unadmitted) {
            return Err(refused(format!(
                "nothing would bound the end of tenant.{}, which ends in the background, beside these reservations; \
                 allowed: tenants that leave room for the reservation for ends as it was chosen at the start; a \
                 restart of the node chooses it for all of these tenants",
                unbounded.name
            )));
        }
        let bounds = ends.bounds.into_iter().map(bound);
        Ok(Admitted {
            bounds: bounds.collect(),
            schedulable: admission.report.schedulable(),
            utilization: admission.report.utilisation.millionths() as f64 / 1e6,
        })
    }

    fn rehearse(&self, tenant: &TenantSpec) -> Result<(), StartError> {
        let surroundings = surroundings(tenant, &Stores::default());
        let rehearsal = Rehearsal::new(self.profile.clone(), self.outlines.clone());
        let mut rehearsal = rehearsal.at(self.prices.clone());
        rehearsal.start(&rehearsed(tenant, &surroundings))
    }

    fn check(&self, tenant: &TenantSpec) -> Result<(), Problem> {
        let wrong = |key: &str, found: &Path, allowed: &str| {
            let message = format!(
                "tenant.{}.{key}: found {:?}; allowed: {allowed}",
                tenant.name,
                found.display().to_string()
            );
            Err(Problem::new(ErrorKind::BadLease, message))
        };
        if tenant.http.is_some() && !self.control.serves {
            let message = format!(
                "tenant.{}.http: only `leasehold serve` starts tenants that answer requests",
                tenant.name
            );
            return Err(Problem::new(ErrorKind::BadLease, message));
        }
        let lies_in = |path: &Path, place: &Path| {
            let real = path.canonicalize().ok().zip(place.canonicalize().ok());
            real.is_some_and(|(path, place)| path.starts_with(place))
        };
        let of_start = || self.reached.iter();
        let program = &tenant.component;
        let known = of_start().any(|other| other.component == *program);
        // One that is missing is for the loader to report, as at the start.
        let exists = program.try_exists().unwrap_or(true);
        let lies = if exists { program } else { parent(program) };
        let is_near = self.programs().any(|place| lies_in(lies, place));
        let allowed = "a program below the directory of the lease file, or of --programs";
        if !known && !is_near {
            return wrong("component", program, allowed);
        }
        let opened = RegularFile::open(program).map_err(io::Error::from);
        let denied = opened.is_err_and(|error| error.kind() == Io::PermissionDenied);
        if denied && !is_near {
            let another = format!(
                "{allowed}: there is another file than at the start, which this process may not read"
            );
            return wrong("component", program, &another);
        }
        for directory in &tenant.dirs {
            let known = of_start().flat_map(|other| &other.dirs).any(|other| {
                (other.write || !directory.write) && lies_in(&directory.host, &other.host)
            });
            if !known {
                let allowed = "a directory of a tenant of the start, or one below it: no other can be reached";
                return wrong("dirs", &directory.host, allowed);
            }
        }
        for data in &tenant.data {
            if !of_start()
                .flat_map(|other| &other.data)
                .any(|other| other.file == data.file)
            {
                return wrong("data", &data.file, "a data set of a tenant of the start");
            }
        }
        if let Some(stated) = &tenant.keyvalue {
            let KeyValue { file, size } = stated;
            let mut own = of_start().filter(|other| other.name == tenant.name);
            match own.find_map(|other| other.keyvalue.as_ref()) {
                Some(opened) if opened.file == *file && opened.size == *size => {}
                Some(opened) if opened.file == *file => {
                    let message = format!(
                        "tenant.{}.keyvalue.size: found \"{size}\"; allowed: \"{}\", as at the start: another one takes a \
                         restart of the node",
                        tenant.name, opened.size
                    );
                    return Err(Problem::new(ErrorKind::BadLease, message));
                }
                _ => {
                    let allowed =
                        "the store of the tenant of this name at the start: no other can be opened";
                    return wrong("keyvalue.file", file, allowed);
                }
            }
        }
        if let Some(stated) = &tenant.outgoing {
            let known = || of_start().filter_map(|other| other.outgoing.as_ref());
            let reaches = |port| known().flat_map(Outgoing::ports).any(|other| other == port);
            let trusts = !stated.is_https()
                || known().any(|other| other.is_https() && other.ca == stated.ca);
            if let Some(port) = stated.ports().find(|port| !reaches(*port)) {
                let message = format!(
                    "tenant.{}.outgoing.allow: found the port {port}; allowed: the ports of the tenants of the start: no \
                     other can be connected to",
                    tenant.name
                );
                return Err(Problem::new(ErrorKind::BadLease, message));
            }
            let is_bound = |address| known().any(|other| other.listen.contains(address));
            if let Some(address) = stated.listen.iter().find(|address| !is_bound(address)) {
                let message = format!(
                    "tenant.{}.outgoing.listen: found {address}; allowed: the addresses of the tenants of the start: no \
                     other was bound",
                    tenant.name
                );
                return Err(Problem::new(ErrorKind::BadLease, message));
            }
            if !trusts {
                let found = stated.ca.clone().unwrap_or_default();
                let allowed = "the certificates of a tenant of the start: no others were read";
                return wrong("outgoing.ca", &found, allowed);
            }
        }
        let swap = of_start().find_map(|other| other.swap.as_ref());
        match &tenant.swap {
            Some(path) if Some(path) != swap => {
                wrong("memory.swap", path, "the swap file of the start")
            }
            _ => Ok(()),
        }
    }

    fn read(&self) -> Result<LeaseFile, Problem> {
        let file = LeaseFile::load(&self.leases)?;
        let bad = |message| Problem::new(ErrorKind::BadLease, message);
        if self.control.serves {
            check_served(&self.leases, &file.tenants).map_err(bad)?;
        }
        leases::check_size(&self.leases, &file).map_err(bad)?;
        Ok(file)
    }

    fn report(&self, file: &LeaseFile) -> Value {
        let start = Start {
            leases: &self.leases,
            host: &self.host,
            profile: Some(&self.profile),
            profile_file: self.profile_file.as_deref(),
            control: &self.control,
            outlines: &self.outlines,
            unreached: file
                .tenants
                .iter()
                .filter_map(|tenant| Some((tenant.name.clone(), self.check(tenant).err()?.message)))
                .collect(),
        };
        admit::json(file, self.overhead, self.steps(&file.tenants), &start)
    }
}

/// A bound as the interface shows it.
pub(crate) fn bound(bound: leases::EndBound) -> EndBound {
    EndBound {
        effect_ns: bound.effect_ns,
        returned_ns: bound.returned_ns,
    }
}

/// Checks what only a server needs of a lease file.
///
/// # Errors
/// What was found, and what is allowed.
pub(crate) fn check_served(path: &Path, tenants: &[TenantSpec]) -> Result<(), String> {
    if tenants.iter().any(|tenant| tenant.http.is_some()) {
        return Ok(());
    }
    let allowed = "at least one table [tenant.NAME.http]";
    Err(format!(
        "{}: tenant: found no tenant that answers requests; allowed: {allowed}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::{check_addresses, check_page_address};
    use leasehold_lease::LeaseFile;
    use std::path::Path;

    /// A tenant of this name that may listen there.
    fn tenant(name: &str, listen: &str) -> String {
        format!(
            "[tenant.{name}]\ncomponent = \"a.wasm\"\nreclaim.budget = \"1ms\"\n\
             outgoing = {{ listen = [\"{listen}\"] }}\n"
        )
    }

    fn parse(text: &str) -> LeaseFile {
        LeaseFile::parse(text, Path::new("lease.toml")).expect(text)
    }

    #[test]
    fn a_tenant_that_would_listen_where_the_page_is_is_named_with_it() {
        for (page, listen, is_free) in [
            ("127.0.0.1:7", "127.0.0.1:7", false),
            ("127.0.0.1:7", "0.0.0.0:7", false),
            ("[::]:7", "127.0.0.1:7", false),
            ("[::1]:7", "[::]:7", false),
            ("127.0.0.1:7", "[::]:7", true),
            ("127.0.0.1:7", "127.0.0.1:8", true),
            ("127.0.0.1:0", "127.0.0.1:7", true),
        ] {
            let file = parse(&tenant("a", listen));
            let at = page.parse().expect(page);
            let found = check_page_address(&file.tenants, Some(at));
            let expected = format!(
                "tenant.a.outgoing.listen: found {listen}; allowed: an address that the page does not have: --page {page}"
            );
            let expected = if is_free { Ok(()) } else { Err(expected) };
            assert_eq!(found, expected);
            assert_eq!(check_page_address(&file.tenants, None), Ok(()));
        }
    }

    #[test]
    fn two_tenants_of_two_files_have_no_address_in_common() {
        let files = ["a", "b"].map(|name| parse(&tenant(name, "127.0.0.1:7")));
        let tenants = files.map(|file| file.tenants).concat();
        let found = check_addresses(&tenants).expect_err("one address");
        assert_eq!(
            found,
            "tenant.b.outgoing.listen: found 127.0.0.1:7; allowed: an address that no other tenant has"
        );
        assert_eq!(check_addresses(&tenants[..1]), Ok(()));
    }
}
