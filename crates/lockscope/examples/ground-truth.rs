//! A workload whose lock acquisitions are known by construction, to check a tracer with:
//!
//! ```text
//! ground-truth pipe N              2 N times pipe_inode_info.mutex: N in pipe_write, N in pipe_read
//! ground-truth fifo N FILE         the same of the pipe that FILE is, which several can fight for
//! ground-truth directory N DIR     at least 2 N times the directory's i_rwsem: N in do_unlinkat
//! ground-truth futex N             N times the lock of one bucket of the futexes' hash table
//! ground-truth mmap N              2 N times mm_struct.mmap_lock for writing
//! ground-truth hold N MICROSECONDS FILE
//!                                  N times a pipe's mutex, held for so long in pipe_write: what is
//!                                  written lies in a page that comes only then. FILE then says for
//!                                  how long at least and at most, in nanoseconds
//! ground-truth alternate N PHASE TURN DIR
//!                                  creates and removes N files in each phase of PHASE ms that is
//!                                  even (TURN 0) or odd (TURN 1), by the clock
//! ground-truth round N DIR FILE    as `directory`, and FILE says what a file took, in nanoseconds
//! ```

use std::error::Error;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{
    Advice, MapFlags, ProtFlags, UserfaultfdFlags, madvise, mmap_anonymous, munmap, userfaultfd,
};
use rustix::thread::futex;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["pipe", count] => pipe(count.parse()?),
        ["fifo", count, file] => fifo(count.parse()?, Path::new(file)),
        ["directory", count, directory] => files(count.parse()?, Path::new(directory)),
        ["futex", count] => futexes(count.parse()?),
        ["mmap", count] => mappings(count.parse()?),
        ["hold", count, time, file] => {
            let time = Duration::from_micros(time.parse()?);
            holds(count.parse()?, time, Path::new(file))
        }
        ["alternate", count, phase, turn, directory] => {
            let directory = Path::new(directory);
            alternate(count.parse()?, phase.parse()?, turn.parse()?, directory)
        }
        ["round", count, directory, file] => {
            let count: u64 = count.parse()?;
            let begun = Instant::now();
            files(count, Path::new(directory))?;
            let each = begun.elapsed().as_nanos() / u128::from(count);
            Ok(fs::write(file, each.to_string())?)
        }
        _ => Err(
            "usage: ground-truth pipe|fifo|directory|futex|mmap|hold|alternate|round N …".into(),
        ),
    }
}

fn pipe(count: u64) -> Result<(), Box<dyn Error>> {
    let (reader, writer) = rustix::pipe::pipe()?;
    pass_bytes(count, reader, writer)
}

/// A reader has written one byte more than it has read, so that every read finds one.
fn fifo(count: u64, file: &Path) -> Result<(), Box<dyn Error>> {
    let both = fs::File::options().read(true).write(true).open(file)?;
    pass_bytes(count, &both, &both)
}

fn pass_bytes(count: u64, reader: impl AsFd, writer: impl AsFd) -> Result<(), Box<dyn Error>> {
    let mut byte = [0];
    for _ in 0..count {
        rustix::io::write(&writer, &[1])?;
        rustix::io::read(&reader, &mut byte)?;
    }
    Ok(())
}

fn files(count: u64, directory: &Path) -> Result<(), Box<dyn Error>> {
    let file = directory.join(format!("ground-truth-{}", std::process::id()));
    for _ in 0..count {
        fs::File::create(&file)?;
        fs::remove_file(&file)?;
    }
    Ok(())
}

/// Waits for a value that has changed: the kernel checks it under the lock, and returns.
fn futexes(count: u64) -> Result<(), Box<dyn Error>> {
    let word = AtomicU32::new(1);
    for _ in 0..count {
        match futex::wait(&word, futex::Flags::PRIVATE, 0, None) {
            Err(rustix::io::Errno::AGAIN) => {}
            other => return Err(format!("futex_wait returned {other:?}").into()),
        }
    }
    Ok(())
}

