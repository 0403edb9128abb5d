//! The host's memory that the programs of a cell take: their machine code, and what their memories are shown to begin with.
//!
//! A program has it from the moment it is loaded until the last tenant of it is gone, and nobody runs while it is loaded.
//! So it is no part of what an end returns: a lease limits it (`memory.code`), and the cell limits the sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use leasehold_wasm::error::ProgramError;

/// What the programs of a cell may take together.
#[derive(Debug)]
pub(crate) struct CodeSpace {
    /// Bytes.
    most: u64,
    used: AtomicU64,
}

/// The part of one program, which its drop gives back.
#[derive(Debug)]
pub(crate) struct CodeRoom {
    space: Arc<CodeSpace>,
    bytes: u64,
}

impl CodeSpace {
    /// Room for so many bytes; a quarter of the host's memory if none are stated.
    pub(crate) fn new(most: Option<u64>) -> Arc<Self> {
        let host = rustix::system::sysinfo();
        let quarter = (host.totalram / 4).saturating_mul(u64::from(host.mem_unit));
        Arc::new(Self {
            most: most.unwrap_or(quarter),
            used: AtomicU64::new(0),
        })
    }

    /// Takes room for a program, of which its lease allows `allowed`, in bytes.
    ///
    /// # Errors
    /// [`CodeTooLarge`](ProgramError::CodeTooLarge), [`NoCodeSpace`](ProgramError::NoCodeSpace).
    pub(crate) fn take(
        self: &Arc<Self>,
        bytes: u64,
        allowed: u64,
    ) -> Result<CodeRoom, ProgramError> {
        if bytes > allowed {
            return Err(ProgramError::CodeTooLarge { bytes, allowed });
        }
        let sum = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        match self.used.fetch_update(Relaxed, Relaxed, sum) {
            Ok(_) => Ok(CodeRoom {
                space: self.clone(),
                bytes,
            }),
            Err(used) => Err(ProgramError::NoCodeSpace {
                bytes,
                left: self.most.saturating_sub(used),
                most: self.most,
            }),
        }
    }
}

impl Drop for CodeRoom {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::CodeSpace;
    use leasehold_wasm::error::ProgramError;

    #[test]
    fn no_more_is_taken_than_there_is_and_what_is_given_back_can_be_taken_again() {
        let space = CodeSpace::new(Some(100));
        let first = space.take(60, 60).expect("room");
        let refused = space.take(41, 1000).expect_err("60 of 100 are taken");
        let ProgramError::NoCodeSpace { bytes, left, most } = refused else {
            panic!("{refused}");
        };
        assert_eq!((bytes, left, most), (41, 40, 100));
        let _second = space.take(40, 40).expect("the rest");
        drop(first);
        let refused = space.take(20, 19).expect_err("more than the lease allows");
        assert!(matches!(
            refused,
            ProgramError::CodeTooLarge {
                bytes: 20,
                allowed: 19
            }
        ));
        assert!(space.take(u64::MAX, u64::MAX).is_err());
        space.take(60, 60).expect("as before");
    }

    #[test]
    fn without_a_limit_there_is_a_quarter_of_the_hosts_memory() {
        let space = CodeSpace::new(None);
        assert!(space.take(64 << 20, u64::MAX).is_ok());
        assert!(space.take(1 << 50, u64::MAX).is_err());
    }
}
