//! A start that is only rehearsed is decided as a start is.

mod common;

use common::{cell, guest, lease, profile};
use leasehold_cell::{
    Cell, Directory, Input, Lease, Output, Rehearsal, RehearsedStart, StartError, StartRequest,
    Surroundings,
};
use leasehold_lease::{ByteSize, Nanoseconds};
use std::path::Path;
use std::sync::Arc;

fn surroundings(dirs: &[&Path]) -> Surroundings {
    Surroundings {
        args: vec!["a".to_owned()],
        dirs: dirs
            .iter()
            .map(|host| Directory {
                host: host.to_path_buf(),
                guest: "/".to_owned(),
                write: true,
            })
            .collect(),
        stdin: Input::Empty,
        stdout: Output::Discard,
        stderr: Output::Discard,
        ..Surroundings::default()
    }
}

fn rehearse(program: &Path, lease: &Lease, dirs: &[&Path]) -> Result<(), StartError> {
    Rehearsal::new(profile(), Arc::default()).start(&RehearsedStart {
        program,
        lease,
        surroundings: &surroundings(dirs),
        has_store: false,
        is_handler: false,
        calls: 0,
        addresses: 0,
    })
}

fn start(cell: &Cell, program: &Path, lease: Lease, dirs: &[&Path]) -> Result<(), StartError> {
    let program = cell.load_for(program, &lease).expect("a program");
    let tenant = cell.start_held(StartRequest {
        program,
        lease,
        surroundings: surroundings(dirs),
    })?;
    tenant.kill();
    tenant.wait().expect("it ends");
    Ok(())
}

/// The smallest number that is enough, of those up to `most`, which is.
fn smallest(most: u64, mut is_enough: impl FnMut(u64) -> bool) -> u64 {
    let (mut short, mut enough) = (0, most);
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        match is_enough(middle) {
            true => enough = middle,
            false => short = middle,
        }
    }
    enough
}

#[test]
fn the_smallest_budget_and_the_least_memory_of_a_rehearsal_are_those_of_a_start() {
    let cell = cell();
    let directory = tempfile::tempdir().expect("directory");
    for name in ["hello.wasm", "hello-p2.wasm", "object-bomb.wasm"] {
        let program = guest(name);
        let dirs: &[&Path] = &[directory.path()];
        for dirs in [&[], dirs] {
            let budget = |ns| {
                let mut lease = lease(1, 64 << 10);
                lease.reclaim.budget = Nanoseconds::new(ns).expect("in range");
                lease
            };
            let least = smallest(1_000_000_000, |ns| {
                rehearse(&program, &budget(ns), dirs).is_ok()
            });
            start(&cell, &program, budget(least), dirs).expect("enough");
            let refused = start(&cell, &program, budget(least - 1), dirs).expect_err("too small");
            let foretold = rehearse(&program, &budget(least - 1), dirs).expect_err("too small");
            assert_eq!(foretold.to_string(), refused.to_string(), "{name}");

            let host = |bytes| {
                let mut lease = lease(100_000, 64 << 10);
                lease.memory.host = ByteSize::new(bytes);
                lease
            };
            let least = smallest(1 << 30, |bytes| {
                rehearse(&program, &host(bytes), dirs).is_ok()
            });
            start(&cell, &program, host(least), dirs).expect("enough");
            let refused = start(&cell, &program, host(least - 1), dirs).expect_err("too little");
            let foretold = rehearse(&program, &host(least - 1), dirs).expect_err("too little");
            assert_eq!(foretold.to_string(), refused.to_string(), "{name}");
        }
    }
}

/// The number that stands between these words of a message.
fn number(message: &str, before: &str, after: &str) -> Option<u64> {
    let (_, rest) = message.split_once(before)?;
    rest.split_once(after)?.0.parse().ok()
}

