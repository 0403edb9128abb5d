//! Tests which work on files is done on the cell's thread.

use super::account::Account;
use super::attempt::Try;
use super::change::{self, Effect, PairChange};
use super::class::{Class, Site};
use super::descriptor::{Mode as OpenMode, Node};
use super::growth::Growth;
use super::limit::CLOSING;
use super::open::Request;
use super::pace::Permit;
use super::path::attempt_status;
use super::table::Table;
use super::transfer::{self, Tried};
use crate::host::io::Io;
use crate::host::linux;
use crate::profile::Profile;
use leasehold_kernel::{Kernel, KernelConfig, TenantId};
use leasehold_lease::Lease;
use leasehold_reclaim::{Config, HeapBacking, Mode};
use rustix::fs::{Advice, FileType, StatxFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

const WRITE: Request = Request {
    follow: false,
    create: true,
    exclusive: false,
    truncate: false,
    directory: false,
    sync: false,
    mode: OpenMode {
        read: true,
        write: true,
    },
};

/// Returns a tenant's number.
fn tenant() -> TenantId {
    let reclaim = Config {
        arena_bytes: 1 << 20,
        keep_resident: 1 << 20,
        mode: Mode::Grouped,
        max_groups: 16,
    };
    let config = KernelConfig {
        reclaim,
        max_executions: 16,
        max_channel_bytes: 1 << 16,
        max_region_bytes: 1 << 20,
        timer_floor_ns: 50_000,
    };
    let mut kernel = Kernel::new(config, Profile::free().kernel_costs(), HeapBacking);
    kernel.admit(1_000_000, 0).expect("admitted")
}

/// A tenant with a directory.
struct Bench {
    directory: tempfile::TempDir,
    start: Arc<Node>,
    account: Arc<Account>,
    table: Table,
}

impl Bench {
    /// Creates a bench in `base`; returns `None` where no disk is below that directory.
    fn new(base: &Path) -> Option<Self> {
        Self::of(&Lease::default(), base)
    }

    /// Creates the bench of a tenant with this lease.
    fn of(lease: &Lease, base: &Path) -> Option<Self> {
        let directory = tempfile::tempdir_in(base).expect("a directory");
        let fd = linux::open_ambient(directory.path()).expect("opened");
        let class = Class::of(fd.as_fd()).expect("a file system");
        let io = Arc::new(Io::start(None).expect("threads"));
        let account = Arc::new(Account::new(lease, None, None, io));
        (class == Class::Cached).then(|| Self {
            start: Arc::new(Node::new(fd, FileType::Directory, class)),
            table: Table::new(tenant(), 0, account.clone()),
            account,
            directory,
        })
    }

    /// Whether it was done here; done now, in any case.
    fn is_here<T: std::fmt::Debug>(&self, tried: Try<T>) -> bool {
        match tried {
            Try::Done(result) => {
                result.expect("done");
                true
            }
            Try::Elsewhere(work) => {
                work().expect("done");
                false
            }
        }
    }

    fn open(&self, request: Request, path: &CStr) -> (Node, bool) {
        self.rest();
        match request.attempt(self.table.files(), &self.start, path) {
            Try::Done(node) => (node.expect("opened"), true),
            Try::Elsewhere(work) => (work().expect("opened"), false),
        }
    }

    /// Forgets slow calls, so that those of a busy machine do not send work to other threads.
    fn rest(&self) {
        super::pace::start_again();
    }

    fn makes_directory(&self, path: &CStr) -> bool {
        self.rest();
        let work = change::create_directory;
        self.is_here(change::attempt(
            &self.account,
            &self.start,
            path,
            Effect::AddsDirectory,
            work,
        ))
    }

    fn removes_directory(&self, path: &CStr) -> bool {
        self.rest();
        let (effect, work) = (Effect::RemovesDirectory, change::remove_directory);
        self.is_here(change::attempt(
            &self.account,
            &self.start,
            path,
            effect,
            work,
        ))
    }

    fn unlinks(&self, path: &CStr) -> bool {
        self.rest();
        let work = change::unlink;
        self.is_here(change::attempt(
            &self.account,
            &self.start,
            path,
            Effect::Removes,
            work,
        ))
    }

    fn pairs(&self, old: &CStr, new: &CStr, change: PairChange) -> bool {
        self.rest();
        let (from, to) = ((&self.start, old), (&self.start, new));
        self.is_here(change::attempt_pair(&self.account, from, to, change))
    }

    /// Looks a name up, so that the kernel caches whether it exists.
    /// Waits until what waits to be closed is.
    fn wait_for_closes(&self) {
        let began = std::time::Instant::now();
        while !self.account.is_closed() {
            assert!(began.elapsed().as_secs() < 20);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn look(&self, path: &CStr) {
        let _ = linux::status_at(self.start.as_fd(), path, StatxFlags::TYPE);
    }
}

fn bench() -> Option<Bench> {
    Bench::new(Path::new(env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn names_that_are_known_are_made_and_removed_without_another_thread() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    bench.look(c"d");
    assert!(bench.makes_directory(c"d"));
    bench.look(c"d/f");
    let (node, here) = bench.open(WRITE, c"d/f");
    assert!(here, "a file is created");
    drop(node);
    bench.look(c"g");
    assert!(bench.pairs(c"d/f", c"g", PairChange::Rename));
    bench.look(c"h");
    assert!(bench.pairs(c"g", c"h", PairChange::Link));
    assert!(bench.unlinks(c"g") && bench.unlinks(c"h"));
    assert!(
        bench.removes_directory(c"d"),
        "few names can be missing in it"
    );
}

#[test]
fn a_directory_of_the_same_name_is_made_and_removed_again_and_again_without_another_thread() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    bench.look(c"d");
    bench.look(c"e");
    assert!(bench.makes_directory(c"e"));
    bench.look(c"e/d");
    for _ in 0..10 {
        for path in [c"d", c"e/d"] {
            assert!(bench.makes_directory(path), "{path:?}");
            assert!(bench.removes_directory(path), "{path:?}");
        }
    }
}

#[test]
fn a_directory_in_which_many_names_may_be_missing_is_removed_by_another_thread() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    for name in [c"young", c"old", c"theirs"] {
        bench.look(name);
    }
    // Some other program's, about which nothing is known.
    std::fs::create_dir(bench.directory.path().join("theirs")).expect("made");
    bench.look(c"theirs");
    assert!(!bench.removes_directory(c"theirs"));
    assert!(bench.makes_directory(c"old"));
    for number in 0..200 {
        let name = std::ffi::CString::new(format!("old/{number}")).expect("a name");
        bench.look(&name);
    }
    assert!(bench.makes_directory(c"young"));
    // An old directory is not young for the name of a young one.
    let exchanged = [(c"young", c"spare"), (c"old", c"young")];
    for (from, to) in exchanged {
        let (from, to) = (from.to_bytes(), to.to_bytes());
        let place = |name: &[u8]| {
            bench
                .directory
                .path()
                .join(str::from_utf8(name).expect("text"))
        };
        std::fs::rename(place(from), place(to)).expect("renamed");
    }
    bench.look(c"young");
    bench.look(c"spare");
    assert!(!bench.removes_directory(c"young"), "it was the old one");
    assert!(bench.removes_directory(c"spare"), "it was the young one");
}

/// Holds up the thread that closes files until the other end is dropped.
struct Hanging(std::sync::mpsc::Receiver<()>);

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.0.recv();
    }
}

#[test]
fn the_blocks_of_a_removed_directory_are_freed_by_the_thread_that_closes_files() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    let (release, waits) = std::sync::mpsc::channel();
    bench.account.close(1, Hanging(waits));
    let is_held = |name: &str| {
        let gone = format!("{name} (deleted)");
        let open = std::fs::read_dir("/proc/self/fd").expect("listed");
        open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .any(|file| file == bench.directory.path().join(&gone))
    };
    for name in [c"d", c"e"] {
        bench.look(name);
        assert!(bench.makes_directory(name) && bench.removes_directory(name));
        assert!(is_held(name.to_str().expect("text")));
    }
    // No more than a tenant's files may wait to be closed.
    bench.look(c"f");
    assert!(bench.makes_directory(c"f"));
    while !bench.account.is_backed_up() {
        bench.account.close(1, ());
    }
    assert!(!bench.removes_directory(c"f"));
    assert!(!is_held("f"));
    drop(release);
    bench.wait_for_closes();
    assert!(!is_held("d") && !is_held("e"));
}

