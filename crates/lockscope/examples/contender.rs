//! Workloads that meet at one kernel object, as often as they are told to, to check a score with:
//!
//! ```text
//! contender OBJECT STEPS DIRECTORY [ROUND]
//! ```
//!
//! Prints `ready`, waits for a line, and prints `round` after every ROUND (200) times that it computes STEPS steps of
//! about a nanosecond and uses the OBJECT once. Contenders with the same DIRECTORY use the same objects.
//!
//! | OBJECT | what is done with it | what excludes the other one |
//! |---|---|---|
//! | `none` | nothing | nothing: the control |
//! | `pipe` | a byte is written and read | `pipe_inode_info.mutex` |
//! | `directory` | a file of its own is made and removed | the directory's `i_rwsem` |
//! | `file` | 4 KiB of its own are written | the file's `i_rwsem` |
//! | `rename` | a file of its own moves to another directory | `super_block.s_vfs_rename_mutex` |
//! | `flock` | a shared lock of a file is taken and given back | `file_lock_context.flc_lock`, which spins |
//! | `futex` | a wait returns at once | the lock of a bucket of futexes, which spins |
//! | `list` | a directory of 20 entries is listed | nothing: both read |

use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

use rustix::fs::{FileType, FlockOperation, Mode};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

const PAGE: usize = 4096;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (object, steps, directory, round) = match arguments.as_slice() {
        [object, steps, directory] => (object, steps, directory, 200),
        [object, steps, directory, round] => (object, steps, directory, round.parse()?),
        _ => return Err("usage: contender OBJECT STEPS DIRECTORY [ROUND]".into()),
    };
    let steps: u64 = steps.parse()?;
    let mut act = action(object, Path::new(directory))?;
    say("ready")?;
    io::stdin().read_line(&mut String::new())?;
    loop {
        for _ in 0..round {
            compute(steps);
            act()?;
        }
        say("round")?;
    }
}

/// A line that is seen at once.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn compute(steps: u64) {
    let mut value = steps;
    for _ in 0..steps {
        value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
    }
}

/// What is done once, with what it needs.
fn action(object: &str, directory: &Path) -> Outcome<Box<dyn FnMut() -> Outcome<()>>> {
    fs::create_dir_all(directory)?;
    let own = format!("of-{}", std::process::id());
    let shared = |name: &str| -> Outcome<File> {
        let path = directory.join(name);
        let options = File::options().read(true).write(true).create(true).clone();
        Ok(options.open(path)?)
    };
    Ok(match object {
        "none" => Box::new(|| Ok(())),
        "pipe" => {
            let path = directory.join("pipe");
            match rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                FileType::Fifo,
                Mode::from_raw_mode(0o600),
                0,
            ) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let both = File::options().read(true).write(true).open(&path)?;
            Box::new(move || {
                rustix::io::write(&both, &[1])?;
                rustix::io::read(&both, &mut [0])?;
                Ok(())
            })
        }
        "directory" => {
            let file = directory.join(own);
            Box::new(move || {
                File::create(&file)?;
                Ok(fs::remove_file(&file)?)
            })
        }
        "file" => {
            let file = shared("file")?;
            let at = u64::from(std::process::id() % 64) * PAGE as u64;
            let bytes = [1; PAGE];
            Box::new(move || Ok(file.write_all_at(&bytes, at)?))
        }
        "rename" => {
            let mut paths: [PathBuf; 2] = [directory.join("one"), directory.join("other")];
            for path in &mut paths {
                fs::create_dir_all(&*path)?;
                path.push(&own);
            }
            File::create(&paths[0])?;
            Box::new(move || {
                fs::rename(&paths[0], &paths[1])?;
                paths.reverse();
                Ok(())
            })
        }
        "flock" => {
            let file = shared("flock")?;
            Box::new(move || {
                rustix::fs::flock(&file, FlockOperation::LockShared)?;
                Ok(rustix::fs::flock(&file, FlockOperation::Unlock)?)
            })
        }
        "futex" => {
            let file = shared("futex")?;
            file.set_len(PAGE as u64)?;
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice, without references to it.
            let page = unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    PAGE,
                    protection,
                    MapFlags::SHARED,
                    &file,
                    0,
                )?
            };
            // SAFETY: the mapping is there as long as the process, aligned, and of a page; all that
            // use the word use it as an atomic one.
            let word: &AtomicU32 = unsafe { AtomicU32::from_ptr(page.cast()) };
            Box::new(
                move || match futex::wait(word, futex::Flags::empty(), 1, None) {
                    Err(rustix::io::Errno::AGAIN) => Ok(()),
                    other => Err(format!("futex_wait returned {other:?}").into()),
                },
            )
        }
        "list" => {
            let listed = directory.join("list");
            fs::create_dir_all(&listed)?;
            for number in 0..20 {
                File::create(listed.join(number.to_string()))?;
            }
            Box::new(move || {
                fs::read_dir(&listed)?.try_for_each(|entry| entry.map(drop))?;
                Ok(())
            })
        }
        other => return Err(format!("{other}: no such object").into()),
    })
}
