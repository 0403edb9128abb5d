//! The files of a component, and what its streams hold of them.

use super::convert::code;
use crate::host::fs::account::Account;
use crate::host::fs::descriptor::{Descriptor as Entry, Node, Open};
use crate::host::fs::preopen::Preopen;
use crate::host::fs::table::{Files, Table};
use crate::steps::caps::TRANSFER;
use leasehold_kernel::{Errno, TenantId};
use std::sync::Arc;
use wasmtime_wasi::p2::FsError;

/// The files of a component.
pub(crate) struct FileSystem {
    pub(super) table: Table,
    /// The directories of the lease: their numbers in the table, which no guest is given.
    pub(super) preopens: Vec<u32>,
    /// Most bytes of a transfer.
    pub(super) most: usize,
}

impl FileSystem {
    /// The files of an execution that begins with these directories, and one of whose calls may hold
    /// `call_bytes` of the host's memory.
    ///
    /// # Errors
    /// When the lease does not pay for their descriptors.
    pub(crate) fn new(
        (tenant, execution): (TenantId, u64),
        account: Arc<Account>,
        preopens: Vec<Preopen>,
        call_bytes: u64,
    ) -> Result<Self, Errno> {
        let mut table = Table::new(tenant, execution, account);
        let put = preopens
            .into_iter()
            .map(|preopen| preopen.put_into(&mut table));
        let preopens = put.collect::<Result<_, _>>()?;
        Ok(Self {
            table,
            preopens,
            // At most 64 KiB.
            most: call_bytes.clamp(1, TRANSFER.most) as usize,
        })
    }

    pub(super) fn entry(&self, number: u32) -> wasmtime::Result<&Open> {
        match self.table.get(number) {
            Ok(Entry::Open(open)) => Ok(open),
            _ => Err(wasmtime::Error::msg("unknown descriptor")),
        }
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        self.table.account()
    }
}

/// A file that a stream holds.
pub(super) struct Streamed {
    /// There until it is dropped.
    pub(super) node: Option<Arc<Node>>,
    pub(super) files: Arc<Files>,
    /// Most bytes of a transfer.
    pub(super) most: usize,
    pub(super) writes: bool,
}

impl Streamed {
    pub(super) fn new(system: &FileSystem, node: &Arc<Node>, writes: bool) -> Self {
        node.hold();
        Self {
            node: Some(node.clone()),
            files: system.table.files().clone(),
            most: system.most,
            writes,
        }
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        self.files.account()
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            self.files.let_go(node, self.writes);
        }
    }
}

/// An errno of the host's, as the functions of the interface return it.
pub(super) fn fail(errno: rustix::io::Errno) -> FsError {
    code(errno).into()
}