fn mappings(count: u64) -> Result<(), Box<dyn Error>> {
    let size = 4096;
    for _ in 0..count {
        // SAFETY: a new mapping at an address of the kernel's choice, without references to it.
        let mapping = unsafe {
            let flags = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(std::ptr::null_mut(), size, flags, MapFlags::PRIVATE)?
        };
        // SAFETY: it was just made, with this size, and is not used.
        unsafe { munmap(mapping, size)? };
    }
    Ok(())
}

/// For half of the time; the other half is another workload's. Twenty phases of its own.
fn alternate(count: u64, phase: u64, turn: u64, directory: &Path) -> Result<(), Box<dyn Error>> {
    let now = || {
        let since = SystemTime::UNIX_EPOCH.elapsed();
        since.map_or(0, |since| since.as_millis() as u64)
    };
    let mut last = now() / phase;
    for _ in 0..20 {
        while now() / phase == last || now() / phase % 2 != turn {
            thread::sleep(Duration::from_millis(1));
        }
        last = now() / phase;
        // Not to the end of the phase, so that the two never meet.
        let end = last * phase + phase * 3 / 4;
        for number in 0..count {
            if now() >= end {
                break;
            }
            let file = directory.join(format!("alternate-{turn}-{number}"));
            fs::File::create(&file)?;
            fs::remove_file(&file)?;
        }
    }
    Ok(())
}

/// The kernel's structures for user-space page faults (`linux/userfaultfd.h`).
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    copied: i64,
}

const FAULTS: u8 = 0xaa;
const API: Opcode = opcode::read_write::<Api>(FAULTS, 0x3f);
const REGISTER: Opcode = opcode::read_write::<Register>(FAULTS, 0x00);
const COPY: Opcode = opcode::read_write::<Copy>(FAULTS, 0x03);
const MISSING: u64 = 1;
const PAGE: usize = 4096;

/// A writer to a pipe has its mutex while it waits for the page that the bytes come from.
fn holds(count: u64, time: Duration, file: &Path) -> Result<(), Box<dyn Error>> {
    // SAFETY: it stays in this process, and is asked for its own mapping only.
    let faults = unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC)? };
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, without references to it.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, flags, MapFlags::PRIVATE)? };
    let mut api = Api {
        api: 0xaa,
        features: 0,
        ioctls: 0,
    };
    // SAFETY: the structure is the one that the request is for.
    unsafe { ioctl(&faults, Updater::<API, _>::new(&mut api))? };
    let mut range = Register {
        start: page as u64,
        length: PAGE as u64,
        mode: MISSING,
        ioctls: 0,
    };
    // SAFETY: likewise; the range is the mapping.
    unsafe { ioctl(&faults, Updater::<REGISTER, _>::new(&mut range))? };
    let address = page as u64;
    let handler = thread::spawn(move || -> rustix::io::Result<u64> {
        let source = vec![7u8; PAGE];
        let mut least = 0;
        for _ in 0..count {
            let mut event = [0; 32];
            rustix::io::read(&faults, &mut event)?;
            let begun = Instant::now();
            thread::sleep(time);
            least += begun.elapsed().as_nanos() as u64;
            let mut copy = Copy {
                to: address,
                from: source.as_ptr() as u64,
                length: PAGE as u64,
                mode: 0,
                copied: 0,
            };
            // SAFETY: likewise; the target is the mapping, the source lives on.
            unsafe { ioctl(&faults, Updater::<COPY, _>::new(&mut copy))? };
        }
        Ok(least)
    });
    let (reader, writer) = rustix::pipe::pipe()?;
    let mut most = 0;
    let mut byte = [0];
    for _ in 0..count {
        // SAFETY: the mapping is ours; its bytes are read by the kernel only, one at a time.
        let source = unsafe { std::slice::from_raw_parts(page.cast::<u8>(), 1) };
        let begun = Instant::now();
        rustix::io::write(&writer, source)?;
        most += begun.elapsed().as_nanos() as u64;
        rustix::io::read(&reader, &mut byte)?;
        // SAFETY: the mapping is ours, and what is in it is not needed any more.
        unsafe { madvise(page, PAGE, Advice::LinuxDontNeed)? };
    }
    let least = handler.join().map_err(|_| "the handler panicked")??;
    Ok(fs::write(
        file,
        format!("{} {}", least / count, most / count),
    )?)
}
