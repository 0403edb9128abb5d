//! Where the control socket of a node is.

use crate::exit::Failure;
use crate::output::say;
use leasehold_node::{ControlSocket, SocketError};
use std::path::{Path, PathBuf};

/// The value of `--socket` that says that there is none.
const NONE: &str = "none";

/// Where the socket is if nothing else is said: for this user only.
pub(crate) fn default() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime
        .filter(|path| path.is_absolute())
        .map(|path| path.join("leasehold"));
    let directory = runtime.or_else(leasehold_cell::user_files::state)?;
    Some(directory.join("node.sock"))
}

/// Opens the socket of a node: the one that is `stated`, or else the default, if it can be had.
///
/// # Errors
/// When the one that is stated cannot be had.
pub(crate) fn open(stated: Option<&Path>) -> Result<Option<ControlSocket>, Failure> {
    match stated {
        Some(path) if path.as_os_str() == NONE => Ok(None),
        Some(path) => ControlSocket::open(path)
            .map(Some)
            .map_err(|error| match error {
                SocketError::System { .. } => Failure::Host(anyhow::anyhow!("--socket: {error}")),
                _ => Failure::Configuration(format!("--socket: {error}")),
            }),
        None => Ok(default().and_then(|path| match ControlSocket::open(&path) {
            Ok(socket) => Some(socket),
            Err(error) => {
                say!("leasehold: no control socket: {error} (--socket)");
                None
            }
        })),
    }
}