#[test]
fn no_more_files_that_were_looked_at_wait_to_be_closed_than_are_set_aside() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    let path = bench.directory.path().join("large");
    let file = std::fs::File::create(&path).expect("created");
    file.set_len(1 << 20).expect("sized");
    let (release, waits) = std::sync::mpsc::channel();
    bench.account.close(1, Hanging(waits));
    let open = || {
        let open = std::fs::read_dir("/proc/self/fd").expect("listed");
        open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
            .filter(|file| *file == path)
            .count()
    };
    for _ in 0..100 {
        let looked = attempt_status(&bench.account, &bench.start, c"large", false);
        bench.is_here(looked);
    }
    assert!(open() <= CLOSING as usize, "{}", open());
    drop(release);
    bench.wait_for_closes();
    assert_eq!(open(), 1, "the test's own");
}

#[test]
fn names_that_the_disk_would_have_to_be_asked_for_are_left_to_another_thread() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    let name = std::ffi::CString::new(format!("never-{}", std::process::id())).expect("a name");
    assert!(!bench.makes_directory(&name));
    assert!(!bench.removes_directory(&name));
}

#[test]
fn what_could_free_or_write_much_is_left_to_another_thread() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    let path = bench.directory.path().join("large");
    let file = std::fs::File::create(&path).expect("created");
    file.set_len(1 << 20).expect("sized");
    assert!(!bench.unlinks(c"large"));
    // A file that replaces another is written out first.
    for name in ["new", "old"] {
        std::fs::write(bench.directory.path().join(name), "text").expect("written");
    }
    assert!(!bench.pairs(c"new", c"old", PairChange::Rename));
    // A long path is resolved where it delays no other tenant.
    let long = std::ffi::CString::new(format!("{}old", "./".repeat(200))).expect("a path");
    assert!(!bench.unlinks(&long));
}

