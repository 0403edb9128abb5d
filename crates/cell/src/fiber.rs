//! A guest on a fiber of its own, which is preempted when its time is over.
//!
//! The engine runs a guest as a future. The future owns the guest's store, and gives it back when it is
//! ready, so that the store exists whenever the guest can be preempted.

use crate::built::Built;
use leasehold_preempt::{GuestContext, Preemption};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use wasmtime::Store;

/// What a guest's future gives back: its store, and its result.
pub(crate) type Returned<S, T> = (Store<S>, T);

/// The future of a guest.
pub(crate) type GuestFuture<S, T> = Pin<Box<dyn Future<Output = Returned<S, T>> + Send>>;

/// A guest that has not ended by itself. Dropping it unwinds the fiber and frees the store.
pub(crate) struct Fiber<S: 'static, T> {
    guest: GuestContext,
    future: GuestFuture<S, T>,
}

impl<S: 'static, T> Fiber<S, T> {
    /// Makes the guest of `store`, which runs `program`, one that is preempted. `run` sets the store's
    /// limits, and returns a future that keeps the store until it is ready.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn new(
        preemption: &Preemption,
        program: &Arc<Built>,
        mut store: Store<S>,
        run: impl FnOnce(Store<S>) -> GuestFuture<S, T>,
    ) -> wasmtime::Result<Self> {
        let guest = preemption.arm(&mut store, program)?;
        let future = run(store);
        Ok(Self { guest, future })
    }

    /// Runs the guest until it ends, blocks, or is preempted.
    pub(crate) fn poll(
        &mut self,
        preemption: &Preemption,
        context: &mut Context<'_>,
    ) -> Poll<Returned<S, T>> {
        // SAFETY: the future owns the store that `guest` was armed for until it gives it back, fibers take
        // their stacks from the cell's pools, and a host call never runs another guest.
        let _entered = unsafe { preemption.enter(&self.guest) };
        self.future.as_mut().poll(context)
    }
}
