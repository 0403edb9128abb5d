//! `wasi:filesystem` on the cell's own files ([`crate::host::fs`]).
//!
//! Their answers are those of `wasmtime-wasi`, except where a bound requires others: a path has at
//! most 4,095 bytes, a call moves at most 64 KiB, a descriptor beyond the lease's limit is
//! `insufficient-memory`, and a FIFO is opened without waiting for its other end.
//!
//! A descriptor is a number in the execution's [table](crate::host::fs::table), as in preview 1. Streams are in
//! the engine's resource table, and hold no bytes between calls but for what waits
//! ([`pages`](crate::host::fs::pages)).

mod convert;
mod descriptor;
pub(crate) mod directory;
pub(crate) mod files;
mod input;
mod output;

use super::view::{OfGuest, Wasi};
use crate::guest::Guest;
use crate::host::fs::account::Account;
use crate::host::fs::attempt::Try;
use crate::host::fs::descriptor::{Node, Open};
use crate::steps::{mark, step};
use convert::io_code;
use files::{FileSystem, fail};
use leasehold_kernel::Errno;
use std::sync::Arc;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};
use wasmtime_wasi::p2::{FsError, FsResult, IoError};

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
    types::add_to_linker::<Guest, OfGuest>(linker, |guest| Wasi(guest))?;
    preopens::add_to_linker::<Guest, OfGuest>(linker, |guest| Wasi(guest))
}
