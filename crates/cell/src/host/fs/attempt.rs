//! Operations that are tried without waiting, and done on another thread if they would wait.

use super::account::Account;
use super::elsewhere::Elsewhere;
use crate::host::io;
use rustix::io::Result;
use std::sync::Arc;

/// The result of a first try on the cell's thread.
pub(crate) enum Try<T> {
    /// The kernel has answered.
    Done(Result<T>),
    /// It might wait: a thread that may block has to make the call.
    Elsewhere(Box<dyn FnOnce() -> Result<T> + Send>),
}

impl<T: Send + 'static> Try<T> {
    /// Defers the call to another thread.
    pub(crate) fn elsewhere(
        on: Elsewhere,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Self {
        Self::Elsewhere(Box::new(on.during(work)))
    }

    /// Returns the kernel's answer, waiting for it if necessary.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) async fn finish(self, account: &Arc<Account>) -> Result<T> {
        match self {
            Self::Done(result) => result,
            Self::Elsewhere(work) => io::run(account, work).await,
        }
    }
}
