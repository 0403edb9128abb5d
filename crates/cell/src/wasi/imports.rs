//! What an execution finds behind `wasi:config`, `wasi:logging`, `wasi:keyvalue` and
//! `wasi:http/outgoing-handler`.

use super::log::{Log, LogRate};
use super::stdio::Author;
use crate::host::fs::account::Account;
use crate::host::fs::pages::Pages;
use crate::meter::Held;
use crate::surroundings::Surroundings;
use leasehold_exchange::Outlet;
use leasehold_kernel::TenantId;
use leasehold_keyvalue::Store;
use std::sync::Arc;

/// What an execution of a component finds behind the interfaces that its lease fills.
pub(crate) struct Imports {
    pub(super) config: Arc<[(String, String)]>,
    pub(super) log: Log,
    pub(super) keyvalue: Option<KeyValue>,
    pub(super) outgoing: Option<Outbound>,
}

/// The store of a tenant, as one of its executions reaches it.
#[derive(Clone)]
pub(super) struct KeyValue {
    pub(super) store: Arc<Store>,
    pub(super) account: Arc<Account>,
    /// What its operations hold while they wait.
    pub(super) pages: Arc<Pages>,
}

/// Where the requests of a tenant go, as one of its executions reaches it.
#[derive(Clone)]
pub(super) struct Outbound {
    pub(super) outlet: Arc<Outlet>,
    /// What its requests hold.
    pub(super) pages: Arc<Pages>,
}

impl Imports {
    /// Those of a core module, which imports none of the interfaces.
    pub(crate) fn none() -> Self {
        Self {
            config: Arc::default(),
            log: Log::none(),
            keyvalue: None,
            outgoing: None,
        }
    }

    /// Those of an execution with these surroundings.
    pub(crate) fn of(
        surroundings: &Surroundings,
        (tenant, execution): (TenantId, u64),
        account: &Arc<Account>,
        (rate, author): (&Arc<LogRate>, &Author),
    ) -> Self {
        let pages = || Arc::new(Pages::new(tenant, execution, Held::HostPage));
        let keyvalue = surroundings.keyvalue.as_ref().map(|store| KeyValue {
            store: store.clone(),
            account: account.clone(),
            pages: pages(),
        });
        let outgoing = surroundings.outgoing.as_ref().map(|outlet| Outbound {
            outlet: outlet.clone(),
            pages: pages(),
        });
        Self {
            config: surroundings.config.clone(),
            log: Log::new(
                surroundings.stderr.sink(account.output_time(), author),
                rate.clone(),
            ),
            keyvalue,
            outgoing,
        }
    }
}
