//! `wasi:filesystem` on the cell's own files ([`crate::host::fs`]).
//!
//! Their answers are those of `wasmtime-wasi`, except where a bound requires others: a path has at
//! most 4,095 bytes, a call moves at most 64 KiB, a descriptor beyond the lease's limit is
//! `insufficient-memory`, and a FIFO is opened without waiting for its other end.
//!
//! A descriptor is a number in the execution's [table](Table), as in preview 1. Streams are in the engine's
//! resource table, and hold no bytes between calls but for what waits ([`pages`](crate::host::fs::pages)).

mod convert;
mod descriptor;
pub(crate) mod directory;
mod input;
mod output;

use super::Wasi;
use crate::guest::Guest;
use crate::host::fs::account::Account;
use crate::host::fs::attempt::Try;
use crate::host::fs::descriptor::{Descriptor as Entry, Node, Open};
use crate::host::fs::preopen::Preopen;
use crate::host::fs::table::{Files, Table};
use crate::steps::caps::TRANSFER;
use crate::steps::{mark, step};
use convert::{code, io_code};
use leasehold_kernel::{Errno, TenantId};
use std::sync::Arc;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};
use wasmtime_wasi::p2::{FsError, FsResult, IoError};

/// The files of a component.
pub(crate) struct FileSystem {
    table: Table,
    /// The directories of the lease: their numbers in the table, which no guest is given.
    preopens: Vec<u32>,
    /// Most bytes of a transfer.
    most: usize,
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

    fn entry(&self, number: u32) -> wasmtime::Result<&Open> {
        match self.table.get(number) {
            Ok(Entry::Open(open)) => Ok(open),
            _ => Err(wasmtime::Error::msg("unknown descriptor")),
        }
    }

    fn account(&self) -> &Arc<Account> {
        self.table.account()
    }
}

/// A file that a stream holds.
struct Streamed {
    /// There until it is dropped.
    node: Option<Arc<Node>>,
    files: Arc<Files>,
    /// Most bytes of a transfer.
    most: usize,
    writes: bool,
}

impl Streamed {
    fn new(system: &FileSystem, node: &Arc<Node>, writes: bool) -> Self {
        node.hold();
        Self {
            node: Some(node.clone()),
            files: system.table.files().clone(),
            most: system.most,
            writes,
        }
    }

    fn account(&self) -> &Arc<Account> {
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
fn fail(errno: rustix::io::Errno) -> FsError {
    code(errno).into()
}

impl Wasi<'_> {
    fn system(&mut self) -> wasmtime::Result<&mut FileSystem> {
        self.0.files()
    }

    /// The object of a descriptor.
    fn open(&mut self, descriptor: &Resource<Descriptor>) -> FsResult<&Open> {
        let system = self.system().map_err(FsError::trap)?;
        system.entry(descriptor.rep()).map_err(FsError::trap)
    }

    /// The file that a descriptor stands for.
    fn file(&mut self, descriptor: &Resource<Descriptor>) -> FsResult<&Open> {
        let open = self.open(descriptor)?;
        match open.node.is_directory() {
            true => Err(ErrorCode::BadDescriptor.into()),
            false => Ok(open),
        }
    }

    /// The directory that a descriptor stands for, and whether it may be changed.
    fn directory(&mut self, descriptor: &Resource<Descriptor>) -> FsResult<(Arc<Node>, bool)> {
        let open = self.open(descriptor)?;
        match open.node.is_directory() {
            true => Ok((open.node.clone(), open.may_change)),
            false => Err(ErrorCode::NotDirectory.into()),
        }
    }

    /// The same, if it may be changed.
    fn writable_directory(&mut self, descriptor: &Resource<Descriptor>) -> FsResult<Arc<Node>> {
        match self.directory(descriptor)? {
            (node, true) => Ok(node),
            (_, false) => Err(ErrorCode::NotPermitted.into()),
        }
    }

    fn account(&mut self) -> FsResult<Arc<Account>> {
        let system = self.system().map_err(FsError::trap)?;
        Ok(system.account().clone())
    }

    /// Waits for the kernel's answer, if it was not there at once.
    async fn finish<T: Send + 'static>(&mut self, tried: Try<T>) -> FsResult<T> {
        let account = match tried {
            Try::Done(result) => return result.map_err(fail),
            Try::Elsewhere(_) => self.account()?,
        };
        tried.finish(&account).await.map_err(fail)
    }
}

impl preopens::Host for Wasi<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        mark(step!("wasi:filesystem/preopens", "get-directories"));
        let system = self.system()?;
        let mut directories = Vec::with_capacity(system.preopens.len());
        for place in 0..system.preopens.len() {
            let open = system.entry(system.preopens[place])?;
            let name = open.preopen.as_deref().unwrap_or_default().to_owned();
            let again = open.again();
            let number = system.table.put_again(again);
            let number = number.map_err(|_| Errno::Limit);
            let number = number.context("the lease does not pay for a descriptor")?;
            directories.push((Resource::new_own(number), name));
        }
        Ok(directories)
    }
}

impl types::Host for Wasi<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<IoError>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        mark(step!("wasi:filesystem/types", "filesystem-error-code"));
        let error = self.0.charged_table().get(&error)?;
        // Errors of other streams have none.
        Ok(error.downcast_ref::<std::io::Error>().map(io_code))
    }
}

/// Links `wasi:filesystem`.
///
/// # Errors
/// When a function is linked twice, which is a defect.
pub(super) fn link(linker: &mut wasmtime::component::Linker<Guest>) -> wasmtime::Result<()> {
    types::add_to_linker::<Guest, super::OfGuest>(linker, |guest| Wasi(guest))?;
    preopens::add_to_linker::<Guest, super::OfGuest>(linker, |guest| Wasi(guest))
}
