//! Stopping a guest by the engine's epoch check: the fallback.
//!
//! Compiled code compares a counter at every loop back edge and function entry, and where a program was rewritten to
//! (`leasehold_wasm::straight_line`); the alarm advances the counter. Works wherever the engine does, and costs some guests most of their speed: the
//! cold call in a loop makes every vector register spill.

use crate::alarm::fired;
use leasehold_slots::stack_class::StackClass;
use std::sync::OnceLock;
use wasmtime::{Config, Engine, Store, UpdateDeadline};

/// Compiles the check into guests.
pub(super) fn configure(config: &mut Config) {
    config.epoch_interruption(true);
}

/// Makes the guest of `store` yield to the executor when it sees the counter advanced.
pub(super) fn arm<T>(store: &mut Store<T>, yields: fn()) {
    store.set_epoch_deadline(1);
    // The counter is the engine's: it also advances for the guests that ran since this one did.
    store.epoch_deadline_callback(move |_| {
        yields();
        Ok(if fired() {
            UpdateDeadline::Yield(1)
        } else {
            UpdateDeadline::Continue(1)
        })
    });
}

/// The engines whose guests run on a thread.
#[derive(Debug, Default)]
pub(super) struct Epochs([OnceLock<Engine>; StackClass::COUNT]);

impl Epochs {
    /// Adds an engine, of which there is one for each class of stacks.
    pub(super) fn add(&self, engine: &Engine) {
        let free = self.0.iter().find(|slot| slot.get().is_none());
        debug_assert!(free.is_some(), "an engine for each class");
        if let Some(free) = free {
            free.get_or_init(|| engine.clone());
        }
    }

    /// Makes the running guest of any of the engines yield. Uses atomic additions, and may be
    /// called from a signal handler.
    ///
    /// Returns false: a guest that resumes sets its new deadline then, and misses earlier requests.
    /// The request must be repeated until the guest has yielded.
    pub(super) fn tick(&self) -> bool {
        for engine in self.0.iter().filter_map(OnceLock::get) {
            engine.increment_epoch();
        }
        false
    }
}
