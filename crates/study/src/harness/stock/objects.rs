//! Kernel objects as a plain embedder of wasmtime offers them: each is a boxed entry of the
//! store's resource table, made of what the tokio runtime has for it. Tasks, which would each be
//! a store of their own, are not offered.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Sleep, sleep};
use wasmtime::component::{Resource, ResourceTable};
use wasmtime::{Caller, Linker, Module, StoreLimitsBuilder, Val};
use wasmtime_wasi::WasiView as _;

use super::guest::Guest;

/// The import module of the interface, as `docs/guest-abi.md` describes it.
const MODULE: &str = "leasehold_kernel";
/// Error numbers of that interface, as functions return them.
const BAD_SELECTOR: i64 = -1;
const TABLE_FULL: i64 = -7;
const EMPTY: i64 = -9;
const LIMIT: i64 = -15;

/// A timer: asleep once it was set.
type Timer = Option<Pin<Box<Sleep>>>;

/// Adds what `module` imports of the interface; what is not offered answers that a limit is
/// reached.
pub(super) fn add_to_linker(linker: &mut Linker<Guest>, module: &Module) -> wasmtime::Result<()> {
    for import in module.imports().filter(|import| import.module() == MODULE) {
        type Call<'a> = Caller<'a, Guest>;
        match import.name() {
            "semaphore_create" => linker.func_wrap(MODULE, "semaphore_create", {
                |mut call: Call<'_>, value: u32| call.keep(Semaphore::new(value as usize))
            })?,
            "semaphore_try_down" => linker.func_wrap(MODULE, "semaphore_try_down", {
                |mut call: Call<'_>, rep: u32| {
                    let semaphore = call.table().get(&Resource::<Semaphore>::new_borrow(rep));
                    match semaphore.map(|semaphore| semaphore.try_acquire()) {
                        Ok(Ok(permit)) => {
                            permit.forget();
                            0
                        }
                        Ok(Err(_)) => EMPTY,
                        Err(_) => BAD_SELECTOR,
                    }
                }
            })?,
            "channel_create" => linker.func_wrap(MODULE, "channel_create", {
                |mut call: Call<'_>, capacity: u32| {
                    call.keep(mpsc::channel::<Vec<u8>>(capacity.max(1) as usize))
                }
            })?,
            "region_create" => linker.func_wrap(MODULE, "region_create", {
                |mut call: Call<'_>, bytes: u64| match usize::try_from(bytes) {
                    Ok(bytes) if bytes <= 1 << 30 => call.keep(vec![0u8; bytes]),
                    _ => LIMIT,
                }
            })?,
            "capability_derive" => linker.func_wrap(MODULE, "capability_derive", {
                |mut call: Call<'_>, of: u32, rights: u32| call.keep((of, rights))
            })?,
            "timer_create" => linker.func_wrap(MODULE, "timer_create", {
                |mut call: Call<'_>| call.keep(Timer::None)
            })?,
            "timer_set" => linker.func_wrap(MODULE, "timer_set", {
                |mut call: Call<'_>, rep: u32, after_ns: u64, _period_ns: u64| {
                    let Ok(timer) = call.table().get_mut(&Resource::<Timer>::new_borrow(rep))
                    else {
                        return BAD_SELECTOR;
                    };
                    let timer = timer.insert(Box::pin(sleep(Duration::from_nanos(after_ns))));
                    // Enters it among the runtime's timers. It is far from being over.
                    let _ = timer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    0
                }
            })?,
            // A child that was not started has no store yet, only what one would be made with.
            "tenant_create" => linker.func_wrap(MODULE, "tenant_create", {
                |mut call: Call<'_>, _reclaim_ns: u64, memory_bytes: u64| {
                    let bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
                    let limits = StoreLimitsBuilder::new().memory_size(bytes).build();
                    call.keep((ResourceTable::new(), limits))
                }
            })?,
            name => {
                let Some(function) = import.ty().func().cloned() else {
                    continue;
                };
                linker.func_new(MODULE, name, function, |_, _, results| {
                    results.fill(Val::I64(LIMIT));
                    Ok(())
                })?
            }
        };
    }
    Ok(())
}

/// The operation of a host function on the table of its caller.
trait Objects {
    fn table(&mut self) -> &mut ResourceTable;

    /// Keeps an object; answers its selector.
    fn keep<T: Send + 'static>(&mut self, object: T) -> i64 {
        match self.table().push(object) {
            Ok(resource) => i64::from(resource.rep()),
            Err(_) => TABLE_FULL,
        }
    }
}

impl Objects for Caller<'_, Guest> {
    fn table(&mut self) -> &mut ResourceTable {
        self.data_mut().wasi.ctx().table
    }
}
