//! WASI preview 2 for components. (Preview 1 is [`crate::host::preview1`].)
//!
//! Most interfaces come from `wasmtime-wasi`. Seven things are the cell's own, because a guest can
//! multiply them and freeing them one by one would take time that was charged to no tenant:
//!
//! - **pollables** ([`poll`]): objects in the tenant's arena, freed with it as a whole;
//! - **clocks** ([`clocks`]): a sleep is the deadline of the waiting execution, not a timer;
//! - **files** ([`filesystem`]): descriptors are entries of the execution's own table;
//! - **directory listings** ([`filesystem::directory`]): a window of a few kilobytes on the
//!   directory, in the tenant's arena;
//! - **HTTP** ([`http`]): requests, responses and their fields, in the arena; what crosses to I/O threads is in exchanges;
//! - **connections** ([`sockets`]): sockets, in the arena; their bytes are in exchanges, too;
//! - **stores** ([`keyvalue`]): a bucket is an object of the arena, and its operations are jobs.
//!
//! Streams and error values live in `wasmtime-wasi`'s resource table; every place in that table is charged
//! before it can be used ([`table`]).

mod bindings;
pub(crate) mod capture;
pub(crate) mod clocks;
mod config;
pub(crate) mod filesystem;
pub(crate) mod http;
pub(crate) mod imports;
mod keyvalue;
pub(crate) mod log;
mod logging;
pub(crate) mod objects;
pub(crate) mod outgoing;
pub(crate) mod poll;
mod random;
mod rep;
pub(crate) mod sockets;
pub(crate) mod stdio;
pub(crate) mod streams;
pub(crate) mod table;
mod view;
pub(crate) mod watched;

use crate::guest::Guest;
use crate::steps::{mark, step};
use view::{OfGuest, Wasi};
use wasmtime::component::Linker;
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView as _};
use wasmtime_wasi::p2::bindings::{cli, clocks as clocks_wit, random as random_wit};
use wasmtime_wasi::random::WasiRandom;
use wasmtime_wasi_io::bindings::wasi::io;

/// Links the `wasi:cli/imports` world. Steps of an interface that comes from `wasmtime-wasi` as a whole
/// are counted under its longest row.
///
/// # Errors
/// When an interface is linked twice, which is a defect.
pub(crate) fn link_component(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    let l = linker;
    io::error::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    io::poll::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    io::streams::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    clocks_wit::monotonic_clock::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    clocks_wit::wall_clock::add_to_linker::<Guest, WasiClocks>(l, |guest| {
        mark(step!("wasi:clocks/wall-clock", "now"));
        guest.clocks()
    })?;

    filesystem::link(l)?;
    http::link(l)?;
    sockets::link(l)?;

    bindings::config::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::logging::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::unversioned_logging::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::keyvalue::store::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::keyvalue::atomics::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    bindings::keyvalue::batch::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;

    random_wit::random::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    random_wit::insecure::add_to_linker::<Guest, OfGuest>(l, |guest| Wasi(guest))?;
    random_wit::insecure_seed::add_to_linker::<Guest, WasiRandom>(l, |guest| {
        mark(step!("wasi:random/insecure-seed", "insecure-seed"));
        guest.ctx().ctx.random()
    })?;

    cli::exit::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!("wasi:cli/exit", "exit"));
        guest.cli()
    })?;
    cli::environment::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!("wasi:cli/environment", "get-environment"));
        guest.cli()
    })?;
    cli::stdin::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!("wasi:cli/stdin", "get-stdin"));
        guest.cli()
    })?;
    cli::stdout::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!("wasi:cli/stdout", "get-stdout"));
        guest.cli()
    })?;
    cli::stderr::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!("wasi:cli/stderr", "get-stderr"));
        guest.cli()
    })?;
    cli::terminal_input::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!(
            "wasi:cli/terminal-input",
            "[resource-drop]terminal-input"
        ));
        guest.cli()
    })?;
    cli::terminal_output::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!(
            "wasi:cli/terminal-output",
            "[resource-drop]terminal-output"
        ));
        guest.cli()
    })?;
    cli::terminal_stdin::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!("wasi:cli/terminal-stdin", "get-terminal-stdin"));
        guest.cli()
    })?;
    cli::terminal_stdout::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!("wasi:cli/terminal-stdout", "get-terminal-stdout"));
        guest.cli()
    })?;
    cli::terminal_stderr::add_to_linker::<Guest, WasiCli>(l, |guest| {
        mark(step!("wasi:cli/terminal-stderr", "get-terminal-stderr"));
        guest.cli()
    })?;
    Ok(())
}
