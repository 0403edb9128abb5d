//! The state of a cell without tenants, in which starts are rehearsed.
//!
//! It has tens of megabytes of addresses. A node that maps and unmaps them for each start that it is asked about takes the
//! kernel's lock on the mappings of its process, for which the cell waits that grows a memory. So a thread keeps one.

use crate::config::CellConfig;
use crate::host::io::Io;
use crate::local::{self, Local};
use crate::profile::Profile;
use std::cell::RefCell;
use std::sync::Arc;

/// A state, and what it charges.
struct Stage {
    profile: Profile,
    local: Local,
}

thread_local! {
    static KEPT: RefCell<Option<Box<Stage>>> = const { RefCell::new(None) };
}

/// Does `act` on a thread with the state of a cell, which has no tenant before and is to have none afterwards.
pub(super) fn on_stage<R>(config: &CellConfig, io: &Arc<Io>, act: impl FnOnce() -> R) -> R {
    let kept = KEPT.take().filter(|kept| kept.profile == config.profile);
    let (profile, mut local) = match kept {
        Some(kept) => (kept.profile, kept.local),
        None => (config.profile.clone(), Local::new(config, io.clone())),
    };
    local.io = io.clone();
    local::enter(local);
    let result = act();
    if let Some(mut local) = local::leave() {
        // What was opened goes with the rehearsal.
        local.io = Arc::new(Io::rehearsed());
        KEPT.set(Some(Box::new(Stage { profile, local })));
    }
    result
}
