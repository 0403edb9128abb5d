//! A workload whose lock acquisitions are known by construction, to check a tracer with:
//!
//! ```text
//! ground-truth pipe N              2 N times pipe_inode_info.mutex: N in pipe_write, N in pipe_read
//! ground-truth fifo N FILE         the same of the pipe that FILE is, which several can fight for
//! ground-truth directory N DIR     at least 2 N times the directory's i_rwsem: N in do_unlinkat
//! ground-truth futex N             N times the lock of one bucket of the futexes' hash table
//! ground-truth mmap N              2 N times mm_struct.mmap_lock for writing
//! ```

use std::error::Error;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
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
        _ => Err("usage: ground-truth pipe|fifo|directory|futex|mmap N [FILE|DIR]".into()),
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
