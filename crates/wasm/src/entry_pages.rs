//! Pages of an [entry](crate::entry) that is mapped as code: locked, so that none is ever read from a disk while tenants run.
//! Those of an image behind the code are mapped with it, and stay in memory for the instances that are shown them.
//!
//! The kernel has a lock on the mappings of a process, and a cell whose tenant grows its memory waits for it. A thread that reads
//! 15 MB of code into memory under it, or takes as much away, and is stopped by another program of the host meanwhile, stops
//! the cell. So pages come one by one, by faults, which take another lock; they are locked a few at a time, and go a few at a
//! time, before the mapping does.

use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MlockFlags, madvise, mlock_with};

use crate::code::Code;
use crate::image::PAGE;

/// Bytes that are locked, or given back, under the kernel's lock at once: some ten microseconds.
const STEP: usize = 64 * PAGE;

/// How long steps follow each other before others run: less than the kernel's shortest time slice, 0.7 ms.
const TURN: Duration = Duration::from_micros(100);

/// The pages of an entry that is mapped. When they are dropped, they are given back; a user of the code that is
/// there still would find them again, more slowly.
#[allow(missing_debug_implementations)]
pub struct EntryPages {
    /// The code, whose mapping is there as long as this is.
    code: Code,
    /// Bytes from its start that are the file's.
    length: usize,
}

impl EntryPages {
    /// Locks the first `length` bytes of the mapping of `code`, and reads them into memory; `None` if the system refuses that.
    ///
    /// # Safety
    /// The code is mapped from a file that does not change.
    pub(crate) unsafe fn lock(code: &Code, length: usize) -> Option<Self> {
        let mapped = code.range();
        let length = length.min(mapped.end.addr() - mapped.start.addr());
        let pages = Self {
            code: code.clone(),
            length,
        };
        let mut turn = Turn::begin();
        for step in steps(length) {
            turn.go_on();
            // SAFETY: locking changes nothing. The pages are unlocked when they are unmapped.
            unsafe {
                let start = mapped.start.add(step.start).cast_mut().cast();
                mlock_with(start, step.len(), MlockFlags::ONFAULT).ok()?;
            }
        }
        for at in (0..length).step_by(PAGE) {
            // SAFETY: within the mapping, which is there and readable as long as the code.
            unsafe { mapped.start.add(at).read_volatile() };
        }
        Some(pages)
    }

    /// They stay until the mapping goes.
    pub(crate) fn leave(mut self) {
        self.length = 0;
    }
}

impl Drop for EntryPages {
    fn drop(&mut self) {
        let start = self.code.range().start;
        let mut turn = Turn::begin();
        for step in steps(self.length) {
            turn.go_on();
            // SAFETY: the pages are as the file has them: the engine refuses code that it would have to relocate, and has made
            // them read-only. So they read the same when they are read from the file again.
            let given_back = unsafe {
                let page = start.add(step.start).cast_mut().cast();
                madvise(page, step.len(), Advice::LinuxDontneedLocked)
            };
            // Before Linux 5.18 they go with the mapping.
            if given_back.is_err() {
                return;
            }
        }
    }
}

fn steps(length: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..length).step_by(STEP);
    starts.map(move |start| start..length.min(start + STEP))
}

/// A time slice of the kernel, of which a thread gives up the rest before the kernel would take it from the thread in a step.
struct Turn(Instant);

impl Turn {
    /// How much of its time slice the thread has used already is not known.
    fn begin() -> Self {
        std::thread::yield_now();
        Self(Instant::now())
    }

    /// Lets others run, unless they did just now.
    fn go_on(&mut self) {
        if self.0.elapsed() >= TURN {
            *self = Self::begin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryPages, PAGE};
    use crate::code::Code;
    use std::fs;
    use wasmtime::{Engine, Instance, Module, Store};

    /// KiB that are in memory of the mappings within `code`.
    fn resident_kib(code: &Code) -> u64 {
        let within = code.range();
        let within = within.start.addr()..within.end.addr();
        let smaps = fs::read_to_string("/proc/self/smaps").expect("readable");
        let (mut is_within, mut kib) = (false, 0);
        for line in smaps.lines() {
            let start = line.split_once('-').map(|(start, _)| start);
            let start = start.and_then(|start| usize::from_str_radix(start, 16).ok());
            if let Some(start) = start {
                is_within = within.contains(&start);
            } else if let (true, Some(rss)) = (is_within, line.strip_prefix("Rss:")) {
                let rss = rss.trim().trim_end_matches(" kB");
                kib += rss.parse::<u64>().expect("a number");
            }
        }
        kib
    }

    #[test]
    fn all_pages_of_code_are_there_until_they_are_given_back_and_then_read_the_same() {
        if !leasehold_confine::locks_without_limit() {
            eprintln!("not run: this process may not lock memory");
            return;
        }
        let bodies =
            (0..5000).map(|n| format!("(func (export \"{n}\") (result i32) (i32.const {n}))"));
        let text = format!("(module {})", bodies.collect::<String>());
        let engine = Engine::default();
        let bytes = Module::new(&engine, text).expect("a module").serialize();
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), bytes.expect("serialised")).expect("written");
        // SAFETY: the engine serialised it, and nothing changes it.
        let module = unsafe { Module::deserialize_file(&engine, file.path()) };
        let module = module.expect("a module");
        let code = Code::Module(module.clone());
        let length = code.bytes() as usize;
        assert!(length > 4 * super::STEP, "several steps");
        // SAFETY: it is mapped from that file.
        let pages = unsafe { EntryPages::lock(&code, length) }.expect("locked");
        let pages_kib = length.next_multiple_of(PAGE) as u64 >> 10;
        assert_eq!(resident_kib(&code), pages_kib);
        drop(pages);
        assert_eq!(resident_kib(&code), 0);
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).expect("an instance");
        let last = instance.get_typed_func::<(), i32>(&mut store, "4999");
        assert_eq!(
            last.expect("there").call(&mut store, ()).expect("runs"),
            4999
        );
    }
}
