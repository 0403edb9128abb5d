//! The thread that answers operators on a unix socket.

use crate::api::{Api, HEAD_BYTES, PageListener, Routes, STALL, StallLimit};
use crate::connections::Connections;
use crate::problem::Problem;
use crate::view::ErrorKind;
use axum::Router;
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use leasehold_io_thread::{Begin, Urgency, runtime};
use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// Connections at a time; for more, those without a request give way.
const CONNECTIONS: u32 = 64;
/// How long a head may take.
const HEAD: Duration = Duration::from_secs(10);
/// The most fields of a head.
const FIELDS: usize = 64;
/// When a node has started, as a rule: then its routes are made, so that no operator waits for that.
const SETTLED: Duration = Duration::from_millis(250);
/// How long answers under way may take when the node ends.
const LAST: Duration = Duration::from_millis(500);

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another node answers there.
    #[error("{}: another node answers there; allowed: a path of this node's own", .0.display())]
    Taken(PathBuf),
    /// There is something else.
    #[error("{}: found a file that is no socket; allowed: a path where nothing is", .0.display())]
    NoSocket(PathBuf),
    /// Other users could put a socket of theirs there.
    #[error("{}: other users may write to its directory; allowed: a directory of this user's own", .0.display())]
    Open(PathBuf),
    /// The system refused it.
    #[error("{}: {source}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A unix socket that only this user reaches. Dropping it removes the file.
pub struct ControlSocket {
    path: PathBuf,
    socket: Option<UnixListener>,
    /// The identity of the file: only this one is removed at the end.
    identity: (u64, u64),
}

impl ControlSocket {
    /// Opens a socket, in the place of one that a dead process left. To be called while the process has one
    /// thread: the mask of new files is changed for an instant.
    ///
    /// # Errors
    /// When another node answers there, or the system refuses it.
    pub fn open(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError::System {
            path: path.to_owned(),
            source,
        };
        let absolute = std::path::absolute(path).map_err(failed)?;
        if let Some(directory) = absolute.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
            let status = std::fs::metadata(directory).map_err(failed)?;
            let is_sticky = status.mode() & 0o1000 != 0;
            if status.permissions().mode() & 0o022 != 0 && !is_sticky {
                return Err(SocketError::Open(absolute));
            }
        }
        match std::fs::symlink_metadata(&absolute) {
            Ok(status) if !status.file_type().is_socket() => {
                return Err(SocketError::NoSocket(absolute));
            }
            Ok(_) if UnixStream::connect(&absolute).is_ok() => {
                return Err(SocketError::Taken(absolute));
            }
            Ok(_) => std::fs::remove_file(&absolute).map_err(failed)?,
            Err(_) => {}
        }
        let before = umask(Mode::from_raw_mode(0o177));
        let socket = UnixListener::bind(&absolute);
        umask(before);
        let socket = socket.map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let status = std::fs::symlink_metadata(&absolute).map_err(failed)?;
        Ok(Self {
            identity: (status.dev(), status.ino()),
            socket: Some(socket),
            path: absolute,
        })
    }

    /// Returns the absolute path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let status = std::fs::symlink_metadata(&self.path);
        if status.is_ok_and(|status| (status.dev(), status.ino()) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// How the thread is started.
#[derive(Default)]
pub struct ServerOptions {
    /// The cell's core, which the thread keeps off where it may run on another.
    pub core: Option<usize>,
    /// What the thread does before it answers: confine itself, for instance.
    pub begin: Option<Begin>,
    /// Where operators' browsers reach the same interface, and the page.
    pub page: Option<PageListener>,
}

/// The thread that answers operators. Dropping it ends the thread, and removes the socket.
pub struct Server {
    ends: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    socket: ControlSocket,
}

impl Server {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn start(
        mut socket: ControlSocket,
        api: Api,
        mut options: ServerOptions,
    ) -> io::Result<Self> {
        let listener = socket
            .socket
            .take()
            .ok_or_else(|| io::Error::other("the socket is in use"))?;
        let (ends, ending) = watch::channel(false);
        let (started, starting) = mpsc::channel();
        let page = options.page.take();
        let builder = std::thread::Builder::new().name("leasehold-ctl".to_owned());
        let thread = builder.spawn(move || {
            match runtime(options.core, Urgency::Operators, options.begin) {
                Ok(runtime) => {
                    let _ = started.send(Ok(()));
                    let routes = Routes::new(api);
                    let router = routes.router();
                    let paged = serve_page(page, router.clone(), ending.clone());
                    // It ends with the runtime.
                    runtime.spawn(async move {
                        tokio::time::sleep(SETTLED).await;
                        routes.make();
                    });
                    runtime
                        .block_on(async { tokio::join!(serve(listener, router, ending), paged) });
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        })?;
        starting
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
        Ok(Self {
            ends,
            thread: Some(thread),
            socket,
        })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        self.socket.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves the interface to browsers, if there is a listener for them.
async fn serve_page(page: Option<PageListener>, router: Router, mut ending: watch::Receiver<bool>) {
    let Some(page) = page else { return };
    let ended = async { drop(ending.wait_for(|ends| *ends).await) };
    if let Err(error) = page.serve(router, ended).await {
        tracing::error!(%error, "the page's listener");
    }
}

async fn serve(listener: UnixListener, router: Router, mut ending: watch::Receiver<bool>) {
    let listener = match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the control socket"),
    };
    let connections = Connections::new(CONNECTIONS);
    let own = geteuid().as_raw();
    loop {
        let accepted = tokio::select! {
            _ = ending.wait_for(|ends| *ends) => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let connection = tokio::select! {
            _ = ending.wait_for(|ends| *ends) => break,
            connection = connections.enter() => connection,
        };
        let peer = stream.peer_cred().map(|peer| peer.uid());
        let router = match peer {
            Ok(uid) if may_use(uid, own) => router.clone(),
            _ => refusing(),
        };
        tokio::spawn(async move {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .max_headers(FIELDS)
                .max_buf_size(HEAD_BYTES);
            let stream = StallLimit::new(stream, STALL);
            // The peer has gone, or said nothing that is HTTP.
            let _ = connection.converse(&builder, stream, router, |_| {}).await;
        });
    }
    drop(listener);
    // Answers that are under way are still written.
    let _ = tokio::time::timeout(LAST, connections.gone()).await;
}

/// Whether a peer of this user may use the socket of a process of that one.
const fn may_use(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

/// Returns the router for peers of other users, which refuses everything.
fn refusing() -> Router {
    let refused = || async {
        let message = "only the user that the node runs as, and root, may use its control socket";
        Problem::new(ErrorKind::Unauthorized, message).into_response()
    };
    Router::new().fallback(refused)
}

#[cfg(test)]
mod tests {
    use super::{ControlSocket, SocketError, may_use};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_that_a_dead_process_left_is_replaced_and_a_living_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("below/node.sock");
        let socket = ControlSocket::open(&path).expect("opened");
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(
            ControlSocket::open(&path),
            Err(SocketError::Taken(_))
        ));
        drop(socket);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "left");
        drop(ControlSocket::open(&path).expect("in its place"));
        std::fs::write(&path, "a file").expect("written");
        assert!(matches!(
            ControlSocket::open(&path),
            Err(SocketError::NoSocket(_))
        ));
    }

    #[test]
    fn only_the_same_user_and_root_may_use_it() {
        assert!(may_use(1000, 1000) && may_use(0, 1000));
        assert!(!may_use(1001, 1000) && !may_use(1000, 0));
    }
}