#[test]
fn a_file_that_was_made_smaller_is_closed_by_another_thread() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    bench.look(c"f");
    let (node, _) = bench.open(WRITE, c"f");
    bench.rest();
    assert!(node.close_permit(true).is_some());
    drop(node);
    let truncate = Request {
        truncate: true,
        ..WRITE
    };
    let (node, here) = bench.open(truncate, c"f");
    assert!(here, "it is small");
    assert!(
        node.close_permit(true).is_none(),
        "the file system may write it out"
    );
    assert!(node.close_permit(false).is_some());
}

#[test]
fn a_file_that_was_created_and_written_is_closed_here_while_it_is_small() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    bench.look(c"f");
    let (node, here) = bench.open(WRITE, c"f");
    assert!(here);
    rustix::io::write(node.as_fd(), b"text").expect("written");
    bench.rest();
    assert!(node.close_permit(true).is_some());
    rustix::fs::ftruncate(node.as_fd(), 1 << 20).expect("sized");
    assert!(node.close_permit(true).is_none());
    drop(node);
    let status = attempt_status(&bench.account, &bench.start, c"f", true);
    assert!(bench.is_here(status));
}

#[test]
fn writes_to_what_a_file_has_are_not_measured_until_a_tenant_has_made_it_smaller() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    bench.look(c"f");
    let (node, _) = bench.open(WRITE, c"f");
    rustix::io::write(node.as_fd(), &[1; 1000]).expect("written");
    let is_measured = |at, bytes| node.write_again(at, bytes, || ()).is_none();
    assert!(is_measured(Some(0), 10), "nothing is known yet");
    node.wrote(node.state(), Some(0), 1000);
    assert!(!is_measured(Some(5), 1000));
    assert!(is_measured(Some(5), 1024), "beyond what it has");
    assert!(is_measured(None, 1), "wherever the end is");
    // Another tenant with the same directory.
    let io = Arc::new(Io::start(None).expect("threads"));
    let account = Arc::new(Account::new(&Lease::default(), None, None, io));
    let table = Table::new(tenant(), 1, account);
    let theirs = match WRITE.attempt(table.files(), &bench.start, c"f") {
        Try::Done(node) => node.expect("opened"),
        Try::Elsewhere(work) => work().expect("opened"),
    };
    theirs
        .resize(Site::Blocking, 0)
        .expect("at once")
        .expect("resized");
    assert!(is_measured(Some(5), 1));
}

