//! The host's accesses: system calls, accesses that are denied, and signals of others.

mod common;

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output};

use common::{Addresses, Fails, MemoryStore, open};
use leasehold_pager::{Contract, Ending, Sharing};
use leasehold_pager_linux::{Answer, Denied, Features, Handlers, Options, Paging};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Bytes of a tenant for a system call.
fn slice<'a>(start: *mut u8, from: usize, bytes: usize) -> &'a mut [u8] {
    // SAFETY: within the addresses, which have no other user meanwhile.
    unsafe { std::slice::from_raw_parts_mut(start.add(from), bytes) }
}

#[test]
fn system_calls_work_on_buffers_that_were_touched_and_fail_on_others() {
    let (paging, _store) = open(64, 512);
    let id = paging.reserve(&Contract::hard(10)).expect("frames");
    let area = paging.create_area(100, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(100);
    memory.attach(&paging, id, area);
    let mut file = tempfile::tempfile().expect("a file");
    let contents: Vec<u8> = (0..200_000u32).map(|at| (at % 251) as u8).collect();
    file.write_all(&contents).expect("room");
    let mut at = 100;
    let error = rustix::io::pread(&file, slice(memory.start(), at, 5_000), 0);
    assert_eq!(error, Err(rustix::io::Errno::FAULT));
    while at < 100 + contents.len() {
        let left = 100 + contents.len() - at;
        let start = memory.start().wrapping_add(at);
        let bytes = paging.touch(start, left, true).expect("pages");
        assert!(bytes > 0 && bytes <= left.min(10 * 4_096));
        let offset = (at - 100) as u64;
        let read = rustix::io::pread(&file, slice(memory.start(), at, bytes), offset);
        assert_eq!(read, Ok(bytes));
        at += bytes;
    }
    // By user code pages need not be touched before.
    assert!(slice(memory.start(), 100, contents.len()) == contents);
    let mut copy = tempfile::tempfile().expect("a file");
    let mut at = 100;
    while at < 100 + contents.len() {
        let start = memory.start().wrapping_add(at);
        let bytes = paging.touch(start, 100 + contents.len() - at, false);
        let bytes = bytes.expect("pages");
        copy.write_all(slice(memory.start(), at, bytes))
            .expect("room");
        at += bytes;
    }
    let mut back = vec![];
    std::io::Seek::rewind(&mut copy).expect("a file");
    copy.read_to_end(&mut back).expect("a file");
    assert!(back == contents);
    paging.audit();
}

/// Runs a test that is ignored otherwise in a process of its own.
fn alone(test: &str, change: impl FnOnce(&mut Command)) -> std::io::Result<Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        test,
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    change(&mut command);
    command.output()
}

/// A tenant whose next page cannot be had.
fn starving(on_denied: fn(&Denied) -> Answer) -> (Paging, Addresses) {
    let store = MemoryStore::new(64);
    let paging = Paging::open(Options {
        store: Some(Box::new(store.clone())),
        handlers: Handlers {
            on_denied,
            ..Handlers::default()
        },
        ..Options::new(16)
    });
    let paging = paging.expect("a kernel with userfaultfd");
    let id = paging.reserve(&Contract::hard(2)).expect("frames");
    let area = paging.create_area(8, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(8);
    memory.attach(&paging, id, area);
    memory.fill(0, 0);
    memory.fill(1, 1);
    store.set(Fails::Device);
    (paging, memory)
}

#[test]
#[ignore = "dies of a signal, on purpose"]
fn chained() {
    let (_paging, memory) = starving(|_| Answer::Chain);
    memory.load(5);
}

#[test]
#[ignore = "dies of a signal, on purpose"]
fn stray() {
    let (_paging, _memory) = starving(|_| Answer::Substitute);
    // A page beyond the end of a file, which is none of the pager's business.
    let file = tempfile::tempfile().expect("a file");
    // SAFETY: the kernel picks addresses at which nothing is mapped.
    let beyond = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            4_096,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::SHARED,
            &file,
            0,
        )
    };
    let beyond = beyond.expect("mapped").cast::<u8>();
    // SAFETY: mapped; the access is a signal.
    unsafe { beyond.read_volatile() };
}

#[test]
#[ignore = "dies of a signal, on purpose"]
fn sent() {
    let (_paging, memory) = starving(|_| Answer::Substitute);
    // A signal that says it is about a tenant's page, and is none of the kernel's.
    let (about, queued) = (memory.start() as u64, -1);
    // SAFETY: all-zero is a valid value; the words written are those of the code and of what a
    // fault's address overlaps; the signal goes to this thread.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_signo = libc::SIGBUS;
        info.si_code = queued;
        (&raw mut info).cast::<u64>().add(2).write(about);
        let (process, thread) = (libc::getpid(), libc::gettid());
        // The runtime's handler leaves the first one to the second.
        for _ in 0..2 {
            let call = libc::SYS_rt_tgsigqueueinfo;
            libc::syscall(call, process, thread, libc::SIGBUS, &raw const info);
        }
    }
}

