//! TLS: the certificates of a listener, one for each host.

use crate::error::FrontError;
use leasehold_lease::{Certificate, Listener, RegularFile};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ResolvesServerCertUsingSni, ServerConfig};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The certificates by the host that a client asks for.
#[derive(Debug, Default)]
struct ByHost {
    hosts: HashMap<String, Arc<CertifiedKey>>,
    other: Option<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for ByHost {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // The name that rustls gives is in lower case.
        let named = hello.server_name().and_then(|name| self.hosts.get(name));
        named.or(self.other.as_ref()).cloned()
    }
}

/// The configuration of a listener; `None` for one that speaks plain text.
///
/// # Errors
/// When a file cannot be read, or a certificate fits neither its key nor its host.
pub(crate) fn configuration(listener: &Listener) -> Result<Option<Arc<ServerConfig>>, FrontError> {
    if listener.tls.is_empty() {
        return Ok(None);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut certificates = ByHost::default();
    for certificate in &listener.tls {
        let key = certified(listener, certificate, &provider)?;
        match &certificate.host {
            Some(host) => {
                check_host(listener, certificate, host.as_str(), &key)?;
                certificates.hosts.insert(host.to_string(), Arc::new(key));
            }
            None => certificates.other = Some(Arc::new(key)),
        }
    }
    let versions =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    // The provider has both versions.
    let versions = versions.map_err(|error| FrontError::Thread(std::io::Error::other(error)))?;
    let mut config = versions
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// Reads the certificates of a listener.
///
/// # Errors
/// When a file cannot be read, or a certificate fits neither its key nor its host.
pub fn check_certificates(listener: &Listener) -> Result<(), FrontError> {
    configuration(listener).map(drop)
}

fn certified(
    listener: &Listener,
    files: &Certificate,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, FrontError> {
    let pem = |file: &Path, found: String, allowed| FrontError::Pem {
        listener: listener.name.clone(),
        file: file.to_owned(),
        found,
        allowed,
    };
    const CERTIFICATES: &str = "certificates as PEM, that of the host first";
    const KEY: &str = "a private key as PEM";
    let text = read(listener, &files.certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| pem(&files.certificate, error.to_string(), CERTIFICATES))?;
    if chain.is_empty() {
        return Err(pem(
            &files.certificate,
            "no certificate".to_owned(),
            CERTIFICATES,
        ));
    }
    let text = read(listener, &files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let found = match error {
            rustls::pki_types::pem::Error::NoItemsFound => "no private key".to_owned(),
            other => other.to_string(),
        };
        pem(&files.key, found, KEY)
    })?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => FrontError::Mismatch {
            listener: listener.name.clone(),
            certificate: files.certificate.clone(),
            key: files.key.clone(),
        },
        rustls::Error::InvalidCertificate(_) => {
            pem(&files.certificate, error.to_string(), CERTIFICATES)
        }
        other => pem(&files.key, other.to_string(), KEY),
    })
}

fn check_host(
    listener: &Listener,
    files: &Certificate,
    host: &str,
    key: &CertifiedKey,
) -> Result<(), FrontError> {
    let checked = ResolvesServerCertUsingSni::new().add(host, key.clone());
    checked.map_err(|error| FrontError::Host {
        listener: listener.name.clone(),
        certificate: files.certificate.clone(),
        host: host.to_owned(),
        reason: error.to_string(),
    })
}

/// The most bytes of a file with certificates or a key.
const FILE_MOST: u64 = 1024 * 1024;

fn read(listener: &Listener, file: &Path) -> Result<Vec<u8>, FrontError> {
    let read = RegularFile::open(file).and_then(|opened| opened.read(FILE_MOST));
    read.map_err(|error| FrontError::Unreadable {
        listener: listener.name.clone(),
        file: file.to_owned(),
        source: error.into(),
    })
}