#[test]
fn nothing_waits_here_for_what_another_thread_has_locked() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    for name in [c"f", c"g"] {
        bench.look(name);
    }
    let (file, _) = bench.open(WRITE, c"f");
    let (other, _) = bench.open(WRITE, c"g");
    bench.look(c"d");
    let writes = |node: &Node| {
        bench.rest();
        Permit::for_write(node, 10).is_some()
    };
    assert!(writes(&file) && writes(&other));
    let cut = file.elsewhere();
    assert!(!writes(&file) && writes(&other));
    assert!(!bench.makes_directory(c"d"));
    assert!(!bench.unlinks(c"g"));
    drop(cut);
    assert!(writes(&file));
    bench.look(c"e");
    assert!(bench.makes_directory(c"e"));
}

#[test]
fn a_path_through_a_symbolic_link_is_walked_by_another_thread() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    bench.look(c"f");
    let (node, _) = bench.open(WRITE, c"f");
    drop(node);
    rustix::fs::symlinkat(c"f", bench.start.as_fd(), c"link").expect("a link");
    bench.look(c"link");
    // Each link may say 4 KiB of names, and lead to the next.
    let through = attempt_status(&bench.account, &bench.start, c"link", true);
    assert!(!bench.is_here(through));
    let itself = attempt_status(&bench.account, &bench.start, c"link", false);
    assert!(bench.is_here(itself));
}

#[test]
fn what_symbolic_links_say_is_counted_and_given_back() {
    let io = Arc::new(Io::start(None).expect("threads"));
    let account = Arc::new(Account::new(&Lease::default(), None, None, io));
    let directory = tempfile::tempdir().expect("a directory");
    let start = rustix::fs::open(directory.path(), rustix::fs::OFlags::PATH, 0.into());
    let class = Class::Slow;
    let start = Arc::new(Node::new(
        start.expect("opened"),
        rustix::fs::FileType::Directory,
        class,
    ));
    let run = |tried| match tried {
        Try::Done(result) => result,
        Try::Elsewhere(work) => work(),
    };
    let target = std::ffi::CString::new("x/".repeat(100)).expect("a path");
    let effect = Effect::AddsLink(200);
    let made = change::attempt(&account, &start, c"link", effect, move |place| {
        change::symlink(place, &target)
    });
    assert_eq!(run(made), Ok(()));
    assert_eq!(account.disk().bytes(), 4096);
    let removed = change::attempt(&account, &start, c"link", Effect::Removes, change::unlink);
    assert_eq!(run(removed), Ok(()));
    assert_eq!(account.disk().bytes(), 0);
}

