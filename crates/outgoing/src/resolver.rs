//! Looking up names: in the host's file of names, then of its name servers.
//!
//! The C library would read files and load code for each look-up, which a confined thread may not do.
//! Here both files are read once, before the process is confined, and a look-up is two datagrams.

use crate::dns::{self, Answer, Kind};
use crate::socket::{Socket, Sockets};
use leasehold_exchange::CallError;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// The port of name servers.
const PORT: u16 = 53;

/// How long one server is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the servers are asked.
const ATTEMPTS: usize = 2;

/// The most name servers, as in the C library.
const SERVERS: usize = 3;

/// The most bytes of a datagram, and of an answer over TCP.
const DATAGRAM: usize = 1232;
const STREAM: usize = 16 << 10;

/// The most bytes of each file.
const FILE: usize = 1 << 20;

/// What names stand for.
#[derive(Debug, Clone, Default)]
pub struct Resolver {
    hosts: HashMap<String, Vec<IpAddr>>,
    servers: Vec<SocketAddr>,
}

impl Resolver {
    /// Reads the host's files. One that is not there is empty.
    pub fn of_host() -> Self {
        let read = |path: &str| {
            let mut bytes = std::fs::read(path).unwrap_or_default();
            bytes.truncate(FILE);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Self::of(&read("/etc/hosts"), &read("/etc/resolv.conf"))
    }

    /// The names of a text as `/etc/hosts`, and the servers of one as `/etc/resolv.conf`.
    pub fn of(hosts: &str, configuration: &str) -> Self {
        let mut names: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for line in hosts.lines() {
            let mut words = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace();
            if let Some(Ok(address)) = words.next().map(str::parse) {
                for name in words {
                    names
                        .entry(name.to_ascii_lowercase())
                        .or_default()
                        .push(address);
                }
            }
        }
        let servers = configuration.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let server = words
                .next()
                .filter(|word| *word == "nameserver")
                .and(words.next())?;
            Some(SocketAddr::new(server.parse().ok()?, PORT))
        });
        Self {
            hosts: names,
            servers: servers.take(SERVERS).collect(),
        }
    }

    /// The same names, and these servers.
    #[must_use]
    pub fn with_servers(mut self, servers: &[SocketAddr]) -> Self {
        self.servers = servers.to_vec();
        self
    }

    /// The addresses of a name in lower case, those of IPv4 first; at least one. The servers are asked by sockets of the
    /// tenant's.
    ///
    /// # Errors
    /// When there is none, no server answers, or the tenant has as many local ports as it may.
    pub(crate) async fn look_up(
        &self,
        name: &str,
        sockets: &Sockets,
    ) -> Result<Vec<IpAddr>, CallError> {
        let bare = name.strip_suffix('.').unwrap_or(name);
        if let Some(addresses) = self.hosts.get(bare) {
            return Ok(addresses.clone());
        }
        // RFC 6761: no server is asked for such a name.
        if bare == "localhost" || bare.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let ask = |kind| self.ask(bare, kind, sockets);
        let (v4, v6) = tokio::join!(ask(Kind::V4), ask(Kind::V6));
        let addresses = match (v4, v6) {
            (Ok(v4), Ok(v6)) => [v4, v6].concat(),
            (Ok(addresses), Err(_)) | (Err(_), Ok(addresses)) if !addresses.is_empty() => addresses,
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        match addresses.is_empty() {
            true => Err(CallError::Lookup),
            false => Ok(addresses),
        }
    }

    async fn ask(
        &self,
        name: &str,
        kind: Kind,
        sockets: &Sockets,
    ) -> Result<Vec<IpAddr>, CallError> {
        let mut found = CallError::Lookup;
        for _ in 0..ATTEMPTS {
            for server in &self.servers {
                let question = dns::question(number(), name, kind).ok_or(CallError::Lookup)?;
                let asked = exchange(*server, &question, sockets);
                match timeout(PATIENCE, asked).await {
                    Ok(Ok(Answer::Addresses(addresses))) => return Ok(addresses),
                    Ok(Ok(Answer::NoName)) => return Ok(Vec::new()),
                    Ok(Err(CallError::NoPort)) => return Err(CallError::NoPort),
                    Ok(Ok(Answer::Failed | Answer::Truncated) | Err(_)) | Err(_) => {
                        found = CallError::LookupTimeout;
                    }
                }
            }
        }
        Err(found)
    }
}

