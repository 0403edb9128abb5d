//! The certificates that a host shows: few, and few ways to connect them, before any is verified.
//!
//! A path from a host's certificate to a root is searched among what the host sends. The library searches for up to 200,000
//! steps and verifies up to 100 signatures, all in one poll of the thread. Certificates that fit each other and reach no root
//! take all of that. So the names of issuers and subjects are followed here first, and a chain that could take more steps than
//! [`STEPS`] is refused.
//!
//! The worst chain has `STEPS + 1` certificates whose issuer has the name of a root, and each has a wrong signature: seven
//! signatures, where the longest chain that is accepted has five. One of P-384, the slowest, takes up to 1 ms. A chain takes more
//! only if authorities that the tenant trusts have signed parts of it: then each step repeats the signatures between it and its
//! root. Nor are names compared with the constraints of an authority before its signature is verified.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use std::sync::Arc;

/// The most certificates beside a host's own: public authorities have one or two below a root, and a root of theirs by
/// another one.
const INTERMEDIATES: usize = 4;

/// The most bytes of all certificates of a host.
const BYTES: usize = 16 << 10;

/// The most steps of the search, from a certificate to one that may be its issuer's. A chain without branches has as many as it
/// has certificates; those with a root's certificate by itself and by another root, and with two twice, have as many as
/// this.
const STEPS: usize = 6;

/// Why certificates are not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Excess {
    #[error("{0} intermediate certificates; allowed: at most {INTERMEDIATES}")]
    Intermediates(usize),
    #[error("{0} bytes of certificates; allowed: at most {BYTES}")]
    Bytes(usize),
    #[error("more ways to connect the certificates than may be tried ({STEPS} steps)")]
    Steps,
}

impl From<Excess> for Error {
    fn from(excess: Excess) -> Self {
        CertificateError::Other(OtherError(Arc::new(excess))).into()
    }
}

/// Verifies the certificates of hosts as the library does, if they are few.
#[derive(Debug)]
pub(crate) struct Bounded(Arc<WebPkiServerVerifier>);

impl Bounded {
    pub(crate) const fn new(verifier: Arc<WebPkiServerVerifier>) -> Self {
        Self(verifier)
    }
}

