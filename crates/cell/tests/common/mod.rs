//! Common parts of a cell's tests: a cell, the built guests, and tenants.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod http;
pub(crate) mod paged;

use leasehold_cell::profile::Profile;
use leasehold_cell::{
    Capture, Cell, CellConfig, Directory, Ended, Input, Lease, Output, PendingStart, Program,
    StartError, StartRequest, Surroundings, TenantHandle,
};
use leasehold_lease::{ByteSize, Nanoseconds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A profile with round numbers, so that tests do not depend on the host's speed.
pub(crate) fn profile() -> Profile {
    let mut profile = Profile::free();
    let costs = &mut profile.median_ps;
    costs.tenant = 1_000_000;
    costs.group = 50_000;
    costs.scrub = 50_000;
    costs.chunk = 1_000;
    costs.arena_page = 300_000;
    for (name, ps) in [
        ("store", 10_000_000),
        ("instance", 50_000),
        ("memory", 1_500_000),
        ("memory_page", 300_000),
        ("paged_page", 1_000_000),
        ("table_element", 500),
        ("descriptor", 1_000_000),
        ("wasi_entry", 1_000_000),
        ("host_page", 300_000),
        ("file_page", 600_000),
        ("backtrace", 2_200_000_000),
    ] {
        let replaced = costs.held.insert(name.to_owned(), ps);
        assert!(replaced.is_some(), "no class {name}");
    }
    profile
}

pub(crate) fn cell() -> Cell {
    Cell::start(CellConfig::new(profile())).expect("a cell starts")
}

/// One whose traps name the functions on the stack.
pub(crate) fn cell_with_backtraces() -> Cell {
    let mut config = CellConfig::new(profile());
    config.backtraces = true;
    Cell::start(config).expect("a cell starts")
}

/// A lease of `budget_us` microseconds and `memory_kib` KiB.
pub(crate) fn lease(budget_us: u64, memory_kib: u64) -> Lease {
    let mut lease = Lease::default();
    lease.reclaim.budget = Nanoseconds::new(budget_us * 1000).expect("in range");
    lease.memory.reserve = ByteSize::new(memory_kib << 10).expect("in range");
    lease
}

/// The path of a guest that `guests/build` made.
pub(crate) fn guest(name: &str) -> PathBuf {
    let path = guests().join(name);
    assert!(
        path.exists(),
        "{} is missing: run `make guests`",
        path.display()
    );
    path
}

pub(crate) fn guests() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests"))
}

/// A tenant, and what it writes to its standard output.
pub(crate) struct Started {
    pub(crate) handle: TenantHandle,
    pub(crate) output: Capture,
}

pub(crate) fn start(cell: &Cell, name: &str, args: &[&str], lease: Lease) -> Started {
    let started = start_held(cell, name, args, lease);
    started.handle.go();
    started
}

/// A tenant that does not run yet.
pub(crate) fn start_held(cell: &Cell, name: &str, args: &[&str], lease: Lease) -> Started {
    let (request, output) = request(cell, name, args, lease);
    let handle = cell.start_held(request).expect("a tenant starts");
    Started { handle, output }
}

/// A tenant that is being started, and what it writes.
pub(crate) struct Begun {
    beginning: PendingStart,
    output: Capture,
}

impl Begun {
    /// Kills it at once; why it was not started, if it was not.
    pub(crate) fn kill(self) -> Option<StartError> {
        self.beginning.killer().kill();
        self.beginning.wait().err()
    }

    pub(crate) fn wait(self) -> Started {
        let handle = self.beginning.wait().expect("a tenant starts");
        Started {
            handle,
            output: self.output,
        }
    }
}

/// Begins to start a tenant.
pub(crate) fn begin(cell: &Cell, name: &str, args: &[&str], lease: Lease) -> Begun {
    let (request, output) = request(cell, name, args, lease);
    let beginning = cell.begin(request).expect("a tenant is admitted");
    Begun { beginning, output }
}

/// Runs a program to its end; what became of it, and what it wrote.
pub(crate) fn run(
    cell: &Cell,
    program: Arc<Program>,
    lease: Lease,
    surroundings: Surroundings,
) -> (Ended, Vec<u8>) {
    let output = Capture::new(8 << 20);
    let tenant = cell
        .start_tenant(StartRequest {
            program,
            lease,
            surroundings: Surroundings {
                stdout: Output::Capture(output.clone()),
                ..surroundings
            },
        })
        .expect("a tenant starts");
    let ended = tenant.wait().expect("the cell is there");
    (ended, output.bytes())
}

/// A directory that a guest may read, as `/data`.
pub(crate) fn read_only(directory: &Path) -> Directory {
    Directory {
        host: directory.to_owned(),
        guest: "/data".to_owned(),
        write: false,
    }
}

/// A tenant, if the cell has room for it.
pub(crate) fn try_start(cell: &Cell, name: &str, lease: Lease) -> Result<Started, StartError> {
    let (request, output) = request(cell, name, &[], lease);
    let handle = cell.start_tenant(request)?;
    Ok(Started { handle, output })
}

fn request(cell: &Cell, name: &str, args: &[&str], lease: Lease) -> (StartRequest, Capture) {
    let program = cell.load_for(&guest(name), &lease).expect("a guest loads");
    captured(program, name, args, lease)
}

/// A request to start a program called `name`, whose output is captured.
pub(crate) fn captured(
    program: Arc<Program>,
    name: &str,
    args: &[&str],
    lease: Lease,
) -> (StartRequest, Capture) {
    let output = Capture::new(1 << 20);
    let mut all = vec![name.to_owned()];
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    let request = StartRequest {
        program,
        lease,
        surroundings: Surroundings {
            args: all,
            stdin: Input::Empty,
            stdout: Output::Capture(output.clone()),
            ..Surroundings::default()
        },
    };
    (request, output)
}

/// Waits until `condition` holds: in vain only if the cell is broken, or the host very slow.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Started {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.bytes()).into_owned()
    }

    /// Waits until the guest has written `what`.
    pub(crate) fn wait_for(&self, what: &str) {
        until(what, || self.text().contains(what));
    }

    pub(crate) fn kill(&self) -> Ended {
        self.handle.kill();
        self.handle.wait().expect("the cell is there")
    }
}
