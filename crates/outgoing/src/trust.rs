//! What is known of other hosts before the process is confined: which certificates are trusted, and the kernel's routes to them.

use crate::address::Routes;
use crate::certificates::Bounded;
use crate::error::OutgoingError;
use crate::handshake::provider;
use leasehold_lease::{Outgoing as Lease, RegularFile};
use rustls::RootCertStore;
use rustls::client::{ClientConfig, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most bytes of a file of certificates.
const FILE_MOST: u64 = 1 << 20;

/// Sessions of TLS that a tenant keeps.
const SESSIONS: usize = 32;

/// The certificates that leases name, and the host's own.
#[derive(Debug, Clone)]
pub struct Trust {
    provider: Arc<CryptoProvider>,
    /// `None`: the host's.
    verifiers: HashMap<Option<PathBuf>, Arc<Bounded>>,
    routes: Arc<Routes>,
}

impl Trust {
    /// Reads the files that these leases name, and the host's own certificates if one needs them. Opens the socket by which the
    /// kernel says where an address leads.
    ///
    /// # Errors
    /// When a file has no certificates, the host has none, or there is no such socket.
    pub fn load<'a>(leases: impl IntoIterator<Item = &'a Lease>) -> Result<Self, OutgoingError> {
        let routes = Routes::open().map_err(|error| OutgoingError::Routes(error.into()))?;
        let mut trust = Self {
            provider: Arc::new(provider()),
            verifiers: HashMap::new(),
            routes: Arc::new(routes),
        };
        for lease in leases {
            trust.add(lease)?;
        }
        Ok(trust)
    }

    /// Reads the certificates of one more lease, if it needs some that were not read yet.
    ///
    /// # Errors
    /// When its file has no certificates, or the host has none. Then nothing is added.
    pub fn add(&mut self, lease: &Lease) -> Result<(), OutgoingError> {
        if !needs_tls(lease) || self.verifiers.contains_key(&lease.ca) {
            return Ok(());
        }
        let roots = match &lease.ca {
            Some(file) => of_file(file)?,
            None => of_host()?,
        };
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
        let verifier = verifier.build().map_err(|_| OutgoingError::NoRoots)?;
        let verifier = Arc::new(Bounded::new(verifier));
        self.verifiers.insert(lease.ca.clone(), verifier);
        Ok(())
    }

    /// The kernel's routes.
    pub(crate) fn routes(&self) -> Arc<Routes> {
        self.routes.clone()
    }

    /// The configuration of a tenant, with sessions of its own; `None` if no destination is reached over
    /// TLS.
    ///
    /// # Errors
    /// When its certificates were not read.
    pub(crate) fn of(&self, lease: &Lease) -> Result<Option<Arc<ClientConfig>>, OutgoingError> {
        if !needs_tls(lease) {
            return Ok(None);
        }
        let verifier = self.verifiers.get(&lease.ca).cloned().ok_or_else(|| {
            OutgoingError::Unknown(lease.ca.clone().unwrap_or_else(|| "the host's".into()))
        })?;
        let builder = ClientConfig::builder_with_provider(self.provider.clone());
        let mut config = builder
            .with_safe_default_protocol_versions()?
            .dangerous()
            // It is the ordinary one within bounds, of the same roots for all tenants that trust them.
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(Some(Arc::new(config)))
    }
}

fn needs_tls(lease: &Lease) -> bool {
    lease.is_https()
}

fn of_file(file: &Path) -> Result<RootCertStore, OutgoingError> {
    let refused = |reason: String| OutgoingError::Certificates {
        file: file.to_owned(),
        reason,
    };
    let read = RegularFile::open(file).and_then(|opened| opened.read(FILE_MOST));
    let bytes = read.map_err(|error| refused(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| refused(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(refused(
            "found no certificate; allowed: certificates as PEM".to_owned(),
        )),
        false => Ok(roots),
    }
}

fn of_host() -> Result<RootCertStore, OutgoingError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    match roots.is_empty() {
        true => Err(OutgoingError::NoRoots),
        false => Ok(roots),
    }
}
