//! A program that was loaded for a lease.

use crate::error::Error;
use leasehold_cell::ExportedFunction;
use leasehold_lease::Lease;
use std::path::Path;
use std::sync::Arc;

/// A program with an entry point, for tenants with one lease. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Command(Loaded);

/// A program of which exported functions are called, for tenants with one lease. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Plugin(Loaded);

#[derive(Debug, Clone)]
struct Loaded {
    program: Arc<leasehold_cell::Program>,
    lease: Lease,
    name: Arc<str>,
}

impl Loaded {
    fn new(program: Arc<leasehold_cell::Program>, lease: Lease, path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self {
            program,
            lease,
            name: name.to_string_lossy().into(),
        }
    }
}

impl Command {
    pub(crate) fn new(program: Arc<leasehold_cell::Program>, lease: Lease, path: &Path) -> Self {
        Self(Loaded::new(program, lease, path))
    }

    pub(crate) fn program(&self) -> &Arc<leasehold_cell::Program> {
        &self.0.program
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// The lease of its tenants.
    pub fn lease(&self) -> &Lease {
        &self.0.lease
    }
}

impl Plugin {
    pub(crate) fn new(program: Arc<leasehold_cell::Program>, lease: Lease, path: &Path) -> Self {
        Self(Loaded::new(program, lease, path))
    }

    pub(crate) fn program(&self) -> &Arc<leasehold_cell::Program> {
        &self.0.program
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// The lease of its tenants.
    pub fn lease(&self) -> &Lease {
        &self.0.lease
    }

    /// An exported function, with the types of its parameters and results. Its interface may be left out
    /// (`name` for `ns:package/interface@1.0.0#name`) if only one has a function of this name.
    ///
    /// # Errors
    /// [`Error::Function`].
    pub fn function(&self, name: &str) -> Result<ExportedFunction, Error> {
        Ok(ExportedFunction::find(self.program(), name)?)
    }
}