#[test]
fn a_name_that_is_made_while_it_is_removed_is_given_back_too() {
    let _turn = linux::faults::Turn::take();
    let lease = Lease {
        disk: leasehold_lease::Disk {
            files: 1,
            ..Lease::default().disk
        },
        ..Lease::default()
    };
    let Some(bench) = Bench::of(&lease, Path::new(env!("CARGO_MANIFEST_DIR"))) else {
        return;
    };
    let (account, start) = (bench.account.clone(), bench.start.clone());
    let link = |account: &Arc<Account>, start: &Arc<Node>, name| {
        super::pace::start_again();
        change::attempt(account, start, name, Effect::AddsLink(1), |place| {
            change::symlink(place, c"x")
        })
    };
    let done = |tried| match tried {
        Try::Done(result) => result,
        Try::Elsewhere(work) => work(),
    };
    bench.look(c"link");
    // Another thread has found that nothing has the name, and is about to remove it all the same. The cell's thread
    // makes it now, unless that is left for later.
    let later = Arc::new(std::sync::Mutex::new(None));
    let put = later.clone();
    let removed = change::attempt(&account, &start, c"link", Effect::Removes, {
        let (account, start) = (account.clone(), start.clone());
        move |place| {
            match link(&account, &start, c"link") {
                Try::Done(made) => made.expect("made"),
                Try::Elsewhere(work) => *put.lock().expect("locked") = Some(work),
            }
            change::unlink(place)
        }
    });
    if done(removed).is_err() {
        let work = later
            .lock()
            .expect("locked")
            .take()
            .expect("left for later");
        work().expect("made");
        bench.unlinks(c"link");
    }
    let again = done(link(&account, &start, c"link"));
    assert_eq!(again, Ok(()), "no link is there, and one may be");
}

#[test]
fn a_read_is_of_all_that_a_file_has_or_is_left_to_another_thread() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    bench.look(c"f");
    let (node, _) = bench.open(WRITE, c"f");
    rustix::io::pwrite(node.as_fd(), &[7; 8 << 14], 0).expect("written");
    rustix::fs::fsync(node.as_fd()).expect("on the disk");
    // Nothing of it is in memory then.
    linux::advise(node.as_fd(), 0, 0, Advice::DontNeed).expect("forgotten");
    let read = |length: usize, offset| {
        let mut buffer = vec![1; length];
        match transfer::read_now(&node, &mut buffer, offset).expect("read") {
            Tried::Moved(read) => {
                buffer.truncate(read);
                buffer
            }
            Tried::Blocks => transfer::read(&node, length, offset).expect("read"),
        }
    };
    assert_eq!(read(1 << 14, 0), [7; 1 << 14]);
    // Of this, only the first half is.
    assert_eq!(read(1 << 15, 0), [7; 1 << 15]);
    assert_eq!(read(1 << 15, (8 << 14) - 10).len(), 10);
    assert!(read(1 << 15, 8 << 14).is_empty());
    assert!(read(0, 0).is_empty());
}

#[test]
fn what_a_symbolic_link_says_is_short() {
    let io = Arc::new(Io::start(None).expect("threads"));
    let account = Arc::new(Account::new(&Lease::default(), None, None, io));
    let directory = tempfile::tempdir().expect("a directory");
    let start = linux::open_ambient(directory.path()).expect("opened");
    let start = Arc::new(Node::new(start, FileType::Directory, Class::Slow));
    let link = |bytes: usize| {
        let target = std::ffi::CString::new("x".repeat(bytes)).expect("a path");
        let effect = Effect::AddsLink(bytes);
        let made = change::attempt(&account, &start, c"link", effect, move |place| {
            change::symlink(place, &target)
        });
        match made {
            Try::Done(result) => result,
            Try::Elsewhere(work) => work(),
        }
    };
    assert_eq!(link(256), Err(Errno::NAMETOOLONG));
    assert_eq!(link(255), Ok(()));
}

