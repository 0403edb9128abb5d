//! The handshake messages of a host: few at a time, before the library handles any.
//!
//! The library handles a record in one poll. One of 16 KiB has room for 900 session tickets (RFC 8446 §4.6.1), and for each the
//! library derives a key and copies the host's certificates. A change of keys (§4.6.3) derives four, and its record has
//! 27 bytes. So messages are counted where a record is decrypted, and the record that has more than [`MESSAGES`] is refused
//! unread: that ends the connection.
//!
//! TLS 1.2 needs no count. Its ticket is part of the handshake, and the library refuses the second request for another one.

use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{
    CipherSuiteCommon, ConnectionTrafficSecrets, ContentType, Error, OtherError,
    SupportedCipherSuite, Tls13CipherSuite,
};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The most handshake messages between two times that the count begins again. A handshake has five, and the servers of OpenSSL
/// (SSL_CTX_set_num_tickets(3)) and rustls send two tickets after it.
const MESSAGES: u32 = 8;

/// The count begins again after so many bytes of content, the slice of a poll, or after this time.
const CONTENT: usize = 64 << 10;
const TIME: Duration = Duration::from_secs(1);

/// Bytes of a message's type and length.
const HEADER: usize = 4;
/// The type of a change of keys.
const KEY_UPDATE: u8 = 24;

/// Why a record is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Excess {
    #[error(
        "more than {MESSAGES} messages of TLS without content before a second or {CONTENT} bytes of content have passed"
    )]
    Messages,
    #[error("a change of TLS keys before a second or {CONTENT} bytes of content have passed")]
    Keys,
}

impl From<Excess> for Error {
    fn from(excess: Excess) -> Self {
        Self::Other(OtherError(Arc::new(excess)))
    }
}

/// The library's cryptography, with handshake messages counted.
pub(crate) fn provider() -> CryptoProvider {
    /// The library wants suites that live as long as the process.
    static SUITES: LazyLock<Vec<SupportedCipherSuite>> = LazyLock::new(|| {
        let suites = rustls::crypto::ring::default_provider().cipher_suites;
        suites.into_iter().map(counted).collect()
    });
    CryptoProvider {
        cipher_suites: SUITES.clone(),
        ..rustls::crypto::ring::default_provider()
    }
}

fn counted(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(suite) = suite else {
        return suite;
    };
    let common = &suite.common;
    SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: common.suite,
            hash_provider: common.hash_provider,
            confidentiality_limit: common.confidentiality_limit,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: Box::leak(Box::new(Counted(suite.aead_alg))),
        quic: None,
    })))
}

/// A cipher whose decrypted handshake messages are counted.
struct Counted(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Counted {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Decrypter {
            cipher: self.0.decrypter(key, iv),
            messages: Messages::new(Instant::now()),
        })
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

/// What decrypts the records under one key.
struct Decrypter {
    cipher: Box<dyn MessageDecrypter>,
    messages: Messages,
}

impl MessageDecrypter for Decrypter {
    fn decrypt<'a>(
        &mut self,
        record: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let record = self.cipher.decrypt(record, sequence)?;
        match record.typ {
            ContentType::ApplicationData => self.messages.pass(record.payload.len()),
            ContentType::Handshake => self.messages.count(record.payload, Instant::now())?,
            _ => {}
        }
        Ok(record)
    }
}

/// The handshake messages under one key.
#[derive(Debug)]
struct Messages {
    /// Those since the count began.
    counted: u32,
    began: Instant,
    /// Bytes of content since then.
    content: usize,
    /// Whether the count is the key's first. The next key begins with none, so this one is not replaced before.
    is_first: bool,
    /// The header of the message under way, as far as it is known: records may divide it.
    header: [u8; HEADER],
    known: usize,
    /// What is to come of that message behind its header.
    rest: usize,
}

impl Messages {
    const fn new(now: Instant) -> Self {
        Self {
            counted: 0,
            began: now,
            content: 0,
            is_first: true,
            header: [0; HEADER],
            known: 0,
            rest: 0,
        }
    }

    /// Notes content.
    const fn pass(&mut self, bytes: usize) {
        self.content = self.content.saturating_add(bytes);
    }

    /// Counts the messages that begin in a record.
    ///
    /// # Errors
    /// When they are too many.
    fn count(&mut self, mut record: &[u8], now: Instant) -> Result<(), Excess> {
        if self.content >= CONTENT || now.duration_since(self.began) >= TIME {
            (self.counted, self.began, self.content) = (0, now, 0);
            self.is_first = false;
        }
        while !record.is_empty() {
            let skipped = self.rest.min(record.len());
            (self.rest, record) = (self.rest - skipped, &record[skipped..]);
            let read = (HEADER - self.known).min(record.len());
            self.header[self.known..][..read].copy_from_slice(&record[..read]);
            (self.known, record) = (self.known + read, &record[read..]);
            if self.known == HEADER {
                self.begin()?;
            }
        }
        Ok(())
    }

    /// Counts the message whose header is known.
    fn begin(&mut self) -> Result<(), Excess> {
        let [kind, length @ ..] = self.header;
        let [high, middle, low] = length.map(usize::from);
        (self.known, self.rest) = (0, high << 16 | middle << 8 | low);
        self.counted += 1;
        match kind {
            _ if self.counted > MESSAGES => Err(Excess::Messages),
            KEY_UPDATE if self.is_first => Err(Excess::Keys),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTENT, Excess, KEY_UPDATE, MESSAGES, Messages, TIME, provider};
    use rcgen::{CertificateParams, CustomExtension, KeyPair};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
    use rustls::{
        ClientConfig, ClientConnection, Error, OtherError, RootCertStore, ServerConfig,
        ServerConnection,
    };
    use std::io::{self, Write as _};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// The certificate of a host, with much that each ticket is kept with.
    fn certificate() -> (CertificateDer<'static>, KeyPair) {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
        let filler = CustomExtension::from_oid_content(&[1, 3, 6, 1], vec![0; 15 << 10]);
        params.custom_extensions = vec![filler];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.der().clone(), key)
    }

