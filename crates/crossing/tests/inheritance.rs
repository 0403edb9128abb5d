//! A thread that holds a mutex runs with the priority of one that waits for it.

use leasehold_crossing::{Donation, Mutex};
use rustix::thread::gettid;
use std::fs;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The priority of a thread of this process, as the kernel schedules it now: negative if it is a real-time
/// one (proc(5), field 18 of `stat`).
fn priority(thread: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("a thread");
    let (_, after_name) = stat.rsplit_once(')').expect("a name");
    let field = after_name.split_whitespace().nth(18 - 3);
    field
        .and_then(|text| text.parse().ok())
        .expect("a priority")
}

fn number() -> i32 {
    gettid().as_raw_nonzero().get()
}

/// Whether the calling thread has real-time priority from now on.
fn becomes_real_time() -> bool {
    Command::new("chrt")
        .args(["--fifo", "--pid", "10", &number().to_string()])
        .output()
        .is_ok_and(|output| output.status.success())
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "it is never so");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_holder_has_the_priority_of_a_real_time_thread_that_waits_and_loses_it_with_the_mutex() {
    let mutex = Arc::new(Mutex::new(()));
    let (tell, told) = mpsc::channel();
    let held = mutex.lock();
    let theirs = mutex.clone();
    let waiter = thread::spawn(move || {
        let real_time = becomes_real_time();
        tell.send(real_time).expect("the test");
        if real_time {
            drop(theirs.lock());
        }
    });
    if !told.recv().expect("the thread") {
        eprintln!("skipped: real-time priority cannot be had here");
        drop(held);
        waiter.join().expect("it has ended");
        return;
    }
    while priority(number()) >= 0 {
        assert!(!waiter.is_finished(), "it did not wait");
        thread::sleep(Duration::from_millis(1));
    }
    drop(held);
    waiter.join().expect("it got the mutex");
    assert!(priority(number()) >= 0, "what was inherited is given back");
}

#[test]
fn the_recipient_of_a_donation_has_the_priority_of_the_donor_as_long_as_it_is_asked_for() {
    let donation = Arc::new(Donation::default());
    let recipient = donation.receive();
    let (tell, told) = mpsc::channel();
    let theirs = donation.clone();
    let donor = thread::spawn(move || {
        let real_time = becomes_real_time();
        tell.send(real_time).expect("the test");
        if real_time {
            theirs.donate();
        }
    });
    if told.recv().expect("the thread") {
        for _ in 0..3 {
            let mut requests = Vec::new();
            for _ in 0..2 {
                donation.ask(|asked| requests.push(asked));
            }
            wait_until(|| priority(number()) < 0);
            requests.pop();
            thread::sleep(Duration::from_millis(5));
            wait_until(|| priority(number()) < 0);
            drop(requests);
            wait_until(|| priority(number()) >= 0);
            thread::sleep(Duration::from_millis(5));
            assert!(priority(number()) >= 0, "it is not asked for");
        }
    } else {
        eprintln!("skipped: real-time priority cannot be had here");
    }
    drop(recipient);
    donor.join().expect("it has ended");
}
