//! How deep an open directory is: the levels of directories above it, up to the tenant's.
//!
//! Landlock looks at each directory above a file that is opened, made, renamed or removed, up to one that a rule names:
//! some 150 ns a level, or a millisecond in a tree that a guest made ten thousand levels deep, where the path itself is one
//! name. So the cell's thread takes a path only if it and its start have few levels together
//! ([`LEVELS`]).
//!
//! Nor does any thread take one with more than [`ALL_LEVELS`]: a kernel without preemption
//! keeps a cell that shares the processor waiting for as long.
//!
//! A directory knows its depth from how it was opened, until a directory may have been moved. Then the kernel says it,
//! once for each move: some 1.5 µs, and up to 30 µs for a path of 4 KiB.

use crate::host::linux;
use crate::steps::caps::{ALL_LEVELS, LEVELS};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How often names have been moved from one directory to another, in the process.
static MOVES: AtomicU32 = AtomicU32::new(1);

/// How many are being moved.
static MOVING: AtomicU32 = AtomicU32::new(0);

/// Depths that are said of no move: they have to be asked for.
const UNKNOWN: u64 = 0;

/// Set in levels that are no estimate.
const EXACT: u32 = 1 << 31;

/// The depth of one directory: the levels in the lower half, and the move since which they are known in the upper.
#[derive(Debug)]
pub(super) struct Depth(AtomicU64);

fn known(levels: u32, moves: u32) -> u64 {
    u64::from(moves) << 32 | u64::from(levels)
}

/// The levels, whether they are exact, and since which move they are known.
fn parts(seen: u64) -> (u32, bool, u32) {
    let levels = seen as u32;
    (levels & !EXACT, levels & EXACT != 0, (seen >> 32) as u32)
}

impl Depth {
    /// That of a directory that a tenant is given.
    pub(super) fn of_start() -> Self {
        Self(AtomicU64::new(known(EXACT, MOVES.load(Ordering::Acquire))))
    }

    /// That of a directory which was found by a path that leads through no link, from one of this depth. Names that lead
    /// up count as others do: it is at the most so deep.
    pub(super) fn below(&self, path: &CStr) -> Self {
        let (above, is_exact, moves) = parts(self.0.load(Ordering::Relaxed));
        let levels = above.saturating_add(names(path)).min(!EXACT);
        let exact = match is_exact && leads_down(path) {
            true => EXACT,
            false => 0,
        };
        Self(AtomicU64::new(known(levels | exact, moves)))
    }

    /// That of one that was found in another way.
    pub(super) fn unknown() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }

    /// Whether the cell's thread may follow this path from the directory.
    pub(super) fn takes(&self, directory: BorrowedFd<'_>, path: &CStr) -> bool {
        let more = names(path);
        let is_short = |levels: u32| u64::from(levels.saturating_add(more)) <= LEVELS.most;
        let moves = MOVES.load(Ordering::Acquire);
        let (levels, is_exact, since) = parts(self.0.load(Ordering::Relaxed));
        let is_current = since == moves && MOVING.load(Ordering::Acquire) == 0;
        if is_current && (is_exact || is_short(levels)) {
            return is_short(levels);
        }
        // It is deeper, or names that lead up were counted, or something was moved.
        let levels = linux::depth(directory).map_or(!EXACT, |levels| levels.min(!EXACT));
        self.0
            .store(known(levels | EXACT, moves), Ordering::Relaxed);
        is_short(levels)
    }

    /// Checks that a path from the directory is followed at all. On a thread that may block: walks up where the kernel
    /// cannot say how deep the directory is, for half a millisecond at the most.
    ///
    /// # Errors
    /// `NAMETOOLONG` if it and the path have too many levels together.
    pub(super) fn check(&self, directory: BorrowedFd<'_>, path: &CStr) -> Result<()> {
        if self.takes(directory, path) {
            return Ok(());
        }
        let most = ALL_LEVELS.most as u32;
        let levels = match parts(self.0.load(Ordering::Relaxed)).0 {
            levels if levels == !EXACT => linux::levels_up(directory, most)?,
            levels => levels,
        };
        match levels.saturating_add(names(path)) <= most {
            true => Ok(()),
            false => Err(Errno::NAMETOOLONG),
        }
    }
}

/// The names in a path, with empty ones.
fn names(path: &CStr) -> u32 {
    let slashes = path.to_bytes().iter().filter(|byte| **byte == b'/').count();
    slashes as u32 + 1
}

