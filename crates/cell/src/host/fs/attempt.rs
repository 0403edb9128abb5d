//! What is tried without waiting, and done elsewhere if it would wait.

use super::account::Account;
use super::elsewhere::Elsewhere;
use crate::host::io;
use rustix::io::Result;
use std::sync::Arc;

/// What a first try on the cell's thread led to.
pub(crate) enum Try<T> {
    /// The kernel has answered.
    Done(Result<T>),
    /// It might wait: a thread that may block has to ask.
    Elsewhere(Box<dyn FnOnce() -> Result<T> + Send>),
}

impl<T: Send + 'static> Try<T> {
    /// What is not tried, or would wait.
    pub(crate) fn elsewhere(
        on: Elsewhere,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Self {
        Self::Elsewhere(Box::new(on.during(work)))
    }

    /// The kernel's answer, waited for if it has to be.
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
