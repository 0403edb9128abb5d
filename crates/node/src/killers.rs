//! The lives of all tenants, for threads that kill: a kill waits for no other thread, such as a supervisor
//! that is busy with a start.

use leasehold_cell::Killer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The lives, by name and number. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Killers(Arc<Mutex<Lives>>);

#[derive(Default)]
struct Lives {
    begun: u64,
    by_name: BTreeMap<(String, u64), Killer>,
}

/// A life that can be killed by its name until this is dropped.
pub(crate) struct Killable {
    killers: Killers,
    life: (String, u64),
}

impl Killers {
    /// Adds a life of the tenant with this name.
    pub(crate) fn add(&self, name: &str, killer: Killer) -> Killable {
        let number = self.with(|lives| {
            lives.begun += 1;
            lives.by_name.insert((name.to_owned(), lives.begun), killer);
            lives.begun
        });
        Killable {
            killers: self.clone(),
            life: (name.to_owned(), number),
        }
    }

    /// Kills all lives of the tenant with this name.
    pub(crate) fn kill(&self, name: &str) {
        self.with(|lives| {
            let all = (name.to_owned(), 0)..=(name.to_owned(), u64::MAX);
            lives.by_name.range(all).for_each(|(_, life)| life.kill());
        });
    }

    fn with<R>(&self, work: impl FnOnce(&mut Lives) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Killable {
    fn drop(&mut self) {
        self.killers.with(|lives| lives.by_name.remove(&self.life));
    }
}
