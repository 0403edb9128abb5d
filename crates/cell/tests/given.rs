//! Objects shared with an embedder are never freed by a thread that tenants share.

mod common;

use bytes::Bytes;
use common::{captured, cell, guest};
use leasehold_cell::{Cell, Exit, Input, Lease, StartRequest};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that tell which thread freed them.
struct Traced {
    bytes: Vec<u8>,
    freed: Sender<String>,
}

impl AsRef<[u8]> for Traced {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let thread = thread::current();
        // The test may have seen enough.
        let _ = self.freed.send(thread.name().unwrap_or("?").to_owned());
    }
}

/// A request whose standard input is `text`, and where it is told which thread freed that.
fn request(cell: &Cell, name: &str, lease: Lease, text: &str) -> (StartRequest, Receiver<String>) {
    let program = cell.load(&guest(name)).expect("a guest loads");
    let (mut request, _) = captured(program, name, &[], lease);
    let (freed, frees) = channel();
    let bytes = text.as_bytes().to_vec();
    request.surroundings.stdin = Input::Bytes(Bytes::from_owner(Traced { bytes, freed }));
    (request, frees)
}

fn freed_by(frees: &Receiver<String>) -> String {
    let waited = frees.recv_timeout(Duration::from_secs(10));
    waited.expect("it is freed when the tenant has ended")
}

#[test]
fn standard_input_is_freed_by_another_thread_than_the_cells() {
    let cell = cell();
    for name in ["wordcount.wasm", "wordcount-p2.wasm"] {
        let (request, frees) = request(&cell, name, Lease::default(), "one two\nthree\n");
        let tenant = cell.start_tenant(request).expect("a tenant starts");
        let ended = tenant.wait().expect("the cell is there");
        assert_eq!(ended.exit, Exit::Code(0), "{name}");
        assert_eq!(freed_by(&frees), "leasehold-reaper", "{name}");
    }
}

#[test]
fn standard_input_of_a_refused_tenant_is_freed_by_another_thread_than_the_cells() {
    let cell = cell();
    let mut lease = Lease::default();
    lease.reclaim.budget = "1us".parse().expect("a budget");
    let (request, frees) = request(&cell, "wordcount.wasm", lease, "one two\n");
    cell.start_tenant(request)
        .err()
        .expect("the budget pays for nothing");
    assert_eq!(freed_by(&frees), "leasehold-reaper");
}

#[test]
fn a_program_that_its_embedder_let_go_is_freed_when_its_last_tenant_has_ended() {
    let cell = cell();
    for name in ["wordcount.wasm", "wordcount-p2.wasm"] {
        let (request, frees) = request(&cell, name, Lease::default(), "one two\n");
        let program = Arc::downgrade(&request.program);
        let tenant = cell.start_tenant(request).expect("a tenant starts");
        tenant.wait().expect("the cell is there");
        freed_by(&frees);
        let until = Instant::now() + Duration::from_secs(10);
        while program.strong_count() > 0 {
            assert!(Instant::now() < until, "{name} is held");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_program_is_started_by_the_cell_that_loaded_it_only() {
    let (cell, other) = (cell(), common::cell());
    let (request, _) = request(&other, "wordcount.wasm", Lease::default(), "");
    let refused = cell
        .start_tenant(request)
        .err()
        .expect("another cell's program");
    assert_eq!(
        refused.to_string(),
        "the program does not fit: another cell loaded it"
    );
}
