//! Why requests cannot be sent at all.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the thread of outgoing requests cannot be started, or a tenant not be given any.
#[derive(Debug, thiserror::Error)]
pub enum OutgoingError {
    /// A file of certificates cannot be read, or has none.
    #[error("outgoing.ca: {}: {reason}", file.display())]
    Certificates {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// There can be no socket that listens at an address.
    #[error("outgoing.listen: {address}: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The kernel cannot be asked where an address leads.
    #[error("the kernel's routes: {0}")]
    Routes(io::Error),
    /// The host trusts no certificate.
    #[error("this host has no certificates that it trusts; `outgoing.ca` names a file of them")]
    NoRoots,
    /// Certificates that were not read at the start.
    #[error("{}: not among the certificates that were read at the start", .0.display())]
    Unknown(PathBuf),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The thread.
    #[error("the thread of outgoing requests: {0}")]
    Thread(io::Error),
}
