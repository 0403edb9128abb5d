//! Where browsers reach the page of a node.

use crate::exit::Failure;
use crate::output::say;
use leasehold_lease::ListenAddress;
use leasehold_node::{ListenError, PageListener};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

/// Listens for browsers. The secret that they need is kept in the state directory, so that a page
/// survives a restart of the node.
///
/// # Errors
/// When the address cannot be listened on, or there is no place for the secret.
pub(crate) fn open(address: ListenAddress) -> Result<PageListener, Failure> {
    let state = leasehold_cell::user_files::state().ok_or_else(|| {
        Failure::Missing("--page: no state directory for its secret: HOME is not set".to_owned())
    })?;
    let mut private = DirBuilder::new();
    private.recursive(true).mode(0o700);
    private
        .create(&state)
        .map_err(|error| Failure::Host(anyhow::anyhow!("--page: {}: {error}", state.display())))?;
    let listener = PageListener::open(address.get(), &state.join("page-token"));
    let listener = listener.map_err(|error| match error {
        ListenError::Address { .. } => Failure::Host(anyhow::anyhow!("--page: {error}")),
        error => Failure::Configuration(format!("--page: {error}")),
    })?;
    if !listener.is_local() {
        say!(
            "leasehold: the page is reachable from other machines, without encryption: one that reads \
             its traffic can kill tenants"
        );
    }
    Ok(listener)
}