#[test]
fn what_directories_take_is_counted_and_given_back_with_them() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    let taken = || bench.account.disk().bytes();
    let on_disk = |path: &CStr| {
        let status = linux::status_at(bench.start.as_fd(), path, StatxFlags::BLOCKS);
        linux::on_disk(&status.expect("known"))
    };
    let top = || on_disk(c".");
    let before = top();
    bench.makes_directory(c"d");
    let directory = on_disk(c"d");
    assert_eq!(taken(), directory + top() - before);
    let names = (0..200).map(|number| format!("d/{number:0250}"));
    let names: Vec<_> = names
        .map(|name| std::ffi::CString::new(name).expect("a name"))
        .collect();
    for (number, name) in names.iter().enumerate() {
        // Of each way in which a name is made, by this thread and by others.
        if number % 2 == 0 {
            bench.look(name);
        }
        match number % 5 {
            0 | 1 => drop(bench.open(WRITE, name)),
            2 => {
                bench.rest();
                let made = change::attempt(
                    &bench.account,
                    &bench.start,
                    name,
                    Effect::AddsLink(1),
                    |place| change::symlink(place, c"x"),
                );
                bench.is_here(made);
            }
            3 => {
                bench.pairs(&names[number - 3], name, PairChange::Link);
            }
            _ => {
                bench.pairs(&names[number - 1], name, PairChange::Rename);
                bench.open(WRITE, &names[number - 1]);
            }
        }
    }
    let grown = on_disk(c"d");
    assert!(grown > directory || directory == 0, "it has grown");
    assert_eq!(taken(), grown + top() - before);
    for name in &names {
        bench.unlinks(name);
    }
    // It may be smaller then.
    let grown = on_disk(c"d").max(grown);
    assert_eq!(taken(), grown + top() - before);
    let directory = Request {
        create: false,
        directory: true,
        mode: OpenMode {
            read: true,
            write: false,
        },
        ..WRITE
    };
    let (first, _) = bench.open(directory, c"d");
    let (second, _) = bench.open(directory, c"d");
    bench.removes_directory(c"d");
    drop(first);
    assert_eq!(taken(), grown + top() - before, "it is open still");
    drop(second);
    assert_eq!(taken(), top() - before);
}

#[test]
fn a_file_that_is_created_through_links_takes_what_its_directory_grows_by_and_no_more() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    let taken = || bench.account.disk().bytes();
    let size = |path: &CStr| {
        let status = linux::status_at(bench.start.as_fd(), path, StatxFlags::BLOCKS);
        linux::on_disk(&status.expect("known"))
    };
    bench.makes_directory(c"d");
    bench.makes_directory(c"d/e");
    let link = |target: &CStr, at| {
        rustix::fs::symlinkat(target, bench.start.as_fd(), at).expect("a link");
    };
    link(c"e/../../d/first", c"d/to-first");
    link(c"d/to-first", c"to-link");
    link(c"/d/first", c"to-root");
    let long = std::ffi::CString::new(format!("d/{:0250}", 0)).expect("a name");
    link(&long, c"to-long");
    let create = Request {
        follow: true,
        ..WRITE
    };
    let directories = || size(c".") + size(c"d");
    let (before, had) = (taken(), directories());
    for _ in 0..300 {
        drop(bench.open(create, c"to-link"));
        bench.unlinks(c"d/first");
        drop(bench.open(create, c"to-long"));
        bench.unlinks(&long);
    }
    bench.wait_for_closes();
    assert_eq!(taken() - before, directories() - had);
    // What is no file of the directory is not made.
    for (request, path, refused) in [
        (create, c"to-root", Errno::XDEV),
        (WRITE, c"to-link", Errno::LOOP),
    ] {
        let opened = match request.attempt(bench.table.files(), &bench.start, path) {
            Try::Done(opened) => opened,
            Try::Elsewhere(work) => work(),
        };
        assert_eq!(opened.map(|_| ()), Err(refused), "{path:?}");
    }
    assert_eq!(taken() - before, directories() - had);
}

