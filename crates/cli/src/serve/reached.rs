//! The tenants whose directories, data sets, stores and programs a node reaches from its start on.

use crate::confinement::Origin;
use crate::exit::Failure;
use crate::guard::check_stores;
use crate::leases::check_directories;
use crate::output::{plain, say};
use crate::requests::Prepared;
use crate::stores::Stores;
use leasehold_lease::{LeaseFile, TenantSpec};
use std::path::Path;

/// What is opened and bound before the process is confined.
pub(super) struct Reached {
    pub(super) stores: Stores,
    pub(super) requests: Prepared,
    /// The tenants for which it is, and whose other places the process is to reach.
    pub(super) tenants: Vec<TenantSpec>,
}

impl Reached {
    /// Opens what the tenants of `file` need, as operators left them. Opens also, as far as it is there, what the ones need that
    /// the lease file has `stated` otherwise: reading it again brings them back, and the process can reach nothing new then.
    /// Operators may have removed their places with them, or given these to other tenants, so what fails there is only told.
    ///
    /// # Errors
    /// When something that a tenant of `file` needs cannot be opened.
    pub(super) fn open(
        file: &LeaseFile,
        stated: Vec<TenantSpec>,
        origin: Origin<'_>,
    ) -> Result<Self, Failure> {
        let mut reached = Self {
            stores: Stores::open(&file.tenants, origin)?,
            requests: Prepared::read(&file.tenants, origin)?,
            tenants: file.tenants.clone(),
        };
        let left = stated.into_iter();
        for tenant in left.filter(|tenant| !file.tenants.contains(tenant)) {
            let name = tenant.name.clone();
            if let Err(failure) = reached.add(tenant, origin) {
                say!(
                    "leasehold: a reload cannot bring tenant {name} back as the lease file has it, until the next start: {}",
                    plain(&failure.to_string())
                );
            }
        }
        Ok(reached)
    }

    /// Opens what one more tenant needs; of what it shares with those before, nothing.
    ///
    /// # Errors
    /// When something of it cannot be opened. Then nothing is.
    fn add(&mut self, tenant: TenantSpec, origin: Origin<'_>) -> Result<(), Failure> {
        check_directories(&tenant)?;
        if let Some(missing) = places(&tenant).find(|place| !place.exists()) {
            let what = format!(
                "tenant.{}: no such file: {}",
                tenant.name,
                missing.display()
            );
            return Err(Failure::Missing(what));
        }
        let all = [&self.tenants[..], std::slice::from_ref(&tenant)].concat();
        check_stores(&all, origin)?;
        let store = self.stores.open_one(&tenant, origin)?;
        self.requests.add(&tenant, origin)?;
        if let Some(store) = store {
            self.stores.put(&tenant, store);
        }
        // The cell holds no memory for it.
        let swap = None;
        self.tenants.push(TenantSpec { swap, ..tenant });
        Ok(())
    }
}

fn places(tenant: &TenantSpec) -> impl Iterator<Item = &Path> {
    let stores = tenant.keyvalue.iter().map(|store| store.file.as_path());
    let certificates = tenant.outgoing.iter().filter_map(|it| it.ca.as_deref());
    let data = tenant.data.iter().map(|data| data.file.as_path());
    [tenant.component.as_path()]
        .into_iter()
        .chain(stores)
        .chain(certificates)
        .chain(data)
}
