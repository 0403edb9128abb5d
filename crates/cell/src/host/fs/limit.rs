//! The descriptors of the process, shared out among tenants.
//!
//! The limit of the process is raised to what the host allows when the first cell starts. A part is the
//! host's; the rest is promised to tenants, each of which can open what its lease says, whatever the
//! others have open.

use super::account::CLOSING;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors that no tenant gets: those of cells, programs, the swap file, and the controller.
const RESERVE: u64 = 256;

/// Descriptors that are promised to tenants of this process.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// Lets the process have as many descriptors as the host allows.
pub(crate) fn raise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit on descriptors stays {:?}", limit.current);
        }
    });
}

/// That a tenant can open so many files, until it is dropped.
#[derive(Debug)]
pub(crate) struct Promise(u64);

/// Why a promise cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted} descriptors were asked for (`files.open`, and {CLOSING} that may wait to be closed); the \
     process has {left} left of {limit}, with {RESERVE} kept for the host: raise `ulimit -n`"
)]
pub(crate) struct TooMany {
    wanted: u64,
    left: u64,
    limit: u64,
}

impl Promise {
    /// Promises a tenant that it can open `open` files.
    ///
    /// # Errors
    /// When the process does not have so many left.
    pub(crate) fn make(open: u32) -> Result<Self, TooMany> {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::make_of(open, limit)
    }

    fn make_of(open: u32, limit: u64) -> Result<Self, TooMany> {
        let wanted = u64::from(open) + u64::from(CLOSING);
        let most = limit.saturating_sub(RESERVE);
        let take = |promised: u64| {
            let after = promised.checked_add(wanted)?;
            (after <= most).then_some(after)
        };
        let promised = PROMISED.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        match promised {
            Ok(_) => Ok(Self(wanted)),
            Err(promised) => Err(TooMany {
                wanted,
                left: most.saturating_sub(promised),
                limit,
            }),
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::Promise;

    #[test]
    fn no_more_is_promised_than_there_is_and_what_is_given_back_is_promised_again() {
        // Other tests may have promises of their own; none has so many.
        let limit = 1 << 40;
        let most = u32::MAX;
        let mut promises = Vec::new();
        while let Ok(promise) = Promise::make_of(most, limit) {
            promises.push(promise);
        }
        assert!((255..=256).contains(&promises.len()), "{}", promises.len());
        assert!(Promise::make_of(most, limit).is_err());
        promises.pop();
        assert!(Promise::make_of(most, limit).is_ok());
    }

    #[test]
    fn a_process_with_a_small_limit_keeps_a_reserve() {
        assert!(Promise::make_of(1, 256).is_err());
    }
}
