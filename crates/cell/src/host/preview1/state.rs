//! The state of preview 1 for an execution.

use crate::host::fs::account::Account;
use crate::host::fs::descriptor::{Descriptor, Open};
use crate::host::fs::listing::{MOST_BYTES, Window};
use crate::host::fs::preopen::Preopen;
use crate::host::fs::table::Table;
use crate::local;
use crate::meter::Held;
use crate::wasi::stdio::{Author, Input, Output, Sink};
use leasehold_kernel::{Errno, TenantId};
use leasehold_slots::address_range::PAGE;
use std::sync::Arc;
use wasmtime_wasi::p1::types::Errno as GuestErrno;
use wasmtime_wasi::p2::InputStream;

/// Pages of the host's that a window on a directory takes.
const WINDOW_PAGES: u64 = MOST_BYTES.div_ceil(PAGE) as u64;

/// Arguments, variables and standard streams of an execution.
#[derive(Default)]
pub(crate) struct Environment {
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) stdin: Input,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
}

/// The state of preview 1.
pub(crate) struct State {
    tenant: TenantId,
    execution: u64,
    pub(super) table: Table,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) input: Input,
    /// Standard input, once it was read and unless it is being read.
    pub(super) stdin: Option<Box<dyn InputStream>>,
    pub(super) stdout: Sink,
    pub(super) stderr: Sink,
    /// The last window that was read, and its directory.
    window: Option<(u32, Window)>,
    window_is_charged: bool,
}

impl State {
    /// Creates the state of an execution that begins with these directories.
    ///
    /// # Errors
    /// When the lease does not pay for their descriptors.
    pub(crate) fn new(
        (tenant, execution): (TenantId, u64),
        account: Arc<Account>,
        environment: Environment,
        preopens: Vec<Preopen>,
    ) -> Result<Self, Errno> {
        // No module answers requests.
        let (time, author) = (account.output_time().clone(), Author::default());
        let mut table = Table::with_streams(tenant, execution, account)?;
        for preopen in preopens {
            preopen.put_into(&mut table)?;
        }
        Ok(Self {
            tenant,
            execution,
            table,
            args: environment.args,
            env: environment.env,
            stdin: environment.stdin.stream(),
            input: environment.stdin,
            stdout: environment.stdout.sink(&time, &author),
            stderr: environment.stderr.sink(&time, &author),
            window: None,
            window_is_charged: false,
        })
    }

    /// Returns the account of the tenant.
    pub(crate) fn account(&self) -> &Arc<Account> {
        self.table.account()
    }

    /// Returns the object of a descriptor's number, if it is a file or directory.
    pub(super) fn open(&self, fd: u32) -> Result<&Open, GuestErrno> {
        match self.table.get(fd)? {
            Descriptor::Open(open) => Ok(open),
            _ => Err(GuestErrno::Badf),
        }
    }

    /// Returns the file that a number stands for.
    pub(super) fn file(&self, fd: u32) -> Result<&Open, GuestErrno> {
        let open = self.open(fd)?;
        match open.node.is_directory() {
            false => Ok(open),
            true => Err(GuestErrno::Badf),
        }
    }

    /// Returns the file that a number stands for, to be changed.
    pub(super) fn file_mut(&mut self, fd: u32) -> Result<&mut Open, GuestErrno> {
        match self.table.get_mut(fd)? {
            Descriptor::Open(open) if !open.node.is_directory() => Ok(open),
            _ => Err(GuestErrno::Badf),
        }
    }

    /// Returns the file that a number stands for, for calls that have to do with its position.
    pub(super) fn seekable(&mut self, fd: u32) -> Result<&mut Open, GuestErrno> {
        match self.table.get_mut(fd)? {
            Descriptor::Open(open) if !open.node.is_directory() => Ok(open),
            Descriptor::Open(_) => Err(GuestErrno::Badf),
            _ => Err(GuestErrno::Spipe),
        }
    }

    /// Returns the directory that a number stands for.
    pub(super) fn directory(&self, fd: u32) -> Result<&Open, GuestErrno> {
        let open = self.open(fd)?;
        match open.node.is_directory() {
            true => Ok(open),
            false => Err(GuestErrno::Badf),
        }
    }

    /// Returns the window on a directory that was read last.
    pub(super) fn window(&self, fd: u32) -> Option<&Window> {
        let (of, window) = self.window.as_ref()?;
        (*of == fd).then_some(window)
    }

    /// Charges a window on a directory, the first time.
    pub(super) fn charge_window(&mut self) -> Result<(), GuestErrno> {
        if !self.window_is_charged {
            let (tenant, execution) = (self.tenant, self.execution);
            local::with(|local| local.hold(tenant, execution, Held::HostPage, WINDOW_PAGES))
                .map_err(|_| GuestErrno::Nomem)?;
            self.window_is_charged = true;
        }
        Ok(())
    }

    /// Keeps a window that was charged.
    pub(super) fn keep_window(&mut self, fd: u32, window: Window) {
        self.window = Some((fd, window));
    }

    /// Discards the window after descriptor numbers have changed.
    pub(super) fn forget_window(&mut self) {
        self.window = None;
    }
}
