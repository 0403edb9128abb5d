//! The host: the tenants of one core.

use crate::costs::Costs;
use crate::error::Error;
use crate::instance::Instance;
use crate::program::{Command, Plugin};
use crate::start::Start;
use crate::tenant::Tenant;
use leasehold_cell::{Cell, CellConfig, StartRequest, WhenRealtime, user_code_cache};
use leasehold_lease::Lease;
use std::path::Path;

/// A thread that runs tenants, with everything that it needs. Dropping it ends them all.
#[allow(missing_debug_implementations)]
pub struct Host {
    cell: Cell,
}

/// How a [`Host`] is set up. Each setting has a default.
#[derive(Debug, Clone)]
#[must_use]
pub struct HostOptions {
    config: CellConfig,
}

impl HostOptions {
    /// A host that charges these costs.
    pub fn new(costs: Costs) -> Self {
        let mut config = CellConfig::new(costs.into_profile());
        config.realtime = WhenRealtime::ForKills;
        Self { config }
    }

    /// Pins the thread to a core. By default the system chooses the core.
    pub fn on_core(mut self, core: usize) -> Self {
        self.config.cpu = Some(core);
        self
    }

    /// Asks for real-time priority all the time, without which other programs of this machine delay the tenants. By
    /// default it is asked for kills alone. It takes a privilege; without it, the host runs all the same.
    pub fn realtime(mut self) -> Self {
        self.config.realtime = WhenRealtime::Always;
        self
    }

    /// Keeps compiled programs in this user's directory between runs. By default every program is compiled.
    pub fn keep_compiled(mut self) -> Self {
        self.config.code_cache = user_code_cache();
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn start(self) -> Result<Host, Error> {
        let cell = Cell::start(self.config).map_err(|error| Error::Host(error.into()))?;
        Ok(Host { cell })
    }
}

impl Host {
    /// A host that charges these costs, otherwise set up as by default.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn new(costs: Costs) -> Result<Self, Error> {
        HostOptions::new(costs).start()
    }

    /// Reads, checks and compiles a program with an entry point: a module or component, or the text of either. On the
    /// calling thread.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn load(&self, path: &Path, lease: &Lease) -> Result<Command, Error> {
        let program = self.cell.load_for(path, lease)?;
        Ok(Command::new(program, *lease, path))
    }

    /// As [`Host::load`], from memory.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn compile(&self, bytes: &[u8], lease: &Lease) -> Result<Command, Error> {
        let program = self.cell.compile_for(bytes, lease)?;
        Ok(Command::new(program, *lease, Path::new("program")))
    }

    /// Reads, checks and compiles a program of which exported functions are called: a module or component, or the text
    /// of either. On the calling thread.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn load_plugin(&self, path: &Path, lease: &Lease) -> Result<Plugin, Error> {
        let program = self.cell.load_exports(path, lease)?;
        Ok(Plugin::new(program, *lease, path))
    }

    /// As [`Host::load_plugin`], from memory.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn compile_plugin(&self, bytes: &[u8], lease: &Lease) -> Result<Plugin, Error> {
        let program = self.cell.compile_exports(bytes, lease)?;
        Ok(Plugin::new(program, *lease, Path::new("plugin")))
    }

    /// Starts a tenant that runs a program from its entry point.
    ///
    /// # Errors
    /// [`Error::Start`].
    pub fn run(&self, command: &Command, start: Start) -> Result<Tenant, Error> {
        let (surroundings, captured) = start.surroundings(command.name());
        let handle = self.cell.start_tenant(StartRequest {
            program: command.program().clone(),
            lease: *command.lease(),
            surroundings,
        })?;
        Ok(Tenant::new(handle, captured))
    }

    /// Starts a tenant that answers calls of a program's exported functions.
    ///
    /// # Errors
    /// [`Error::Start`].
    pub fn plug_in(&self, plugin: &Plugin, start: Start) -> Result<Instance, Error> {
        let (surroundings, captured) = start.surroundings(plugin.name());
        let handle = self.cell.start_tenant(StartRequest {
            program: plugin.program().clone(),
            lease: *plugin.lease(),
            surroundings,
        })?;
        Ok(Instance::new(
            plugin.program().clone(),
            Tenant::new(handle, captured),
        ))
    }

    /// The underlying cell, for features without an interface here: reports of host steps, channels
    /// between tenants, shared memory.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }
}
