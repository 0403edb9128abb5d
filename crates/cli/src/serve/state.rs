//! The lease file as operators left it before the node was started again.

use crate::exit::Failure;
use crate::leases;
use crate::output::{plain, say};
use crate::rules::check_addresses;
use leasehold_lease::{LeaseFile, TenantSpec};
use leasehold_node::{Changes, Keeper, StateError, StateFile};
use std::collections::BTreeSet;
use std::path::Path;

/// A lease file with the changes that outlived the node.
pub(super) struct State {
    /// The file, with the tenants that result.
    pub(super) file: LeaseFile,
    /// The tenants that the file alone states.
    pub(super) stated: Vec<TenantSpec>,
    pub(super) keeper: Option<Keeper>,
    pub(super) changes: Changes,
}

impl State {
    /// Loads the lease file, opens the state directory, if there is to be one, and makes the changes in it to the file.
    ///
    /// # Errors
    /// When the lease file or the directory cannot be used, or the changes do not fit to the file.
    pub(super) fn load(directory: Option<&Path>, leases: &Path) -> Result<Self, Failure> {
        let whole = leases::load(leases);
        let Some(directory) = directory else {
            let file = whole?;
            return Ok(Self {
                stated: file.tenants.clone(),
                file,
                keeper: None,
                changes: Changes::default(),
            });
        };
        if let Err(missing @ Failure::Missing(_)) = whole {
            return Err(missing);
        }
        let (state, mut changes) =
            StateFile::open(directory, leases).map_err(|error| match error {
                StateError::System { .. } => Failure::Host(anyhow::anyhow!("--state: {error}")),
                _ => Failure::Configuration(format!("--state: {error}")),
            })?;
        let (mut file, left_out) = match whole {
            Ok(file) => (file, Vec::new()),
            Err(failure) => without_replaced(leases, &changes, failure)?,
        };
        let stated = file.tenants.clone();
        let of_file = stated.iter().map(|tenant| tenant.name.clone());
        let of_file: BTreeSet<String> = of_file.chain(left_out).collect();
        let path = state.path();
        for name in changes.forget_unknown(&of_file) {
            say!(
                "leasehold: {}: there is no tenant {name} any more: what operators changed of it is forgotten",
                path.display()
            );
        }
        let applied = changes.apply(&mut file, leases);
        let applied = applied.map_err(|problem| problem.to_string());
        // Those of the lease file alone have been compared.
        let applied = applied.and_then(|()| check_addresses(&file.tenants));
        applied.map_err(|problem| {
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
        Ok(Self {
            file,
            stated,
            keeper: Some(Keeper::new(state, changes.clone(), of_file)),
            changes,
        })
    }
}

/// Loads a lease file that fails as a whole, but for the tables that the changes replace: they count for nothing. Returns the
/// names of their tenants, too.
///
/// # Errors
/// The failure of the whole file, when it is not that of such a table.
fn without_replaced(
    leases: &Path,
    changes: &Changes,
    failure: Failure,
) -> Result<(LeaseFile, Vec<String>), Failure> {
    match LeaseFile::load_without(leases, |name| changes.replaces(name)) {
        Ok((file, left_out)) => {
            say!(
                "leasehold: a reload will fail: {}; the node starts, since operators deleted or replaced a tenant of that",
                plain(&failure.to_string())
            );
            Ok((file, left_out))
        }
        Err(_) => Err(failure),
    }
}
