//! The stores of a command's tenants, which are opened before the process is confined.

use crate::confinement::Origin;
use crate::exit::Failure;
use crate::guard::check_stores;
use leasehold_cell::keyvalue::{OpenError, Store};
use leasehold_lease::TenantSpec;
use std::collections::HashMap;
use std::sync::Arc;

/// The stores of tenants, by the tenants' names.
#[derive(Debug, Default)]
pub(crate) struct Stores(HashMap<String, Arc<Store>>);

impl Stores {
    /// Opens the store of each tenant that has one: of several with one name, that of the first.
    ///
    /// # Errors
    /// When a file is no store, cannot be used, another process uses it, or a tenant has or reaches it, too.
    pub(crate) fn open(tenants: &[TenantSpec], origin: Origin<'_>) -> Result<Self, Failure> {
        // Before one is made in a directory of a tenant's.
        check_stores(tenants, origin)?;
        let mut stores = HashMap::new();
        for tenant in tenants {
            let Some(stated) = &tenant.keyvalue else {
                continue;
            };
            if stores.contains_key(&tenant.name) {
                continue;
            }
            let store = Store::open(&stated.file, stated.size.get()).map_err(|error| {
                let key = format!("tenant.{}.keyvalue.file", tenant.name);
                let message = match origin {
                    Origin::File(file) => format!("{}: {key}: {error}", file.display()),
                    Origin::Flags | Origin::Node => format!("{key}: {error}"),
                };
                match error {
                    OpenError::File { .. } => Failure::Missing(message),
                    OpenError::Taken { .. } => Failure::Host(anyhow::anyhow!(message)),
                    _ => Failure::Configuration(message),
                }
            })?;
            stores.insert(tenant.name.clone(), Arc::new(store));
        }
        Ok(Self(stores))
    }

    /// The store of a tenant.
    pub(crate) fn of(&self, tenant: &TenantSpec) -> Option<Arc<Store>> {
        self.0.get(&tenant.name).cloned()
    }
}