/// A number that others do not guess.
fn number() -> u16 {
    let mut bytes = [0; 2];
    let provider = rustls::crypto::ring::default_provider();
    // A generator that fails leaves the port of the socket, which the kernel draws.
    let _ = provider.secure_random.fill(&mut bytes);
    u16::from_be_bytes(bytes)
}

/// Asks a server, over TCP if the answer does not fit a datagram.
///
/// # Errors
/// [`CallError::NoPort`] if the tenant has as many local ports as it may; another one if the server did not answer.
async fn exchange(
    server: SocketAddr,
    question: &[u8],
    sockets: &Sockets,
) -> Result<Answer, CallError> {
    let failed = |_| CallError::LookupTimeout;
    let port = sockets.port_of_look_up(server)?;
    let answer = datagram(server, question).await.map_err(failed)?;
    drop(port);
    match answer {
        Answer::Truncated => {
            let stream = sockets.connect(server, None).await?;
            self::stream(stream, question).await.map_err(failed)
        }
        answer => Ok(answer),
    }
}

/// Asks in a datagram, from a port that the kernel draws, of a server alone.
async fn datagram(server: SocketAddr, question: &[u8]) -> io::Result<Answer> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    connect(&socket, &server)?;
    let socket = UdpSocket::from_std(StdUdpSocket::from(socket))?;
    socket.send(question).await?;
    let mut message = [0; DATAGRAM];
    loop {
        let length = socket.recv(&mut message).await?;
        if let Some(answer) = dns::answer(&message[..length], question) {
            return Ok(answer);
        }
    }
}

async fn stream(mut stream: Socket, question: &[u8]) -> io::Result<Answer> {
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    let framed = [&length.to_be_bytes()[..], question].concat();
    stream.write_all(&framed).await?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let length = usize::from(u16::from_be_bytes(length));
    if length > STREAM {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    dns::answer(&message, question).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::Resolver;
    use crate::ports::{LocalPorts, Ports};
    use crate::socket::Sockets;
    use leasehold_exchange::CallError;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

    fn look_up(resolver: &Resolver, name: &str) -> Result<Vec<IpAddr>, CallError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let sockets = Sockets {
            ports: Ports::new(LocalPorts::default()),
            tenant: "a".into(),
            window: 4 << 10,
        };
        let looking = resolver.look_up(name, &sockets);
        runtime.expect("a runtime").block_on(looking)
    }

    #[test]
    fn the_file_of_names_precedes_the_servers_and_names_of_this_machine_are_not_asked_for() {
        let resolver = Resolver::of("10.0.0.1 a.example A # b\n::1\n# 1.2.3.4 c\n", "");
        let first = Ok(vec![Ipv4Addr::new(10, 0, 0, 1).into()]);
        assert_eq!(look_up(&resolver, "a.example"), first);
        assert_eq!(look_up(&resolver, "a"), first);
        let own = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        assert_eq!(look_up(&resolver, "x.localhost"), Ok(own));
        assert_eq!(look_up(&resolver, "c"), Err(CallError::Lookup));
    }

    #[test]
    fn a_server_is_asked_for_both_kinds_of_addresses() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let resolver =
            Resolver::default().with_servers(&[server.local_addr().expect("an address")]);
        std::thread::spawn(move || {
            let mut message = [0; 512];
            for _ in 0..2 {
                let (length, client) = server.recv_from(&mut message).expect("a question");
                let mut answer = message[..length].to_vec();
                answer[2] = 0x81;
                if answer[length - 3] == 1 {
                    answer[7] = 1;
                    answer.extend([192, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 9, 8, 7, 6]);
                }
                // One that is not the answer changes nothing.
                server.send_to(&answer[..8], client).expect("sent");
                server.send_to(&answer, client).expect("sent");
            }
        });
        let found = look_up(&resolver, "a.example");
        assert_eq!(found, Ok(vec![Ipv4Addr::new(9, 8, 7, 6).into()]));
    }
    #[test]
    fn a_server_that_fails_is_another_matter_than_a_name_that_nobody_has() {
        for (code, error) in [(2, CallError::LookupTimeout), (3, CallError::Lookup)] {
            let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let address = server.local_addr().expect("an address");
            let resolver = Resolver::default().with_servers(&[address]);
            std::thread::spawn(move || {
                let mut message = [0; 512];
                while let Ok((length, client)) = server.recv_from(&mut message) {
                    (message[2], message[3]) = (0x81, code);
                    let _ = server.send_to(&message[..length], client);
                }
            });
            assert_eq!(look_up(&resolver, "a.example"), Err(error), "{code}");
        }
    }
}
