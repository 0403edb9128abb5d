//! The tenants whose directories, data sets, stores and programs a node reaches from its start on.

use leasehold_lease::{LeaseFile, TenantSpec};
use std::path::Path;

/// Returns the tenants of `file` as operators left them, and those that the lease file has stated otherwise: reading it again
/// brings them back, and the process can reach nothing new then. Of these only the ones whose places are all there:
/// an operator may have removed them with the tenant.
pub(super) fn reached(file: &LeaseFile, stated: Vec<TenantSpec>) -> Vec<TenantSpec> {
    let left = stated
        .into_iter()
        .filter(|tenant| !file.tenants.contains(tenant) && places(tenant).all(Path::exists))
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
