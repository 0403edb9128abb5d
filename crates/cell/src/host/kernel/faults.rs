//! System calls that fail at a test's request.

use super::Call;
use rustix::io::{Errno, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The failing calls and their error.
static RULE: Mutex<Option<(Call, Errno, u32)>> = Mutex::new(None);

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
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RULE.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Fails as the present test requested.
pub(super) fn may_fail(call: Call) -> Result<()> {
    let mut rule = RULE.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *rule {
        Some((which, errno, times)) if *which == call && *times > 0 => {
            *times -= 1;
            Err(*errno)
        }
        _ => Ok(()),
    }
}
