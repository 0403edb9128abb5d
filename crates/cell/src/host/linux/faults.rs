//! System calls that fail, or do not return, at a test's request.

use leasehold_door::Call;
use rustix::io::{Errno, Result};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The failing calls and their error.
static RULE: Mutex<Option<(Call, Errno, u32)>> = Mutex::new(None);

/// The calls that do not return, and how many do not.
static HELD: Mutex<(Option<Call>, u32)> = Mutex::new((None, 0));

/// One of them has begun, or they may return.
static CHANGED: Condvar = Condvar::new();

fn held() -> MutexGuard<'static, (Option<Call>, u32)> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tests whose calls may fail take turns.
static TURN: Mutex<()> = Mutex::new(());

/// The turn of a test. When it is dropped, calls work again.
pub(crate) struct Turn(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Turn {
    /// Waits for a turn, in which calls work until [`fail`](Self::fail).
    pub(crate) fn take() -> Self {
        Self(TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the next `times` such calls of this process fail.
    pub(crate) fn fail(&self, call: Call, errno: Errno, times: u32) {
        *RULE.lock().unwrap_or_else(PoisonError::into_inner) = Some((call, errno, times));
    }

    /// Makes such calls of this process not return before [`release`](Self::release).
    pub(crate) fn hold(&self, call: Call) {
        held().0 = Some(call);
    }

    /// Waits until a call does not return.
    pub(crate) fn wait_held(&self) {
        let waits = CHANGED.wait_while(held(), |(_, count)| *count == 0);
        drop(waits);
    }

    /// Makes all calls return.
    pub(crate) fn release(&self) {
        held().0 = None;
        CHANGED.notify_all();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.release();
        *RULE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Fails, or waits, as the present test requested.
pub(super) fn may_fail(call: Call) -> Result<()> {
    let mut state = held();
    if state.0 == Some(call) {
        state.1 += 1;
        CHANGED.notify_all();
        let released = CHANGED.wait_while(state, |(call, _)| call.is_some());
        state = released.unwrap_or_else(PoisonError::into_inner);
        state.1 -= 1;
    }
    drop(state);
    let mut rule = RULE.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *rule {
        Some((which, errno, times)) if *which == call && *times > 0 => {
            *times -= 1;
            Err(*errno)
        }
        _ => Ok(()),
    }
}
