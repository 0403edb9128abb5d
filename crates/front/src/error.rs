//! Why a front cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a front cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrontError {
    /// An address cannot be listened on.
    #[error("listener.{listener}.address: cannot listen on {address}: {source}")]
    Address {
        /// The listener.
        listener: String,
        /// Its address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A file of a certificate or a key cannot be read.
    #[error("listener.{listener}.tls: cannot read {}: {source}", file.display())]
    Unreadable {
        /// The listener.
        listener: String,
        /// The file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file has not what it should.
    #[error("listener.{listener}.tls: {}: found {found}; allowed: {allowed}", file.display())]
    Pem {
        /// The listener.
        listener: String,
        /// The file.
        file: PathBuf,
        /// What it has.
        found: String,
        /// What it should have.
        allowed: &'static str,
    },
    /// A key is not that of its certificate.
    #[error(
        "listener.{listener}.tls: the key {} does not fit the certificate {}",
        key.display(),
        certificate.display()
    )]
    Mismatch {
        /// The listener.
        listener: String,
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// A certificate is not for the host that it is to be shown for.
    #[error("listener.{listener}.tls: the certificate {} is not for {host}: {reason}", certificate.display())]
    Host {
        /// The listener.
        listener: String,
        /// The file of the certificate.
        certificate: PathBuf,
        /// The host.
        host: String,
        /// What the check found.
        reason: String,
    },
    /// The I/O thread cannot be started.
    #[error("the I/O thread cannot be started: {0}")]
    Thread(#[source] io::Error),
}