impl ServerCertVerifier for Bounded {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        bound(end, intermediates)?;
        self.0
            .verify_server_cert(end, intermediates, name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Looks at the number of certificates, their bytes, and the steps among them.
///
/// # Errors
/// When they are more than may be, or one is no certificate.
fn bound(end: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
    if intermediates.len() > INTERMEDIATES {
        return Err(Excess::Intermediates(intermediates.len()).into());
    }
    let bytes = end.len() + intermediates.iter().map(|one| one.len()).sum::<usize>();
    if bytes > BYTES {
        return Err(Excess::Bytes(bytes).into());
    }
    let bad = Error::InvalidCertificate(CertificateError::BadEncoding);
    let end = Names::of(end).ok_or_else(|| bad.clone())?;
    let names: Option<Vec<_>> = intermediates.iter().map(|one| Names::of(one)).collect();
    let names = names.ok_or(bad)?;
    steps(end.issuer, &names, 0, STEPS).ok_or(Excess::Steps)?;
    Ok(())
}

/// Takes the steps of all paths that begin at a certificate of this issuer and have none of `visited`, a set of bits, out of
/// those that are `left`; `None` when there are not enough. The library takes no others: it leaves out those of the same name
/// and key as one of the path, here only the same one is.
fn steps(issuer: &[u8], all: &[Names<'_>], visited: u8, mut left: usize) -> Option<usize> {
    for (number, next) in all.iter().enumerate() {
        let bit = 1 << number;
        if visited & bit == 0 && next.subject == issuer {
            left = steps(next.issuer, all, visited | bit, left.checked_sub(1)?)?;
        }
    }
    Some(left)
}

// One bit for each.
const _: () = assert!(INTERMEDIATES <= u8::BITS as usize);

/// The names of a certificate as they are encoded: of the authority that has signed it, and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Names<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
}

impl<'a> Names<'a> {
    /// Reads those of a certificate (RFC 5280 §4.1); `None` if it is none.
    fn of(certificate: &'a [u8]) -> Option<Self> {
        /// The tag of the version, which the first one does not state.
        const VERSION: u8 = 0xa0;
        let (_, mut rest) = element(&mut &*certificate)?;
        let (_, mut signed) = element(&mut rest)?;
        let (first, _) = element(&mut signed)?;
        if first == VERSION {
            // The serial number.
            element(&mut signed)?;
        }
        // The algorithm.
        element(&mut signed)?;
        let (_, issuer) = element(&mut signed)?;
        // The validity.
        element(&mut signed)?;
        let (_, subject) = element(&mut signed)?;
        Some(Self { issuer, subject })
    }
}

/// Takes an element of DER off the front: its tag, and what it has.
fn element<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let tag = *rest.split_off_first()?;
    let length = match *rest.split_off_first()? {
        short @ 0..=0x7f => usize::from(short),
        0x81 => usize::from(*rest.split_off_first()?),
        0x82 => usize::from(u16::from_be_bytes(*rest.split_off(..2)?.as_array()?)),
        // None of a certificate that is read here is so long.
        _ => return None,
    };
    Some((tag, rest.split_off(..length)?))
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Bounded, Excess, INTERMEDIATES, Names, STEPS, bound};
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
        GeneralSubtree, IsCa, Issuer, KeyPair, NameConstraints, PKCS_ECDSA_P256_SHA256,
        PKCS_ECDSA_P384_SHA384, SignatureAlgorithm,
    };
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{CertificateError, Error, RootCertStore};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    type Der = CertificateDer<'static>;

    const FAST: &SignatureAlgorithm = &PKCS_ECDSA_P256_SHA256;
    /// The slowest signatures of those that roots have.
    const SLOW: &SignatureAlgorithm = &PKCS_ECDSA_P384_SHA384;

    /// A root by itself, and by another one.
    const CROSSED: [(&str, &str); 4] = [("1", "2"), ("2", "2"), ("2", "3"), ("3", "3")];

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn key(algorithm: &'static SignatureAlgorithm) -> KeyPair {
        KeyPair::generate_for(algorithm).expect("a key")
    }

    /// A certificate that says that it is of this issuer, signed by a key of its own.
    fn forged(params: &CertificateParams, issuer: &str, by: &'static SignatureAlgorithm) -> Der {
        let issuer = Issuer::new(self::params(issuer), key(by));
        let made = params.signed_by(&key(FAST), &issuer);
        made.expect("signed").der().clone()
    }

    fn chain(names: &[(&str, &str)], by: &'static SignatureAlgorithm) -> Vec<Der> {
        let one = |(name, issuer): &(&str, &str)| forged(&params(name), issuer, by);
        names.iter().map(one).collect()
    }

    /// The host's own certificate.
    fn end(issuer: &str, by: &'static SignatureAlgorithm) -> Der {
        let params = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
        forged(&params, issuer, by)
    }

    /// A verifier that trusts roots of these names.
    fn verifier(roots: &[&str]) -> Bounded {
        let root = |name: &&str| params(name).self_signed(&key(SLOW)).expect("a root");
        trusting(roots.iter().map(root).map(|root| root.der().clone()))
    }

    fn trusting(roots: impl IntoIterator<Item = Der>) -> Bounded {
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root).expect("a root");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider);
        Bounded::new(verifier.build().expect("a verifier"))
    }

    fn verify(verifier: &Bounded, end: &Der, intermediates: &[Der]) -> Error {
        let name = ServerName::try_from("a.example").expect("a name");
        let now = UnixTime::now();
        let verified = verifier.verify_server_cert(end, intermediates, &name, &[], now);
        verified.map(drop).expect_err("no chain to a root")
    }

    fn excess(end: &Der, intermediates: &[Der]) -> Option<Excess> {
        match bound(end, intermediates).err()? {
            Error::InvalidCertificate(CertificateError::Other(other)) => {
                other.0.downcast_ref().copied()
            }
            error => panic!("{error}"),
        }
    }

    #[test]
    fn the_names_of_a_certificate_are_those_that_the_library_reads() {
        let root = params("root").self_signed(&key(FAST)).expect("a root");
        let root = root.der();
        let mut store = RootCertStore::empty();
        store.add(root.clone()).expect("a root");
        let names = Names::of(root).expect("a certificate");
        assert_eq!(names.subject, store.roots[0].subject.as_ref());
        assert_eq!(names.issuer, names.subject);
        let other = forged(&params("root"), "other", FAST);
        let other = Names::of(&other).expect("a certificate");
        assert_eq!(other.subject, names.subject);
        assert_ne!(other.issuer, names.issuer);
        // Whatever bytes come, they are read within their bounds.
        for length in 0..root.len() {
            assert_eq!(Names::of(&root[..length]), None, "{length} bytes");
            for byte in [0, 0x80, 0x82, 0xff] {
                let mut bytes = root.to_vec();
                bytes[length] = byte;
                let _ = Names::of(&bytes);
            }
        }
    }

    #[test]
    fn certificates_are_refused_by_number_by_bytes_and_by_the_ways_to_connect_them() {
        let end = end("1", FAST);
        let line = ["1", "2", "3", "4", "5"];
        let links: Vec<_> = line.iter().zip(&line[1..]).collect();
        let links: Vec<_> = links.into_iter().map(|(a, b)| (*a, *b)).collect();
        let line = chain(&links, FAST);
        assert_eq!(line.len(), INTERMEDIATES);
        assert_eq!(excess(&end, &line), None);
        let more = [&line[..], &line[..1]].concat();
        assert_eq!(excess(&end, &more), Some(Excess::Intermediates(5)));
        // The same ones twice.
        assert_eq!(excess(&end, &[&line[..2], &line[..2]].concat()), None);
        // As many steps as there may be.
        assert_eq!(excess(&end, &chain(&CROSSED, FAST)), None);
        // Three that are issuers of each other have 15 steps.
        let knot = chain(&[("1", "1"); 3], FAST);
        assert_eq!(excess(&end, &knot), Some(Excess::Steps));
        let layers = chain(&[("1", "2"), ("1", "2"), ("2", "1"), ("2", "1")], FAST);
        assert_eq!(excess(&end, &layers), Some(Excess::Steps));
        let mut large = params("1");
        let filler = CustomExtension::from_oid_content(&[1, 3, 6, 1], vec![0; BYTES]);
        large.custom_extensions = vec![filler];
        let large = [forged(&large, "2", FAST)];
        assert!(matches!(excess(&end, &large), Some(Excess::Bytes(bytes)) if bytes > BYTES));
        let none = [Der::from(vec![0x30, 0x82])];
        let bad = Error::InvalidCertificate(CertificateError::BadEncoding);
        assert_eq!(bound(&end, &none), Err(bad));
    }

    /// The longest that one of these takes, of the shortest of some trials each.
    fn longest(cases: &[(&str, Der, Vec<Der>)], verifier: &Bounded) -> Duration {
        let mut longest = Duration::ZERO;
        for (what, end, intermediates) in cases {
            let trial = |_| {
                let began = Instant::now();
                let error = verify(verifier, end, intermediates);
                (began.elapsed(), error.to_string())
            };
            let (shortest, error) = (0..20).map(trial).min().expect("some");
            println!("{what}: {shortest:?} ({error})");
            longest = longest.max(shortest);
        }
        longest
    }

    #[test]
    fn no_chain_takes_longer_than_a_few_signatures() {
        let roots = ["1", "2", "3", "4", "5"];
        let verifier = verifier(&roots);
        let line: Vec<_> = roots
            .iter()
            .zip(&roots[1..])
            .map(|(a, b)| (*a, *b))
            .collect();
        // Extensions that are unknown and not critical, as many as there is room for.
        let padded = |(name, issuer): &(&str, &str)| {
            let mut params = params(name);
            let extension = CustomExtension::from_oid_content(&[1, 3, 6, 1], Vec::new());
            params.custom_extensions = vec![extension; BYTES / (INTERMEDIATES + 1) / 12];
            forged(&params, issuer, FAST)
        };
        let twos = [("x", "y"), ("x", "y"), ("y", "z"), ("y", "z")];
        let cases = [
            ("one wrong signature", end("1", SLOW), Vec::new()),
            (
                "each names a root as its issuer",
                end("1", SLOW),
                chain(&line, SLOW),
            ),
            (
                "each of the most steps leads to one that names a root as its issuer",
                end("1", SLOW),
                chain(&CROSSED, SLOW),
            ),
            (
                "two layers of two that reach no root",
                end("x", SLOW),
                chain(&twos, SLOW),
            ),
            (
                "full of extensions",
                end("1", FAST),
                line.iter().map(padded).collect(),
            ),
        ];
        let one = longest(&cases[..1], &verifier);
        let all = longest(&cases[1..], &verifier);
        // Where an authority that is trusted plays along, its constraints are compared with each name.
        let trusted = CertifiedIssuer::self_signed(params("root"), key(SLOW)).expect("a root");
        let mut below = params("below");
        below.name_constraints = Some(NameConstraints {
            permitted_subtrees: Vec::new(),
            excluded_subtrees: vec![GeneralSubtree::DnsName("b".to_owned()); 700],
        });
        let below = CertifiedIssuer::signed_by(below, key(SLOW), &trusted).expect("signed");
        let names = CertificateParams::new(vec!["a".to_owned(); 700]).expect("names");
        let many = names.signed_by(&key(FAST), &below).expect("signed");
        let constrained = [(
            "names and constraints without end, of an authority that is trusted",
            many.der().clone(),
            vec![below.der().clone()],
        )];
        longest(&constrained, &trusting([trusted.der().clone()]));
        // The thread of the tests is not alone.
        assert!(
            all < one * 3 * (STEPS as u32 + 1),
            "{all:?}, and {one:?} for one"
        );
    }
}