    /// Both sides of a connection to a host that sends so many tickets.
    fn connection(tickets: usize) -> (ClientConnection, ServerConnection) {
        let (certificate, key) = certificate();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("a root");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let host = rustls::crypto::ring::default_provider();
        let mut host = ServerConfig::builder_with_provider(Arc::new(host))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a host");
        host.send_tls13_tickets = tickets;
        let own = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("a.example").expect("a name");
        (
            ClientConnection::new(Arc::new(own), name).expect("a client"),
            ServerConnection::new(Arc::new(host)).expect("a host"),
        )
    }

    /// Gives the client what the host sends, as much at a time as a socket gives, and reads the content. Returns the longest
    /// step.
    fn receive(own: &mut ClientConnection, host: &mut ServerConnection) -> Result<Duration, Error> {
        let mut sent = Vec::new();
        while host.wants_write() {
            host.write_tls(&mut sent).expect("written");
        }
        let mut longest = Duration::ZERO;
        for mut part in sent.chunks(8 << 10) {
            while !part.is_empty() {
                own.read_tls(&mut part).expect("read");
                let began = Instant::now();
                let processed = own.process_new_packets();
                longest = longest.max(began.elapsed());
                processed?;
                let _ = io::copy(&mut own.reader(), &mut io::sink());
            }
        }
        Ok(longest)
    }

    /// Gives the host what the client sends.
    fn send(own: &mut ClientConnection, host: &mut ServerConnection) {
        let mut sent = Vec::new();
        while own.wants_write() {
            own.write_tls(&mut sent).expect("written");
        }
        let mut sent = &sent[..];
        while !sent.is_empty() {
            host.read_tls(&mut sent).expect("read");
            host.process_new_packets().expect("a client");
        }
    }

    /// Shakes hands, up to the host's tickets.
    fn shake(own: &mut ClientConnection, host: &mut ServerConnection) {
        send(own, host);
        receive(own, host).expect("a host");
        send(own, host);
        assert!(!own.is_handshaking() && !host.is_handshaking());
    }

    fn is(error: &Error, excess: Excess) -> bool {
        matches!(error, Error::Other(OtherError(error)) if error.downcast_ref() == Some(&excess))
    }

    #[test]
    fn no_more_session_tickets_are_handled_than_a_few() {
        for (tickets, is_accepted) in [(4, true), (MESSAGES as usize, true), (400, false)] {
            let (mut own, mut host) = connection(tickets);
            shake(&mut own, &mut host);
            let began = Instant::now();
            let received = receive(&mut own, &mut host);
            println!("{tickets} tickets: {:?}, {received:?}", began.elapsed());
            assert!(own.tls13_tickets_received() <= MESSAGES, "{tickets}");
            match received {
                Ok(_) => assert!(is_accepted, "{tickets}"),
                Err(error) => assert!(!is_accepted && is(&error, Excess::Messages), "{error}"),
            }
        }
    }

    #[test]
    fn a_host_changes_its_keys_no_oftener_than_it_sends_content() {
        let (mut own, mut host) = connection(0);
        host.set_buffer_limit(None);
        shake(&mut own, &mut host);
        for _ in 0..3 {
            let content = host.writer().write_all(&[0; CONTENT]);
            content.expect("written");
            host.refresh_traffic_keys().expect("other keys");
            receive(&mut own, &mut host).expect("content");
        }
        // Without a limit, 300 changes are in what a socket gives at once.
        for number in 0..300 {
            if number % 30 == 0 {
                host.writer().write_all(&[0]).expect("written");
            }
            host.refresh_traffic_keys().expect("other keys");
        }
        let began = Instant::now();
        let received = receive(&mut own, &mut host);
        println!("300 changes: {:?}, {received:?}", began.elapsed());
        let error = received.expect_err("too early");
        assert!(is(&error, Excess::Keys), "{error}");
    }

    #[test]
    fn messages_are_counted_however_records_divide_them() {
        let began = Instant::now();
        let message = [&[4, 0, 0, 5][..], &[9; 5]].concat();
        let allowed = message.repeat(MESSAGES as usize);
        for length in 1..=allowed.len() {
            let mut messages = Messages::new(began);
            for record in allowed.chunks(length) {
                assert_eq!(messages.count(record, began), Ok(()), "{length}");
            }
            assert_eq!(messages.count(&message[..3], began), Ok(()));
            let more = messages.count(&message[3..], began);
            assert_eq!(more, Err(Excess::Messages), "{length}");
        }
    }

    #[test]
    fn the_count_begins_again_after_content_or_time() {
        let began = Instant::now();
        let empty = [4, 0, 0, 0].repeat(MESSAGES as usize);
        let keys = [KEY_UPDATE, 0, 0, 1, 0];
        let mut messages = Messages::new(began);
        assert_eq!(messages.count(&keys, began), Err(Excess::Keys));
        let mut messages = Messages::new(began);
        assert_eq!(messages.count(&empty, began), Ok(()));
        messages.pass(CONTENT);
        assert_eq!(messages.count(&empty, began), Ok(()));
        let later = began + TIME;
        assert_eq!(messages.count(&empty[4..], later), Ok(()));
        assert_eq!(messages.count(&keys, later), Ok(()));
        assert_eq!(messages.count(&keys, later), Err(Excess::Messages));
    }
}