#[test]
fn directories_take_no_more_than_the_lease_says_however_often_names_are_removed() {
    let _turn = linux::faults::Turn::take();
    let most = 200 << 10;
    let lease = Lease {
        disk: leasehold_lease::Disk {
            bytes: leasehold_lease::ByteSize::new(most).expect("in range"),
            files: 1_000,
        },
        ..Lease::default()
    };
    let Some(bench) = Bench::of(&lease, Path::new(env!("CARGO_MANIFEST_DIR"))) else {
        return;
    };
    let on_disk = |path: &CStr| {
        let status = linux::status_at(bench.start.as_fd(), path, StatxFlags::BLOCKS);
        status.map_or(0, |status| linux::on_disk(&status))
    };
    let c_string = |text: String| std::ffi::CString::new(text).expect("text");
    let run = |tried: Try<Node>| match tried {
        Try::Done(result) => result,
        Try::Elsewhere(work) => work(),
    };
    let before = on_disk(c".");
    let mut taken = 0;
    for directory in 0..40 {
        let name = c_string(format!("{directory}"));
        bench.rest();
        let made = change::attempt(
            &bench.account,
            &bench.start,
            &name,
            Effect::AddsDirectory,
            change::create_directory,
        );
        let made = match made {
            Try::Done(result) => result,
            Try::Elsewhere(work) => work(),
        };
        if made.is_err() {
            assert_eq!(made, Err(Errno::DQUOT));
            break;
        }
        let paths = (0..100).map(|number| c_string(format!("{directory}/{number:0250}")));
        let mut made = Vec::new();
        for path in paths {
            bench.rest();
            match run(WRITE.attempt(bench.table.files(), &bench.start, &path)) {
                Ok(_) => made.push(path),
                Err(errno) => {
                    assert_eq!(errno, Errno::DQUOT);
                    break;
                }
            }
        }
        made.iter().for_each(|path| {
            bench.unlinks(path);
        });
        taken += on_disk(&name);
    }
    let taken = taken + on_disk(c".") - before;
    assert!(taken <= most, "{taken} bytes");
}

#[test]
fn what_is_many_levels_down_is_found_on_another_thread_however_short_its_path_is() {
    let _turn = linux::faults::Turn::take();
    let Some(mut bench) = bench() else { return };
    let directory = Request {
        create: false,
        directory: true,
        mode: OpenMode {
            read: true,
            write: false,
        },
        ..WRITE
    };
    let mut path = bench.directory.path().to_owned();
    let mut is_here = Vec::new();
    for _ in 0..80 {
        path.push("d");
        std::fs::create_dir(&path).expect("made");
        // The kernel looks it up, so that it waits for nothing.
        std::fs::metadata(&path).expect("there");
        let (node, here) = bench.open(directory, c"d");
        is_here.push(here);
        bench.start = Arc::new(node);
    }
    let (above, below) = is_here.split_at(60);
    assert!(above.iter().all(|here| *here), "{above:?}");
    assert!(below[10..].iter().all(|here| !here), "{below:?}");
    std::fs::write(path.join("f"), "f").expect("written");
    let looks = |path| attempt_status(&bench.account, &bench.start, path, false);
    assert!(matches!(looks(c"f"), Try::Elsewhere(_)));
    assert!(!bench.makes_directory(c"e") && !bench.unlinks(c"f"));
}

#[test]
fn what_the_kernel_refuses_is_refused_by_it() {
    let _turn = linux::faults::Turn::take();
    let Some(bench) = bench() else { return };
    let run = |request: Request, path: &CStr| {
        let tried = request.attempt(bench.table.files(), &bench.start, path);
        match tried {
            Try::Done(result) => result,
            Try::Elsewhere(work) => work(),
        }
    };
    let _writer = run(WRITE, c"a").expect("created");
    let read_only = Request {
        create: false,
        mode: OpenMode {
            read: true,
            write: false,
        },
        ..WRITE
    };
    let reader = run(read_only, c"a").expect("opened");
    bench.unlinks(c"a");
    // No growth is what is wrong with these.
    let resized = reader.resize(Site::Blocking, 1 << 40);
    assert_eq!(resized, Some(Err(Errno::INVAL)));
    let growth = Growth::take(&reader, 1 << 16).expect("nothing is taken");
    let written = growth.write(
        Site::Blocking,
        &reader,
        Some(1 << 40),
        || "the kernel was asked",
    );
    assert_eq!(written, Some(Ok("the kernel was asked")));
    let create = Request {
        follow: true,
        ..WRITE
    };
    run(WRITE, c"b").expect("created");
    for (target, link) in [(c"b/", c"to-b"), (c"loop/", c"loop"), (c"to-b", c"to-link")] {
        rustix::fs::symlinkat(target, bench.start.as_fd(), link).expect("a link");
        let opened = run(create, link).map(|_| ());
        assert_eq!(opened, Err(Errno::ISDIR), "{link:?}");
    }
}
