//! What operators changed before the node was started again.

use crate::exit::Failure;
use crate::output::say;
use leasehold_lease::LeaseFile;
use leasehold_node::{Changes, Keeper, StateError, StateFile};
use std::path::Path;

/// Opens the state directory, if there is to be one, and makes the changes in it to the lease file.
///
/// # Errors
/// When the directory cannot be used, or what is in it does not fit to the lease file.
pub(super) fn open(
    directory: Option<&Path>,
    leases: &Path,
    file: &mut LeaseFile,
) -> Result<(Option<Keeper>, Changes), Failure> {
    let Some(directory) = directory else {
        return Ok((None, Changes::default()));
    };
    let (state, mut changes) = StateFile::open(directory, leases).map_err(|error| match error {
        StateError::System { .. } => Failure::Host(anyhow::anyhow!("--state: {error}")),
        _ => Failure::Configuration(format!("--state: {error}")),
    })?;
    let of_file = file.tenants.iter().map(|tenant| tenant.name.clone());
    let of_file = of_file.collect();
    let path = state.path();
    for name in changes.forget_unknown(file) {
        say!(
            "leasehold: {}: there is no tenant {name} any more: what operators changed of it is forgotten",
            path.display()
        );
    }
    changes.apply(file, leases).map_err(|problem| {
        Failure::Configuration(format!(
            "--state: {}: {problem}. Move the file away to start with what the lease file states",
            path.display()
        ))
    })?;
    if !changes.is_empty() {
        say!(
            "leasehold: {} tenants are as operators left them ({})",
            changes.len(),
            path.display()
        );
    }
    Ok((Some(Keeper::new(state, changes.clone(), of_file)), changes))
}
