//! Wake-ups of a tenant whose budget is depleted.
//!
//! Other threads send a wake-up whenever they have finished work for the tenant, but none of its
//! tasks can run before its budget is replenished. As messages, wake-ups would interrupt servers of
//! lower priority at their cost. They are therefore kept here until the tenant's next dispatch (SPR
//! §III-D: activations are processed when the server can run).
//!
//! A tenant whose wake-ups are deferred has a ready task, so that a next dispatch is certain.

use leasehold_crossing::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};

/// The wake-ups of one tenant that wait for its budget.
#[derive(Debug, Default)]
pub(crate) struct Deferral {
    /// Whether `kept` is there, for threads that look without the lock.
    is_on: AtomicBool,
    /// Executions that were woken; `None` while wake-ups are messages.
    kept: Mutex<Option<Vec<u64>>>,
}

impl Deferral {
    /// Starts to keep wake-ups.
    pub(crate) fn begin(&self) {
        if !self.is_on() {
            self.lock().get_or_insert_default();
            self.is_on.store(true, Ordering::Release);
        }
    }

    /// Whether wake-ups are kept.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Ends the deferral: wake-ups are messages again. Returns the executions that were woken
    /// meanwhile.
    pub(crate) fn end(&self) -> Vec<u64> {
        self.is_on.store(false, Ordering::Release);
        self.lock().take().unwrap_or_default()
    }

    /// Keeps the wake-up of an execution if wake-ups are deferred now, and returns whether it did.
    /// Callable on any thread.
    pub(crate) fn keep(&self, execution: u64) -> bool {
        if !self.is_on() {
            return false;
        }
        // A deferral that has just ended has no list: the wake-up is then sent as a message.
        self.lock()
            .as_mut()
            .map(|kept| kept.push(execution))
            .is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<u64>>> {
        self.kept.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::Deferral;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn wake_ups_are_kept_while_a_deferral_lasts_and_come_out_once() {
        let deferral = Deferral::default();
        assert!(!deferral.keep(1));
        deferral.begin();
        deferral.begin();
        assert!(deferral.keep(2) && deferral.keep(3));
        assert_eq!(deferral.end(), [2, 3]);
        assert!(!deferral.keep(4));
        assert!(deferral.end().is_empty());
    }

    #[test]
    fn no_wake_up_is_lost_whenever_a_deferral_begins_and_ends() {
        const EACH: u64 = 20_000;
        let (deferral, messages) = (Deferral::default(), AtomicU64::new(0));
        let mut kept = 0;
        std::thread::scope(|scope| {
            let senders: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for execution in 0..EACH {
                            if !deferral.keep(execution) {
                                messages.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
            while senders.iter().any(|sender| !sender.is_finished()) {
                deferral.begin();
                kept += deferral.end().len() as u64;
            }
        });
        assert_eq!(kept + messages.into_inner(), 2 * EACH);
    }
}