#[test]
fn an_access_that_is_denied_and_a_signal_that_is_not_ours_end_as_they_should() {
    for (test, signal) in [
        ("chained", libc::SIGBUS),
        ("stray", libc::SIGBUS),
        ("sent", libc::SIGBUS),
    ] {
        let output = alone(test, |_| {}).expect("started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("leasehold: signal 7 at 0x"), "{test}: {said}");
        // A runtime may report the signal, and abort.
        let died = output.status.signal().expect("a signal");
        assert!(
            died == signal || died == libc::SIGABRT,
            "{test}: {output:?}"
        );
    }
}

#[test]
fn a_substitute_lets_the_host_finish_and_is_reported() {
    let (paging, memory) = starving(|_| Answer::Substitute);
    assert_eq!(memory.load(5), 0);
    memory.store(5, 9);
    assert_eq!(memory.load(5), 9);
    let denied = paging.take_denied().expect("denied");
    assert_eq!(denied.address / 4_096, memory.start() as usize / 4_096 + 5);
    assert!(paging.take_denied().is_none());
    assert!(memory.holds(0, 0) && memory.holds(1, 1));
}

#[test]
#[ignore = "run by another test as an ordinary user"]
fn ordinary() {
    let features = Features::probe().expect("a kernel with userfaultfd");
    println!("{features:?}");
    let (paging, _store) = open(64, 256);
    let id = paging.reserve(&Contract::hard(6)).expect("frames");
    let area = paging.create_area(50, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(50);
    memory.attach(&paging, id, area);
    for page in 0..50 {
        memory.fill(page, u64::from(page));
    }
    assert!((0..50).all(|page| memory.holds(page, u64::from(page))));
    paging.audit();
}

#[test]
#[ignore = "run by another test as an ordinary user"]
fn ordinary_with_locks() {
    let paging = Paging::open(Options {
        store: Some(Box::new(MemoryStore::new(256))),
        ..Options::new(64)
    });
    let paging = paging.expect("a kernel with userfaultfd");
    assert!(paging.held().locked, "the limit is beyond 64 pages");
    let memory = Addresses::reserve(50);
    for _ in 0..100 {
        let id = paging.reserve(&Contract::hard(6)).expect("frames");
        let area = paging.create_area(50, Sharing::Conserve).expect("an area");
        memory.attach(&paging, id, area);
        memory.store(1, 7);
        while paging.end_step(id, 64).expect("steps") == Ending::More {}
    }
    assert!(paging.held().locked);
}

#[test]
fn an_ordinary_user_can_page_as_well() {
    as_an_ordinary_user("ordinary");
}

#[test]
fn tenants_that_end_use_up_nothing_of_what_an_ordinary_user_may_lock() {
    as_an_ordinary_user("ordinary_with_locks");
}

/// Runs a test as a user that may lock 4 MiB: as nobody, or as the present user.
fn as_an_ordinary_user(test: &str) {
    let nobody = 65_534;
    let output = alone(test, |command| {
        if rustix::process::geteuid().is_root() {
            command.uid(nobody).gid(nobody).current_dir("/");
        }
        let limit = Rlimit {
            current: Some(4 << 20),
            maximum: Some(4 << 20),
        };
        let limit = move || Ok(setrlimit(Resource::Memlock, limit)?);
        // SAFETY: a system call.
        unsafe { command.pre_exec(limit) };
    });
    match output {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => println!("skipped: the test cannot be started by an ordinary user: {error}"),
    }
}

#[test]
#[ignore = "killed by another test while it writes pages out"]
fn endless() {
    let path = std::env::var("LEASEHOLD_SWAP").expect("a path");
    let store = leasehold_pager_linux::SwapFile::create(path.as_ref(), 1_024);
    let paging = Paging::open(Options {
        store: Some(Box::new(store.expect("a store"))),
        ..Options::new(64)
    });
    let paging = paging.expect("a kernel with userfaultfd");
    let id = paging.reserve(&Contract::hard(16)).expect("frames");
    let area = paging.create_area(512, Sharing::Conserve).expect("an area");
    let memory = Addresses::reserve(512);
    memory.attach(&paging, id, area);
    for round in 0.. {
        for page in 0..512 {
            memory.fill(page, round);
        }
        println!("{round}");
    }
}

#[test]
fn a_process_killed_in_mid_swap_leaves_nothing_and_hinders_no_other() {
    use std::io::BufRead;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = directory.path().join("swap");
    if let Err(error) = leasehold_pager_linux::SwapFile::create(&path, 8) {
        println!("skipped: {error}");
        return;
    }
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["endless", "--exact", "--ignored", "--nocapture"])
            .env("LEASEHOLD_SWAP", &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let output = std::io::BufReader::new(child.stdout.take().expect("piped"));
        // It has been through the file, and is on its way again.
        let begun = output.lines().map_while(Result::ok);
        assert!(begun.into_iter().any(|line| line.trim() == "1"));
        child.kill().expect("alive");
        assert_eq!(child.wait().expect("a child").signal(), Some(libc::SIGKILL));
        assert_eq!(std::fs::read_dir(&directory).expect("there").count(), 0);
    }
}
