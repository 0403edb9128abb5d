//! WASI preview 1: its 46 functions, on the cell's own files.
//!
//! Their answers are those of `wasmtime-wasi`, except where a bound requires others: a path has at
//! most 4,095 bytes, a call uses at most 1,024 buffers, a descriptor beyond the lease's limit is
//! `EMFILE`, and a FIFO is opened without waiting for its other end.
//!
//! Functions that never wait are linked as such: no future is made for them. The others try without
//! waiting first ([`call::Attempt`]).

mod call;
mod data;
mod descriptors;
mod memory;
mod paths;
mod poll;
mod process;
pub(crate) mod state;

use super::answer::to_guest;
use crate::guest::Guest;
use crate::steps::{mark, step};
use call::after;
use wasmtime::{Caller, Linker, Result};

const MODULE: &str = "wasi_snapshot_preview1";

/// Links functions that never wait.
macro_rules! prompt {
    ($linker:ident: $($name:literal => $function:path, ($($argument:ident: $type:ty),*);)*) => {$(
        $linker.func_wrap(
            MODULE,
            $name,
            |mut caller: Caller<'_, Guest>, $($argument: $type),*| -> Result<i32> {
                mark(step!("wasi_snapshot_preview1", $name));
                to_guest($function(&mut caller, $($argument),*))
            },
        )?;
    )*};
}

/// Links functions whose first try may find that they would wait.
macro_rules! attempted {
    ($linker:ident: $($name:literal => $function:path, ($($argument:ident: $type:ty),*);)*) => {$(
        $linker.func_wrap_async(
            MODULE,
            $name,
            |mut caller: Caller<'_, Guest>, ($($argument,)*): ($($type,)*)| {
                mark(step!("wasi_snapshot_preview1", $name));
                let attempt = $function(&mut caller, $($argument),*);
                after(caller, attempt)
            },
        )?;
    )*};
}

/// Links functions that take several steps.
macro_rules! stepwise {
    ($linker:ident: $($name:literal => $function:path, ($($argument:ident: $type:ty),*);)*) => {$(
        $linker.func_wrap_async(
            MODULE,
            $name,
            |caller: Caller<'_, Guest>, ($($argument,)*): ($($type,)*)| {
                mark(step!("wasi_snapshot_preview1", $name));
                $function(caller, $($argument),*)
            },
        )?;
    )*};
}

/// Links preview 1.
///
/// # Errors
/// When a function is linked twice, which is a defect.
pub(crate) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    prompt! { linker:
        "args_sizes_get" => process::args_sizes_get, (count: u32, bytes: u32);
        "environ_sizes_get" => process::environ_sizes_get, (count: u32, bytes: u32);
        "clock_res_get" => process::clock_res_get, (clock: u32, result: u32);
        "clock_time_get" => process::clock_time_get, (clock: u32, precision: u64, result: u32);
        "fd_allocate" => descriptors::allocate, (fd: u32, offset: u64, length: u64);
        "fd_close" => descriptors::close, (fd: u32);
        "fd_fdstat_get" => descriptors::fdstat_get, (fd: u32, result: u32);
        "fd_fdstat_set_flags" => descriptors::fdstat_set_flags, (fd: u32, flags: u32);
        "fd_fdstat_set_rights" => descriptors::fdstat_set_rights,
            (fd: u32, base: u64, inheriting: u64);
        "fd_prestat_get" => descriptors::prestat_get, (fd: u32, result: u32);
        "fd_prestat_dir_name" => descriptors::prestat_dir_name,
            (fd: u32, name: u32, length: u32);
        "fd_renumber" => descriptors::renumber, (from: u32, to: u32);
        "fd_tell" => descriptors::tell, (fd: u32, result: u32);
        "proc_raise" => process::proc_raise, (signal: u32);
        "sched_yield" => process::sched_yield, ();
        "sock_accept" => descriptors::sock_accept, (fd: u32, flags: u32, result: u32);
        "sock_recv" => descriptors::sock_recv,
            (fd: u32, list: u32, count: u32, flags: u32, length: u32, out: u32);
        "sock_send" => descriptors::sock_send,
            (fd: u32, list: u32, count: u32, flags: u32, length: u32);
        "sock_shutdown" => descriptors::sock_shutdown, (fd: u32, how: u32);
    }
    attempted! { linker:
        "fd_advise" => descriptors::advise, (fd: u32, offset: u64, length: u64, advice: u32);
        "fd_datasync" => descriptors::datasync, (fd: u32);
        "fd_sync" => descriptors::sync, (fd: u32);
        "fd_seek" => descriptors::seek, (fd: u32, offset: i64, whence: u32, result: u32);
        "fd_filestat_get" => descriptors::filestat_get, (fd: u32, result: u32);
        "fd_filestat_set_size" => descriptors::filestat_set_size, (fd: u32, size: u64);
        "fd_filestat_set_times" => descriptors::filestat_set_times,
            (fd: u32, access: u64, change: u64, flags: u32);
        "path_create_directory" => paths::create_directory, (fd: u32, path: u32, length: u32);
        "path_filestat_get" => paths::filestat_get,
            (fd: u32, flags: u32, path: u32, length: u32, result: u32);
        "path_filestat_set_times" => paths::filestat_set_times,
            (fd: u32, flags: u32, path: u32, length: u32, access: u64, change: u64, which: u32);
        "path_link" => paths::link,
            (old_fd: u32, flags: u32, old: u32, old_length: u32, new_fd: u32, new: u32,
             new_length: u32);
        "path_open" => paths::open,
            (fd: u32, look_up: u32, path: u32, length: u32, open: u32, rights: u64,
             inheriting: u64, flags: u32, result: u32);
        "path_readlink" => paths::read_link,
            (fd: u32, path: u32, length: u32, buffer: u32, size: u32, result: u32);
        "path_remove_directory" => paths::remove_directory, (fd: u32, path: u32, length: u32);
        "path_rename" => paths::rename,
            (old_fd: u32, old: u32, old_length: u32, new_fd: u32, new: u32, new_length: u32);
        "path_symlink" => paths::symlink,
            (target: u32, target_length: u32, fd: u32, path: u32, length: u32);
        "path_unlink_file" => paths::unlink, (fd: u32, path: u32, length: u32);
    }
    stepwise! { linker:
        "fd_pread" => data::pread, (fd: u32, list: u32, count: u32, offset: u64, result: u32);
        "fd_pwrite" => data::pwrite, (fd: u32, list: u32, count: u32, offset: u64, result: u32);
        "fd_read" => data::read, (fd: u32, list: u32, count: u32, result: u32);
        "fd_write" => data::write, (fd: u32, list: u32, count: u32, result: u32);
        "fd_readdir" => data::readdir,
            (fd: u32, buffer: u32, length: u32, cookie: u64, result: u32);
        "poll_oneoff" => poll::oneoff,
            (subscriptions: u32, events: u32, count: u32, result: u32);
        "random_get" => process::random_get, (buffer: u32, length: u32);
        "args_get" => process::args_get, (list: u32, bytes: u32);
        "environ_get" => process::environ_get, (list: u32, bytes: u32);
    }
    linker.func_wrap(MODULE, "proc_exit", process::proc_exit)?;
    Ok(())
}