/// Whether each name in a path leads one level down.
fn leads_down(path: &CStr) -> bool {
    let mut names = path.to_bytes().split(|byte| *byte == b'/');
    names.all(|name| !matches!(name, b"" | b"." | b".."))
}

/// A move that may change how deep directories are. While there is one no depth is known.
#[derive(Debug)]
pub(super) struct Move(());

impl Move {
    pub(super) fn begin() -> Self {
        MOVING.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Move {
    fn drop(&mut self) {
        // Zero would say what is unknown.
        if MOVES.fetch_add(1, Ordering::AcqRel) == u32::MAX {
            MOVES.fetch_add(1, Ordering::AcqRel);
        }
        MOVING.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::{Depth, Move, names};
    use crate::host::linux;
    use rustix::io::Errno;
    use std::ffi::CString;
    use std::os::fd::AsFd as _;

    fn path(names: usize) -> CString {
        CString::new(vec!["d"; names].join("/")).expect("no zero")
    }

    #[test]
    fn a_path_has_one_name_more_than_slashes() {
        for (path, count) in [(c"", 1), (c"a", 1), (c"a/b", 2), (c"a//b/", 4), (c"..", 1)] {
            assert_eq!(names(path), count);
        }
    }

    #[test]
    fn a_path_is_taken_here_only_if_it_and_the_directory_have_few_levels_together() {
        let _turn = linux::faults::Turn::take();
        let root = tempfile::tempdir().expect("a directory");
        let open = |path: &std::path::Path| linux::open_ambient(path).expect("opened");
        let start = (Depth::of_start(), open(root.path()));
        assert!(start.0.takes(start.1.as_fd(), &path(64)));
        assert!(!start.0.takes(start.1.as_fd(), &path(65)));
        let deep = root.path().join(vec!["d"; 60].join("/"));
        std::fs::create_dir_all(&deep).expect("made");
        let below = (start.0.below(&path(60)), open(&deep));
        assert!(below.0.takes(below.1.as_fd(), &path(1)));
        assert!(!below.0.takes(below.1.as_fd(), &path(5)));
        // As it was found by a link: the kernel says how deep it is.
        let found = (Depth::unknown(), open(&deep));
        assert!(!found.0.takes(found.1.as_fd(), &path(5)));
        // What leads up again is no deeper.
        let leads_up = CString::new([".."; 60].join("/")).expect("no zero");
        let up = (below.0.below(&leads_up), open(root.path()));
        assert!(up.0.takes(up.1.as_fd(), &path(40)));
    }

    #[test]
    fn no_thread_follows_a_path_with_more_than_all_levels() {
        let _turn = linux::faults::Turn::take();
        let root = tempfile::tempdir().expect("a directory");
        let start = linux::open_ambient(root.path()).expect("opened");
        let depth = Depth::of_start();
        assert_eq!(depth.check(start.as_fd(), &path(512)), Ok(()));
        assert_eq!(
            depth.check(start.as_fd(), &path(513)),
            Err(Errno::NAMETOOLONG)
        );
        // Its path is longer than the kernel says: the levels are counted.
        let name = "d".repeat(200);
        let mut deep = start;
        for _ in 0..30 {
            rustix::fs::mkdirat(&deep, name.as_str(), rustix::fs::Mode::RWXU).expect("made");
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
            deep = rustix::fs::openat(&deep, name.as_str(), flags, rustix::fs::Mode::empty())
                .expect("opened");
        }
        let depth = Depth::unknown();
        assert_eq!(depth.check(deep.as_fd(), &path(400)), Ok(()));
        assert_eq!(
            depth.check(deep.as_fd(), &path(500)),
            Err(Errno::NAMETOOLONG)
        );
    }

    #[test]
    fn a_directory_that_was_moved_down_is_as_deep_as_it_is() {
        let _turn = linux::faults::Turn::take();
        let root = tempfile::tempdir().expect("a directory");
        let chain = |name: &str| root.path().join(name).join(vec!["d"; 50].join("/"));
        let [first, second] = ["a", "b"].map(chain);
        for chain in [&first, &second] {
            std::fs::create_dir_all(chain).expect("made");
        }
        let end = linux::open_ambient(&second).expect("opened");
        let depth = Depth::of_start().below(&path(51));
        let moving = Move::begin();
        std::fs::rename(root.path().join("b"), first.join("b")).expect("moved");
        assert!(!depth.takes(end.as_fd(), &path(1)), "while it is moved");
        drop(moving);
        assert!(!depth.takes(end.as_fd(), &path(1)), "and afterwards");
    }
}
