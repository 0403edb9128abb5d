//! The host's side of one running program: the data of its store.

use crate::calls::lift_bytes::LiftBytes;
use crate::host::answer::{Answer, Fail};
use crate::host::preview1::state::State;
use crate::limiter::Limiter;
use crate::local;
use crate::memory::DataSet;
use crate::steps::Cap;
use crate::wasi::filesystem::files::FileSystem;
use crate::wasi::http::current::Http;
use crate::wasi::imports::Imports;
use crate::wasi::outgoing::Calls;
use crate::wasi::table::TableCharge;
use crate::wasi::watched::Watched;
use leasehold_kernel::{Errno, TenantId};
use leasehold_reclaim::GroupId;
use wasmtime::error::Context as _;
use wasmtime::{AsContextMut, Caller, Extern, Memory};
use wasmtime_wasi::ResourceTable;
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::p1::WasiP1Ctx;

/// The data of a store. Nothing in it grows with the guest's actions, except what its lease is
/// charged for.
pub(crate) struct Guest {
    /// The tenant that is charged.
    pub(crate) tenant: TenantId,
    /// The kernel's number of this execution.
    pub(crate) execution: u64,
    /// Bytes of the host's memory that one of its calls may hold.
    pub(crate) call_bytes: u64,
    /// The data sets that it can map.
    data: Vec<DataSet>,
    pub(crate) limiter: Limiter,
    /// How many bytes may be lifted for it, if its exported functions are called.
    pub(crate) lifts: Option<LiftBytes>,
    pub(crate) table: TableCharge,
    /// The pollables of its streams.
    pub(crate) watched: Watched,
    /// What its lease gives it behind interfaces of its own.
    pub(crate) imports: Imports,
    wasi: WasiP1Ctx,
    /// The state of preview 1, for a core module.
    preview1: Option<Box<State>>,
    /// The files of a component. Dropped after the streams on them, which are in `wasi`.
    files: Option<Box<FileSystem>>,
    /// The group of what its handles stand for, if it is not the tenant's.
    pub(crate) own_arena: Option<GroupId>,
    /// The exchange that it answers.
    http: Http,
    /// What it asks of other hosts.
    calls: Calls,
    /// The exported memory of a core module, once it was looked up.
    memory: Option<Memory>,
}

impl Guest {
    pub(crate) fn new(
        (tenant, execution): (TenantId, u64),
        call_bytes: u64,
        data: Vec<DataSet>,
        limiter: Limiter,
        (table, wasi): (TableCharge, WasiP1Ctx),
        preview1: Option<Box<State>>,
        files: Option<Box<FileSystem>>,
    ) -> Self {
        Self {
            tenant,
            execution,
            call_bytes,
            data,
            limiter,
            lifts: None,
            table,
            watched: Watched::default(),
            imports: Imports::none(),
            wasi,
            preview1,
            files,
            own_arena: None,
            http: Http::default(),
            calls: Calls::default(),
            memory: None,
        }
    }

    /// Bytes that a call of a component may move, of at most `most`.
    pub(crate) fn transfer_bytes(&self, most: Cap) -> u64 {
        most.most.min(self.call_bytes)
    }

    /// The tenant and execution of the call.
    pub(crate) fn identity(&self) -> (TenantId, u64) {
        (self.tenant, self.execution)
    }

    /// The group whose arena has the objects that its handles stand for.
    ///
    /// # Errors
    /// [`Errno::Gone`] if the tenant has ended.
    pub(crate) fn arena(&self) -> Result<GroupId, Errno> {
        match self.own_arena {
            Some(group) => Ok(group),
            None => local::with(|local| local.kernel.group_of(self.tenant)),
        }
    }

    /// The exchange that it answers.
    pub(crate) fn http(&mut self) -> &mut Http {
        &mut self.http
    }

    /// What it asks of other hosts.
    pub(crate) fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    /// The data set of this name.
    pub(crate) fn data(&self, name: &[u8]) -> Option<&DataSet> {
        let mut sets = self.data.iter();
        sets.find(|data| data.name().as_bytes() == name)
    }

    /// The state of preview 1.
    ///
    /// # Errors
    /// A trap when the program is a component, which cannot import preview 1.
    #[inline]
    pub(crate) fn preview1(&mut self) -> Answer<&mut State> {
        match &mut self.preview1 {
            Some(state) => Ok(state),
            None => Err(no_preview1()),
        }
    }

    /// The files of a component.
    ///
    /// # Errors
    /// When the program is a core module, which imports none of their functions.
    pub(crate) fn files(&mut self) -> wasmtime::Result<&mut FileSystem> {
        let files = self.files.as_deref_mut();
        files.context("these files are for components")
    }

    /// WASI's state, with room in its table for what one host call can put there.
    pub(crate) fn charged_wasi(&mut self) -> &mut WasiP1Ctx {
        self.table
            .make_room(self.wasi.ctx().table, self.tenant, self.execution);
        &mut self.wasi
    }

    /// WASI's resource table, with room for one host call.
    pub(crate) fn charged_table(&mut self) -> &mut ResourceTable {
        self.charged_wasi().ctx().table
    }

    /// The memory that the calling core module exports as `memory`.
    pub(crate) fn memory(caller: &mut Caller<'_, Guest>) -> Option<Memory> {
        if let Some(memory) = caller.data().memory {
            return Some(memory);
        }
        let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
            return None;
        };
        caller.as_context_mut().data_mut().memory = Some(memory);
        Some(memory)
    }
}

#[cold]
fn no_preview1() -> Fail {
    Fail::Trap(wasmtime::Error::msg("preview 1 is for core modules"))
}
