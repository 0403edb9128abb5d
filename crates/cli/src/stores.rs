//! The stores of a command's tenants, which are opened before the process is confined.

use crate::confinement::Origin;
use crate::exit::Failure;
use crate::guard::check_stores;
use leasehold_cell::keyvalue::{OpenError, Store};
use leasehold_lease::{KeyValue, TenantSpec};
use std::collections::HashMap;
use std::sync::Arc;

/// The stores of tenants, by the tenants' names.
#[derive(Debug, Default)]
pub(crate) struct Stores(HashMap<String, Arc<Store>>);

impl Stores {
    /// Opens the store of each tenant that has one.
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
            stores.insert(tenant.name.clone(), opened(tenant, stated, origin)?);
        }
        Ok(Self(stores))
    }

    /// Opens the store that one more tenant has, unless there is one of its name. It is for [`Stores::put`].
    ///
    /// # Errors
    /// As [`Stores::open`], but for what other tenants have or reach.
    pub(crate) fn open_one(
        &self,
        tenant: &TenantSpec,
        origin: Origin<'_>,
    ) -> Result<Option<Arc<Store>>, Failure> {
        let stated = tenant.keyvalue.as_ref();
        let stated = stated.filter(|_| !self.0.contains_key(&tenant.name));
        let store = stated.map(|stated| opened(tenant, stated, origin));
        store.transpose()
    }

    /// Takes the store of one more tenant.
    pub(crate) fn put(&mut self, tenant: &TenantSpec, store: Arc<Store>) {
        self.0.insert(tenant.name.clone(), store);
    }

    /// The store of a tenant, if its lease has one.
    pub(crate) fn of(&self, tenant: &TenantSpec) -> Option<Arc<Store>> {
        tenant.keyvalue.as_ref()?;
        self.0.get(&tenant.name).cloned()
    }
}

fn opened(
    tenant: &TenantSpec,
    stated: &KeyValue,
    origin: Origin<'_>,
) -> Result<Arc<Store>, Failure> {
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
    Ok(Arc::new(store))
}
