//! Notifies a service manager that the tenants run, and that they are being ended (`sd_notify(3)`).

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The socket of a service manager, if one has started this process and waits for notifications.
#[derive(Debug)]
pub(crate) struct Notify {
    /// A datagram socket, which a confined process may write to.
    socket: Option<File>,
}

impl Notify {
    /// Connects to `$NOTIFY_SOCKET`: before the process is confined. A socket that is not there is no failure: nothing
    /// waits at it.
    pub(crate) fn connect() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                [b'/', ..] => SocketAddr::from_pathname(&name),
                _ => return None,
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            socket.connect_addr(&address.ok()?).ok()?;
            Some(File::from(OwnedFd::from(socket)))
        });
        Self { socket }
    }

    /// All tenants were started.
    pub(crate) fn ready(&self, tenants: usize) {
        self.send(&format!("READY=1\nSTATUS={tenants} tenants run\n"));
    }

    /// Tenants are being killed.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=ending the tenants\n");
    }

    fn send(&self, state: &str) {
        if let Some(mut socket) = self.socket.as_ref() {
            // A manager that has gone needs no state.
            let _ = socket.write(state.as_bytes());
        }
    }
}
