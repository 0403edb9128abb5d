//! `[listener.NAME]`: an address at which clients reach tenants.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::addresses::{Addresses, Families, ListenAddress};
use crate::authority::Host;
use crate::error::LeaseError;
use crate::http::HOST_ALLOWED;
use crate::nanoseconds::Nanoseconds;
use crate::node::Node;
use crate::tenant::TenantSpec;

const KEYS: &str = "address, tls, connections, per_source, header_timeout, idle_timeout";
const TLS_KEYS: &str = "host, certificate, key";
const NAME: &str = "1 to 63 of A-Z a-z 0-9 - _";
const ADDRESS: &str = "an address and a port, such as \"127.0.0.1:8080\" or \"[::]:443\"";
const ANOTHER: &str = "an address that no other listener has, and no tenant in `outgoing.listen`";
const TLS: &str = "a table { certificate, key }, or an array of tables { host, certificate, key }";
const PATH: &str = "a path, not empty, without NUL";
const COUNT: &str = "a whole number from 1 to 100000";
const TIMEOUT: &str = "a time from 1ms to 3600s";

/// An address at which clients reach tenants: one `[listener.NAME]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The name: 1 to 63 of `A-Z a-z 0-9 - _`, unique in its file.
    pub name: String,
    /// Where it listens: a [`ListenAddress`] of the file. Port 0 lets the system choose one.
    pub address: SocketAddr,
    /// The certificates that it shows; with none, it speaks plain text.
    pub tls: Vec<Certificate>,
    /// The most connections at a time, 1 to 100,000.
    pub connections: u32,
    /// The most connections of one source address at a time, 1 to 100,000.
    pub per_source: u32,
    /// How long a client may take for the head of a request, and for a TLS handshake.
    pub header_timeout: Nanoseconds,
    /// How long a connection may pass no byte, and how long it may be open without a request.
    pub idle_timeout: Nanoseconds,
}

/// A certificate and its key, both as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The host that it is shown for; `None`: where no other one is.
    pub host: Option<Host>,
    /// The file of the certificate and those that vouch for it. Relative paths have been resolved
    /// against the directory of the lease file.
    pub certificate: PathBuf,
    /// The file of its private key.
    pub key: PathBuf,
}

impl Listener {
    const COUNTS: RangeInclusive<u64> = 1..=100_000;
    const CONNECTIONS: u32 = 1024;
    const PER_SOURCE: u32 = 128;
    const HEADER_TIMEOUT: Nanoseconds = Nanoseconds::new(10_000_000_000).expect("in range");
    const IDLE_TIMEOUT: Nanoseconds = Nanoseconds::new(60_000_000_000).expect("in range");

    /// `taken` has the addresses that the tables before have.
    pub(crate) fn parse(
        node: &Node<'_>,
        base: &Path,
        taken: &mut Addresses,
    ) -> Result<Self, LeaseError> {
        let name = node.name();
        if !TenantSpec::is_name(name) {
            return Err(node.misnamed(NAME));
        }
        let mut address = None;
        let mut listener = Self {
            name: name.to_owned(),
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
            tls: Vec::new(),
            connections: Self::CONNECTIONS,
            per_source: Self::PER_SOURCE,
            header_timeout: Self::HEADER_TIMEOUT,
            idle_timeout: Self::IDLE_TIMEOUT,
        };
        // The range is of 32 bits.
        let count = |entry: &Node<'_>| Ok(entry.integer(Self::COUNTS, COUNT)? as u32);
        for entry in node.entries()? {
            match entry.name() {
                "address" => {
                    let stated = ListenAddress::parse(&entry, ADDRESS)?;
                    if !taken.take(stated, Families::Both) {
                        return Err(entry.refused(ANOTHER));
                    }
                    address = Some(stated.get());
                }
                "tls" => listener.tls = parse_tls(&entry, base)?,
                "connections" => listener.connections = count(&entry)?,
                "per_source" => listener.per_source = count(&entry)?,
                "header_timeout" => listener.header_timeout = parse_timeout(&entry)?,
                "idle_timeout" => listener.idle_timeout = parse_timeout(&entry)?,
                _ => return Err(entry.unknown(KEYS)),
            }
        }
        listener.address = address.ok_or_else(|| node.missing("address", ADDRESS))?;
        Ok(listener)
    }
}

/// A time that is long enough for a client to keep.
pub(crate) fn parse_timeout(node: &Node<'_>) -> Result<Nanoseconds, LeaseError> {
    let time: Nanoseconds = node.quantity_of(TIMEOUT)?;
    match time.get() {
        1_000_000.. => Ok(time),
        _ => Err(node.refused(TIMEOUT)),
    }
}

fn parse_tls(node: &Node<'_>, base: &Path) -> Result<Vec<Certificate>, LeaseError> {
    if node.is_table() {
        return Ok(vec![parse_certificate(node, base)?]);
    }
    let mut hosts = HashSet::new();
    let mut certificates = Vec::new();
    for element in node.elements(TLS)? {
        let certificate = parse_certificate(&element, base)?;
        if !hosts.insert(certificate.host.clone()) {
            let found = match &certificate.host {
                Some(host) => format!("a second certificate for {host}"),
                None => "a second certificate without a host".to_owned(),
            };
            return Err(element.refused_as(found, "one certificate for each host, and one without"));
        }
        certificates.push(certificate);
    }
    match certificates.is_empty() {
        true => Err(node.refused(TLS)),
        false => Ok(certificates),
    }
}

fn parse_certificate(node: &Node<'_>, base: &Path) -> Result<Certificate, LeaseError> {
    let is_path = |text: &str| !text.is_empty() && !text.contains('\0');
    let (mut host, mut certificate, mut key) = (None, None, None);
    for entry in node.entries()? {
        match entry.name() {
            "host" => host = Some(entry.keyword(HOST_ALLOWED, Host::parse)?),
            "certificate" => certificate = Some(base.join(entry.string(PATH, is_path)?)),
            "key" => key = Some(base.join(entry.string(PATH, is_path)?)),
            _ => return Err(entry.unknown(TLS_KEYS)),
        }
    }
    Ok(Certificate {
        host,
        certificate: certificate.ok_or_else(|| node.missing("certificate", PATH))?,
        key: key.ok_or_else(|| node.missing("key", PATH))?,
    })
}
