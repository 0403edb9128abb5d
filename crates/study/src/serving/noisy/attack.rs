//! What hostile tenants and their clients do, one kind for each way to take more than one's share.

use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::harness::affinity::leave_cells;
use crate::harness::priority::after_everybody;

/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(10);
/// How long a client waits for an answer, or makes its request last.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections that a flood opens at once.
const FLOOD: usize = 32;

/// A kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attack {
    /// Computes without end.
    Spin,
    /// Heads that are as long as they may be, and a guest that makes more fields without end.
    Heads,
    /// A body of a megabyte, a byte at a time.
    SlowBody,
    /// Connections that begin a request, and are closed.
    Connections,
    /// As many objects of the host as there are.
    Objects,
    /// As many open files as there may be.
    Files,
    /// As much memory as there is.
    Memory,
    /// An allocator that does not return to the host call that called it.
    Realloc,
}

impl Attack {
    pub(super) const ALL: [Self; 8] = [
        Self::Spin,
        Self::Heads,
        Self::SlowBody,
        Self::Connections,
        Self::Objects,
        Self::Files,
        Self::Memory,
        Self::Realloc,
    ];

    /// What is asked of the guest `hostile-http`.
    fn path(self) -> &'static str {
        match self {
            Self::Spin => "/spin",
            Self::Heads => "/large",
            Self::SlowBody | Self::Connections => "/count",
            Self::Objects => "/bomb",
            Self::Files => "/files",
            Self::Memory => "/memory",
            Self::Realloc => "/realloc",
        }
    }

    /// Asks again and again from the address `source`, until `over`.
    ///
    /// # Errors
    /// When its thread cannot leave the processors of cells.
    pub(super) fn go_on(self, from: &Client, over: &AtomicBool) -> anyhow::Result<()> {
        leave_cells()?;
        // It stands for another machine, which takes no processor from the servers and from the client whose latency is
        // measured. A host that refuses it shows latencies that are worse.
        after_everybody();
        while !over.load(Ordering::Relaxed) {
            // An error is what an attacker gets.
            let _ = self.once(from, over);
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn once(self, from: &Client, over: &AtomicBool) -> Result<()> {
        if self == Self::Connections {
            let connect = || give_way(from.connect().ok());
            let begun: Vec<_> = (0..FLOOD).filter_map(|_| connect()).collect();
            for mut stream in begun {
                let _ = give_way(stream.write_all(b"GET /"));
                drop(stream);
                give_way(());
            }
            return Ok(());
        }
        let mut stream = give_way(from.connect()?);
        give_way(stream.write_all(self.head(&from.host).as_bytes())?);
        let until = Instant::now() + PATIENCE;
        if self == Self::SlowBody {
            while Instant::now() < until && !over.load(Ordering::Relaxed) {
                stream.write_all(b"x")?;
                thread::sleep(PAUSE);
            }
            return Ok(());
        }
        let mut answer = [0; 4096];
        while give_way(stream.read(&mut answer)?) > 0 {}
        Ok(())
    }

    fn head(self, host: &str) -> String {
        let path = self.path();
        let more = match self {
            Self::Heads => (0..15).fold(String::new(), |head, number| {
                head + &format!("x-{number}: {}\r\n", "v".repeat(1000))
            }),
            Self::SlowBody => "content-length: 1000000\r\n".to_owned(),
            _ => String::new(),
        };
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}\r\n")
    }
}

/// The result of a call, after which a client gives way to whatever waits for its processor: an ordinary thread that was
/// preempted has no processor before others have had theirs, for some milliseconds if these go on.
fn give_way<T>(result: T) -> T {
    thread::yield_now();
    result
}

/// A client of a hostile tenant.
#[derive(Debug, Clone)]
pub(super) struct Client {
    /// Its address, which it does not share with clients of other tenants.
    pub(super) source: Ipv4Addr,
    pub(super) server: SocketAddrV4,
    /// The host that it asks for.
    pub(super) host: String,
}

impl Client {
    fn connect(&self) -> Result<TcpStream> {
        let made = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // The port is found when it connects. Linux would look for it here among all sockets that linger at the address, for
        // some milliseconds in which the processor, which is the servers' as well, is given to nothing else.
        setsockopt(&made, IpBindAddressNoPort, &true)?;
        bind(&made, &SocketAddr::from((self.source, 0)))?;
        connect(&made, &SocketAddr::V4(self.server)).map_err(Error::from)?;
        let stream = TcpStream::from(made);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}
