//! Memories that a tenant which answers requests keeps for its next ones: what they hold, who pays for them, and that
//! nothing is left of them. A file of its own, because it looks at the mappings of the whole process.

mod common;

use common::cell;
use common::http::{Server, receive};
use leasehold_cell::exchange::Failure;
use leasehold_cell::{Cell, Fresh, Lease, Serving};
use leasehold_lease::Nanoseconds;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The mappings are the whole process's, and so is one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that begins with 2 MiB of contents, and overwrites each of their pages.
fn table(cell: &Cell, lease: Lease, concurrency: u32) -> Server {
    let serving = Serving {
        concurrency,
        reuse: 1,
        fresh: Fresh::Instance,
        timeout: Duration::from_secs(30),
    };
    Server::start(cell, "table.wasm", lease, serving)
}

/// Sends so many requests side by side: each finds its memory as the program made it.
fn answers(server: &Server, requests: usize) {
    let clients: Vec<_> = (0..requests).map(|_| server.send("/")).collect();
    for mut client in clients {
        let answer = receive(&mut client).expect("a response");
        assert_eq!(answer.text(), "0 of 262144 wrong\n");
    }
}

/// The most that a tenant which answers one request at a time is charged for, ns.
fn peak_of_one(cell: &Cell) -> u64 {
    let server = table(cell, Lease::default(), 1);
    answers(&server, 1);
    let peak = server.tenant.statement().expect("it lives").peak.0;
    end(server);
    peak.div_ceil(1_000)
}

/// How much of a class the tenant is charged for.
fn charged(server: &Server, class: &str) -> u64 {
    let statement = server.tenant.statement().expect("it lives");
    let row = statement.rows.iter().find(|row| row.name == class);
    row.map_or(0, |row| row.count)
}

/// Waits until nothing of the requests is left; returns the memories, and the pages, that the tenant is charged for.
fn at_rest(server: &Server) -> (u64, u64) {
    let began = Instant::now();
    loop {
        let is_at_rest = charged(server, "store") == 0;
        let found = (charged(server, "memory"), charged(server, "memory_page"));
        if is_at_rest && shown() as u64 <= found.0 {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{found:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Memories in which an image is shown.
fn shown() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let images = maps
        .lines()
        .filter(|line| line.contains("memfd:leasehold-image"));
    images.count()
}

/// Ends a tenant: no memory shows its image then.
fn end(server: Server) {
    server.tenant.kill();
    let ended = server.tenant.wait().expect("ended");
    let pages = ended
        .statement
        .rows
        .iter()
        .find(|row| row.name == "memory_page");
    let charged = pages.map_or(0, |row| row.count);
    // Besides pages of memories there are those of stacks and of the arena.
    let others = 256 * charged.div_ceil(512) + 256 + ended.reclaimed.arena_pages;
    assert!(
        ended.reclaimed.pages <= charged + others,
        "{:?}",
        ended.reclaimed
    );
    assert_eq!(shown(), 0);
}

#[test]
fn the_memory_of_a_request_is_kept_for_the_next_one_and_the_tenant_pays_for_it() {
    let _alone = alone();
    let cell = cell();
    let server = table(&cell, Lease::default(), 4);
    assert_eq!(at_rest(&server), (0, 0));
    answers(&server, 1);
    let (memories, pages) = at_rest(&server);
    assert_eq!((memories, shown()), (1, 1));
    assert!(pages > 512, "{pages}");
    for _ in 0..50 {
        answers(&server, 1);
        assert_eq!(at_rest(&server), (1, pages));
    }
    end(server);
}

#[test]
fn a_tenant_keeps_no_more_memories_than_requests_that_it_answers_at_a_time() {
    let _alone = alone();
    let cell = cell();
    for concurrency in [1, 2, 16] {
        let server = table(&cell, Lease::default(), concurrency);
        for _ in 0..20 {
            answers(&server, 16);
            let (memories, pages) = at_rest(&server);
            assert!(memories <= u64::from(concurrency), "{memories}");
            assert_eq!(memories, shown() as u64);
            assert!(pages < (memories + 1) * 1024);
        }
        end(server);
    }
}

#[test]
fn a_request_of_its_own_tenant_leaves_nothing() {
    let _alone = alone();
    let cell = cell();
    let serving = Serving {
        concurrency: 4,
        reuse: 1,
        fresh: Fresh::Tenant,
        timeout: Duration::from_secs(30),
    };
    let server = Server::start(&cell, "table.wasm", Lease::default(), serving);
    answers(&server, 4);
    let began = Instant::now();
    while shown() > 0 {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    end(server);
}

#[test]
fn a_lease_that_pays_for_little_more_than_its_requests_answers_them_all_and_keeps_nothing() {
    let _alone = alone();
    let cell = cell();
    let peak = peak_of_one(&cell);
    let mut lease = Lease::default();
    lease.reclaim.budget = Nanoseconds::new(peak * 21 / 20).expect("positive");
    for concurrency in [1, 4] {
        let server = table(&cell, lease, concurrency);
        for _ in 0..10 {
            answers(&server, 4);
            assert_eq!(at_rest(&server), (0, 0));
        }
        end(server);
    }
}

#[test]
fn under_a_lease_that_pays_for_some_executions_every_answer_is_right_and_nothing_is_left() {
    let _alone = alone();
    let cell = cell();
    let one = peak_of_one(&cell);
    // An eighth of it pays for a memory, the whole for some ten executions.
    for tenths in 80..110 {
        let mut lease = Lease::default();
        lease.reclaim.budget = Nanoseconds::new(one * tenths / 10).expect("positive");
        let server = table(&cell, lease, 16);
        for requests in [4, 16, 3, 16] {
            // Of more than the lease pays for some are refused. What was built for those waits for the next ones, and what it
            // holds may be missed by them.
            let clients: Vec<_> = (0..requests).map(|_| server.send("/")).collect();
            for mut client in clients {
                match receive(&mut client) {
                    Ok(answer) => assert_eq!(answer.text(), "0 of 262144 wrong\n"),
                    Err(failure) => assert!(matches!(failure, Failure::Refused), "{failure:?}"),
                }
            }
        }
        end(server);
    }
}

#[test]
fn a_burst_under_a_lease_that_pays_for_one_execution_at_least_is_answered_whole() {
    let _alone = alone();
    let cell = cell();
    let peak = peak_of_one(&cell);
    for tenths in [12, 15, 20, 25, 30, 40, 55] {
        let mut lease = Lease::default();
        let budget = peak * tenths / 10;
        lease.reclaim.budget = Nanoseconds::new(budget).expect("positive");
        let server = table(&cell, lease, 16);
        for _ in 0..4 {
            answers(&server, 12);
        }
        end(server);
    }
}

#[test]
fn a_kill_at_any_instant_leaves_no_memory_that_shows_an_image() {
    let _alone = alone();
    let cell = cell();
    for instant in 0..150 {
        let server = table(&cell, Lease::default(), 4);
        answers(&server, 2);
        let clients: Vec<_> = (0..3).map(|_| server.send("/")).collect();
        let until = Instant::now() + Duration::from_micros(instant * 13);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        end(server);
        drop(clients);
    }
}
