//! The tenants whose directories, data sets, stores and programs a node reaches from its start on.

use crate::confinement::Origin;
use crate::guard::check_stores;
use leasehold_lease::{LeaseFile, TenantSpec};
use std::path::Path;

/// Returns the tenants of `file` as operators left them, and those that the lease file has stated otherwise: reading it again
/// brings them back, and the process can reach nothing new then. Of these only the ones whose places are all there,
/// and whose stores are nobody else's: an operator may have removed them with the tenant, or given them to another.
pub(super) fn reached(
    file: &LeaseFile,
    stated: Vec<TenantSpec>,
    origin: Origin<'_>,
) -> Vec<TenantSpec> {
    let is_free = |tenant: &TenantSpec| {
        let all = [&file.tenants[..], std::slice::from_ref(tenant)].concat();
        check_stores(&all, origin).is_ok()
    };
    let left = stated
        .into_iter()
        .filter(|tenant| !file.tenants.contains(tenant))
        .filter(|tenant| places(tenant).all(Path::exists) && is_free(tenant))
        // The cell holds no memory for it.
        .map(|tenant| TenantSpec {
            swap: None,
            ..tenant
        });
    let mut reached = file.tenants.clone();
    reached.extend(left);
    reached
}

fn places(tenant: &TenantSpec) -> impl Iterator<Item = &Path> {
    let stores = tenant.keyvalue.iter().map(|store| store.file.as_path());
    let certificates = tenant.outgoing.iter().filter_map(|it| it.ca.as_deref());
    let directories = tenant.dirs.iter().map(|directory| directory.host.as_path());
    let data = tenant.data.iter().map(|data| data.file.as_path());
    [tenant.component.as_path()]
        .into_iter()
        .chain(stores)
        .chain(certificates)
        .chain(directories)
        .chain(data)
}
