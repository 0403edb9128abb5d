//! The connections of a listener, counted on the I/O thread and read by others.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection was closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The listener has as many connections as it may.
    Listener,
    /// The client's address has.
    Source,
}

/// The connections of a listener, while they come and go.
#[derive(Default)]
pub(crate) struct Tally {
    admitted: AtomicU64,
    closed: AtomicU64,
    refused_by_listener: AtomicU64,
    refused_by_source: AtomicU64,
    failed_handshakes: AtomicU64,
}

/// The connections of a listener so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connections {
    /// Those that were admitted.
    pub admitted: u64,
    /// Those that are open.
    pub open: u64,
    /// Those that were closed at once, because the listener had as many as it may.
    pub refused_by_listener: u64,
    /// Those that were closed at once, because the client's address had as many as it may.
    pub refused_by_source: u64,
    /// Those whose TLS handshake failed or took too long.
    pub failed_handshakes: u64,
}

impl Tally {
    pub(crate) fn admitted(&self) {
        self.admitted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, why: Refusal) {
        let counter = match why {
            Refusal::Listener => &self.refused_by_listener,
            Refusal::Source => &self.refused_by_source,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn handshake_failed(&self) {
        self.failed_handshakes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Connections {
        // What only grows behind the other is read first.
        let closed = self.closed.load(Ordering::Relaxed);
        let admitted = self.admitted.load(Ordering::Relaxed);
        Connections {
            admitted,
            open: admitted.saturating_sub(closed),
            refused_by_listener: self.refused_by_listener.load(Ordering::Relaxed),
            refused_by_source: self.refused_by_source.load(Ordering::Relaxed),
            failed_handshakes: self.failed_handshakes.load(Ordering::Relaxed),
        }
    }
}