#[test]
fn with_as_much_memory_of_the_host_as_a_refusal_states_a_start_is_taken_and_with_less_it_is_not() {
    let cell = cell();
    let directory = tempfile::tempdir().expect("directory");
    let directories: &[&Path] = &[directory.path()];
    for name in ["hello.wasm", "hello-p2.wasm", "object-bomb.wasm"] {
        let program = guest(name);
        for (stack_kib, dirs) in [
            (512, [].as_slice()),
            (512, directories),
            (1 << 10, &[]),
            (64 << 10, directories),
        ] {
            let host = |kib: u64| {
                let mut lease = lease(1_000_000, 64 << 10);
                lease.memory.stack = ByteSize::new(stack_kib << 10).expect("in range");
                lease.memory.host = ByteSize::new(kib << 10);
                lease
            };
            let stated = |error: StartError| {
                let message = error.to_string();
                let kib = number(&message, "`memory.host` for the ", " KiB");
                kib.unwrap_or_else(|| panic!("{name}: {message}"))
            };
            let kib = stated(rehearse(&program, &host(64), dirs).expect_err("too little"));
            rehearse(&program, &host(kib), dirs).expect("enough");
            start(&cell, &program, host(kib), dirs).expect("enough");
            let foretold = rehearse(&program, &host(kib - 1), dirs).expect_err("too little");
            let refused = start(&cell, &program, host(kib - 1), dirs).expect_err("too little");
            assert_eq!(stated(foretold), kib, "{name}");
            assert_eq!(stated(refused), kib, "{name}");
        }
    }
}

#[test]
fn a_refusal_states_the_memory_of_the_host_that_an_execution_for_requests_begins_with() {
    let program = guest("web.wasm");
    let surroundings = surroundings(&[]);
    for stack_kib in [512, 4 << 10] {
        let rehearse = |kib: u64| {
            let mut lease = lease(1_000_000, 64 << 10);
            lease.memory.stack = ByteSize::new(stack_kib << 10).expect("in range");
            lease.memory.host = ByteSize::new(kib << 10);
            Rehearsal::new(profile(), Arc::default()).start(&RehearsedStart {
                program: &program,
                lease: &lease,
                surroundings: &surroundings,
                has_store: false,
                is_handler: true,
                calls: 0,
                addresses: 0,
            })
        };
        let refused = rehearse(64).expect_err("too little").to_string();
        let kib = number(&refused, "`memory.host` for the ", " KiB");
        let kib = kib.unwrap_or_else(|| panic!("{refused}"));
        rehearse(kib).expect("enough");
        rehearse(kib - 1).expect_err("too little");
    }
}

#[test]
fn a_refusal_for_the_budget_states_the_same_memory_of_the_host() {
    for name in ["hello.wasm", "hello-p2.wasm"] {
        let program = guest(name);
        let mut stated = 0;
        for budget_us in 1..1_000 {
            let mut lease = lease(budget_us, 64 << 10);
            let Err(refused) = rehearse(&program, &lease, &[]) else {
                break;
            };
            let refused = refused.to_string();
            let Some(kib) = number(&refused, "the program begins with ", " KiB") else {
                continue;
            };
            stated += 1;
            // A larger budget allows more handles, which are in the host's memory, too.
            lease.memory.host = ByteSize::new(64 << 10);
            let refused = rehearse(&program, &lease, &[]).expect_err("too little");
            let refused = refused.to_string();
            let least = number(&refused, "`memory.host` for the ", " KiB");
            assert_eq!(Some(kib), least, "{name}: {refused}");
        }
        assert!(stated > 0, "{name}");
    }
}

#[test]
fn what_the_process_does_not_have_for_all_is_refused_to_the_last() {
    let directory = tempfile::tempdir().expect("directory");
    let surroundings = surroundings(&[directory.path()]);
    let mut rehearsal = Rehearsal::new(profile(), Arc::default());
    let program = guest("hello.wasm");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let half = limit.maximum.unwrap_or(u64::MAX) / 2;
    let Ok(half) = u32::try_from(half) else {
        return;
    };
    let mut lease = lease(100_000, 64 << 10);
    lease.files.open = half;
    let mut start = || {
        rehearsal.start(&RehearsedStart {
            program: &program,
            lease: &lease,
            surroundings: &surroundings,
            has_store: false,
            is_handler: false,
            calls: 0,
            addresses: 0,
        })
    };
    start().expect("one half");
    let refused = start().expect_err("the other, but for what is kept");
    assert!(refused.to_string().contains("ulimit -n"), "{refused}");
}

#[test]
fn of_a_program_that_is_not_there_no_more_is_refused_than_of_any() {
    let missing = Path::new("/nonexistent/program.wasm");
    rehearse(missing, &lease(100_000, 64), &[]).expect("nothing is known of it");
    let refused = rehearse(missing, &lease(1, 64), &[]).expect_err("too small for any");
    assert!(refused.to_string().contains("reclaim.budget"), "{refused}");
}
