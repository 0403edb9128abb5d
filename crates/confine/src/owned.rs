//! Files that a process may trust: only its user, or root, can have written them.
//!
//! A path is walked from `/`, one name at a time, and each directory is held open while the next
//! name is looked up in it, so that nothing can be exchanged between the check and the use. Every
//! directory on the way belongs to this user or to root, and no other user may write to it; a
//! directory with the sticky bit, such as `/tmp`, may be on the way but not at the end. A symbolic
//! link is followed if its owner is trusted as well.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat, renameat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links that one path may lead through.
const MAX_LINKS: u32 = 40;

/// Permissions of other users to write.
const OTHERS_WRITE: u32 = 0o022;

/// All permissions of other users.
const OTHERS_USE: u32 = 0o077;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum OwnedError {
    /// The system refused it.
    #[error("{}: {source}", path.display())]
    System {
        /// The path that was checked.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It belongs to another user.
    #[error(
        "{}: found user {owner} as its owner; allowed: this user ({user}) or root", path.display()
    )]
    Owner {
        /// The path that was checked.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Others may write to it, or read a secret.
    #[error(
        "{}: found mode {mode:04o}, which lets others in; allowed: this user alone (`chmod go=`)",
        path.display()
    )]
    Shared {
        /// The path that was checked.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is not of the kind that is expected.
    #[error("{}: not a {expected}", path.display())]
    Kind {
        /// The path that was checked.
        path: PathBuf,
        /// `file` or `directory`.
        expected: &'static str,
    },
}

impl OwnedError {
    /// Whether there is nothing at that path.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A directory that only this user, or root, can have written to.
#[derive(Debug)]
pub struct OwnedDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Whether a directory that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It is an error.
    Refuse,
    /// It is made, for this user alone.
    Create,
}

impl OwnedDirectory {
    /// Opens a directory.
    ///
    /// # Errors
    /// When it, or a directory above it, is not there or not to be trusted.
    pub fn open(path: &Path, missing: Missing) -> Result<Self, OwnedError> {
        let absolute = std::path::absolute(path).map_err(|source| system(path, source))?;
        let mut names: VecDeque<OsString> = names(&absolute).collect();
        let mut links = 0;
        let mut held: Vec<(OwnedFd, PathBuf)> = vec![root()?];
        while let Some(name) = names.pop_front() {
            if name == ".." {
                // The root is its own parent.
                if held.len() > 1 {
                    held.pop();
                }
                continue;
            }
            let Some((parent, above)) = held.last() else {
                break;
            };
            let here = above.join(&name);
            let next = match look(parent, &name) {
                Err(Errno::NOENT) if missing == Missing::Create => {
                    match mkdirat(parent, &name, Mode::RWXU) {
                        // Another process was faster.
                        Ok(()) | Err(Errno::EXIST) => look(parent, &name),
                        Err(errno) => Err(errno),
                    }
                }
                found => found,
            };
            let next = next.map_err(|errno| system(&here, errno.into()))?;
            let status = fstat(&next).map_err(|errno| system(&here, errno.into()))?;
            check_owner(&here, &status)?;
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(system(&here, Errno::LOOP.into()));
                    }
                    let target = readlinkat(&next, "", Vec::new())
                        .map_err(|errno| system(&here, errno.into()))?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        held.truncate(1);
                    }
                    for name in self::names(&target).collect::<Vec<_>>().into_iter().rev() {
                        names.push_front(name);
                    }
                }
                FileType::Directory => {
                    check_writers(&here, &status, names.is_empty())?;
                    held.push((next, here));
                }
                _ => {
                    return Err(OwnedError::Kind {
                        path: here,
                        expected: "directory",
                    });
                }
            }
        }
        let (fd, real) = match held.pop() {
            Some(last) => last,
            None => root()?,
        };
        // The last name may have been `..` or a link: the end of the walk is checked as such.
        let status = fstat(&fd).map_err(|errno| system(&real, errno.into()))?;
        check_writers(&real, &status, true)?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// The directory's path, as it was requested.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a whole file of the directory, of at most `most` bytes.
    ///
    /// # Errors
    /// When it is not there, is not a plain file, is larger, or is not to be trusted.
    pub fn read(&self, name: &OsStr, most: u64) -> Result<Vec<u8>, OwnedError> {
        self.read_unless(name, most, OTHERS_WRITE)
    }

    /// As [`read`](Self::read), of a file that no other user may read.
    ///
    /// # Errors
    /// As those of [`read`](Self::read).
    pub fn read_secret(&self, name: &OsStr, most: u64) -> Result<Vec<u8>, OwnedError> {
        self.read_unless(name, most, OTHERS_USE)
    }

    /// Opens a file of the directory, of at most `most` bytes, for a use that does not read it into one piece of
    /// memory. Returns it with its length, bytes. No other user can change it; [`write`](Self::write) replaces it and
    /// leaves the open one as it is.
    ///
    /// # Errors
    /// As those of [`read`](Self::read).
    pub fn open_file(&self, name: &OsStr, most: u64) -> Result<(File, u64), OwnedError> {
        self.open_unless(name, most, OTHERS_WRITE)
    }

    /// Reads a file none of whose permissions are among `refused`.
    fn read_unless(&self, name: &OsStr, most: u64, refused: u32) -> Result<Vec<u8>, OwnedError> {
        let path = self.path.join(name);
        let (file, expected) = self.open_unless(name, most, refused)?;
        let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        file.take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| system(&path, source))?;
        if bytes.len() as u64 > most {
            return Err(system(&path, Errno::FBIG.into()));
        }
        Ok(bytes)
    }

    fn open_unless(
        &self,
        name: &OsStr,
        most: u64,
        refused: u32,
    ) -> Result<(File, u64), OwnedError> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())
            .map_err(|errno| system(&path, errno.into()))?;
        let status = fstat(&fd).map_err(|errno| system(&path, errno.into()))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(OwnedError::Kind {
                path,
                expected: "file",
            });
        }
        check_owner(&path, &status)?;
        let mode = status.st_mode & 0o7777;
        if mode & refused != 0 {
            return Err(OwnedError::Shared { path, mode });
        }
        let length = u64::try_from(status.st_size).unwrap_or(0);
        if length > most {
            return Err(system(&path, Errno::FBIG.into()));
        }
        Ok((File::from(fd), length))
    }

    /// Writes a file that only this user can read and write: readers see all of it or what was there
    /// before.
    ///
    /// # Errors
    /// The system's; nothing is left behind then.
    pub fn write(&self, name: &OsStr, parts: &[&[u8]]) -> Result<(), OwnedError> {
        let path = self.path.join(name);
        let mut partial = name.to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = openat(&self.fd, &partial, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|fd| {
                let mut file = File::from(fd);
                parts.iter().try_for_each(|part| file.write_all(part))?;
                Ok(renameat(&self.fd, &partial, &self.fd, name)?)
            });
        if written.is_err() {
            // The first error is the one to report.
            let _ = unlinkat(&self.fd, &partial, AtFlags::empty());
        }
        written.map_err(|source| system(&path, source))
    }

    /// Makes a file that is not there yet, for this user alone.
    ///
    /// # Errors
    /// The system's, `AlreadyExists` among them.
    pub fn create_new(&self, name: &OsStr, content: &[u8]) -> Result<(), OwnedError> {
        let path = self.path.join(name);
        let mut partial = name.to_owned();
        partial.push(format!(".{}.new", std::process::id()));
        self.write(&partial, &[content])?;
        // A link is made whole or not at all, and never over a file that is there.
        let linked = rustix::fs::linkat(&self.fd, &partial, &self.fd, name, AtFlags::empty());
        let _ = unlinkat(&self.fd, &partial, AtFlags::empty());
        linked.map_err(|errno| system(&path, errno.into()))
    }

    /// Removes a file of the directory.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, name: &OsStr) -> Result<(), OwnedError> {
        unlinkat(&self.fd, name, AtFlags::empty())
            .map_err(|errno| system(&self.path.join(name), errno.into()))
    }

    /// Removes files until there is [room](Room) for the others: those that were changed longest ago, and never the last.
    /// Directories stay, and count for nothing. O(n log n) in the files, with a system call for each.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_latest(&self, room: Room) -> Result<(), OwnedError> {
        let mut files = self.files()?;
        files.sort_unstable_by(|a, b| b.cmp(a));
        let mut bytes = 0_u64;
        let beyond = files.iter().enumerate().position(|(before, file)| {
            bytes = bytes.saturating_add(file.bytes);
            before > 0 && (before >= room.files || bytes > room.bytes)
        });
        for file in files.drain(beyond.unwrap_or(files.len())..) {
            match self.remove(&file.name) {
                // Another process did the same.
                Err(error) if error.is_missing() => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// The files of the directory.
    fn files(&self) -> Result<Vec<Listed>, OwnedError> {
        let failed = |errno: Errno| system(&self.path, errno.into());
        let mut files = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Ok(status) = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if FileType::from_raw_mode(status.st_mode) != FileType::Directory {
                files.push(Listed {
                    changed: (status.st_mtime, status.st_mtime_nsec as i64),
                    bytes: u64::try_from(status.st_size).unwrap_or(0),
                    name: OsString::from_vec(name.to_bytes().to_vec()),
                });
            }
        }
        Ok(files)
    }
}

/// What a directory may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Most files.
    pub files: usize,
    /// Most bytes of all of them together.
    pub bytes: u64,
}

/// A file of a directory, ordered by its last change.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    /// Seconds and nanoseconds.
    changed: (i64, i64),
    bytes: u64,
    name: OsString,
}

impl AsFd for OwnedDirectory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn system(path: &Path, source: io::Error) -> OwnedError {
    OwnedError::System {
        path: path.to_owned(),
        source,
    }
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn root() -> Result<(OwnedFd, PathBuf), OwnedError> {
    let path = PathBuf::from("/");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(CWD, "/", flags, Mode::empty()).map_err(|errno| system(&path, errno.into()))?;
    let status = fstat(&fd).map_err(|errno| system(&path, errno.into()))?;
    check_owner(&path, &status)?;
    check_writers(&path, &status, false)?;
    Ok((fd, path))
}

/// Opens a directory for reading names in it, anything else (a link) to look at only.
fn look(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = flags | OFlags::RDONLY | OFlags::DIRECTORY;
    match openat(parent, name, directory, Mode::empty()) {
        // A link, a file, or a directory that may be searched and not read.
        Err(Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {
            openat(parent, name, flags | OFlags::PATH, Mode::empty())
        }
        found => found,
    }
}

fn check_owner(path: &Path, status: &Stat) -> Result<(), OwnedError> {
    let user = geteuid().as_raw();
    if status.st_uid == user || status.st_uid == 0 {
        return Ok(());
    }
    Err(OwnedError::Owner {
        path: path.to_owned(),
        owner: status.st_uid,
        user,
    })
}

/// On the way the sticky bit is enough: what is in such a directory belongs to its owner.
fn check_writers(path: &Path, status: &Stat, last: bool) -> Result<(), OwnedError> {
    let mode = status.st_mode & 0o7777;
    let is_shared = mode & OTHERS_WRITE != 0;
    let is_sticky = mode & 0o1000 != 0;
    if is_shared && (last || !is_sticky) {
        return Err(OwnedError::Shared {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Missing, OwnedDirectory, OwnedError, Room};
    use std::ffi::OsStr;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    const NAME: &str = "file";

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("directory");
        let inner = directory.path().join("inner");
        fs::create_dir(&inner).expect("made");
        (directory, inner)
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
    }

    fn open(path: &Path) -> Result<OwnedDirectory, OwnedError> {
        OwnedDirectory::open(path, Missing::Refuse)
    }

    #[test]
    fn what_is_written_can_be_read_and_only_by_this_user() {
        let (_keep, inner) = directory();
        let owned = OwnedDirectory::open(&inner.join("a/b"), Missing::Create).expect("made");
        owned.write(NAME.as_ref(), &[b"ab", b"c"]).expect("written");
        assert_eq!(owned.read(NAME.as_ref(), 3).expect("read"), b"abc");
        assert!(owned.read(NAME.as_ref(), 2).is_err(), "larger than allowed");
        let permissions = |path: &Path| fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(permissions(&inner.join("a/b/file")) & 0o777, 0o600);
        assert_eq!(permissions(&inner.join("a/b")) & 0o777, 0o700);
        let files = owned.files().expect("listed");
        assert_eq!(files.len(), 1, "no partial file is left: {files:?}");
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused_wherever_it_is() {
        let (keep, inner) = directory();
        for shared in [keep.path(), &inner] {
            for bits in [0o770, 0o707, 0o1777] {
                mode(shared, bits);
                let is_on_the_way_and_sticky = shared == keep.path() && bits == 0o1777;
                assert_eq!(
                    open(&inner).is_ok(),
                    is_on_the_way_and_sticky,
                    "{} {bits:o}",
                    shared.display()
                );
            }
            mode(shared, 0o700);
        }
        open(&inner).expect("trusted again");
    }

    #[test]
    fn what_belongs_to_another_user_is_refused() {
        let (keep, inner) = directory();
        let owned = open(&inner).expect("trusted");
        owned.write(NAME.as_ref(), &[b"x"]).expect("written");
        let root = rustix::process::geteuid().is_root();
        for path in [inner.join(NAME), inner.clone(), keep.path().to_owned()] {
            if !root {
                continue;
            }
            std::os::unix::fs::chown(&path, Some(12_345), None).expect("given away");
            let refused = open(&inner).and_then(|owned| owned.read(NAME.as_ref(), 10));
            assert!(
                matches!(refused, Err(OwnedError::Owner { .. })),
                "{refused:?}"
            );
            std::os::unix::fs::chown(&path, Some(0), None).expect("taken back");
        }
    }

    #[test]
    fn a_link_leads_on_if_it_is_trusted_and_so_is_all_behind_it() {
        let (keep, inner) = directory();
        let link = keep.path().join("link");
        symlink("inner/../inner", &link).expect("linked");
        let owned = open(&link).expect("trusted");
        owned.write(NAME.as_ref(), &[b"x"]).expect("written");
        assert!(inner.join(NAME).exists());
        mode(&inner, 0o777);
        assert!(open(&link).is_err(), "the end is shared");
        let around = keep.path().join("around");
        symlink("around", &around).expect("linked");
        assert!(open(&around).is_err(), "it leads to itself");
    }

    #[test]
    fn a_file_that_is_a_link_or_shared_or_no_file_is_not_read() {
        let (_keep, inner) = directory();
        let owned = open(&inner).expect("trusted");
        owned.write(NAME.as_ref(), &[b"x"]).expect("written");
        symlink(NAME, inner.join("link")).expect("linked");
        assert!(owned.read("link".as_ref(), 10).is_err());
        mode(&inner.join(NAME), 0o620);
        assert!(owned.read(NAME.as_ref(), 10).is_err());
        mode(&inner.join(NAME), 0o640);
        assert!(owned.read(NAME.as_ref(), 10).is_ok());
        assert!(owned.read_secret(NAME.as_ref(), 10).is_err());
        let (_, length) = owned.open_file(NAME.as_ref(), 1).expect("opened");
        assert_eq!(length, 1);
        fs::create_dir(inner.join("directory")).expect("made");
        for refused in ["link", "directory"] {
            assert!(owned.read(refused.as_ref(), 10).is_err());
            assert!(owned.open_file(refused.as_ref(), 10).is_err());
        }
        mode(&inner.join(NAME), 0o620);
        assert!(owned.open_file(NAME.as_ref(), 10).is_err());
    }

    #[test]
    fn what_is_exchanged_after_it_was_opened_is_not_used() {
        let (keep, inner) = directory();
        let owned = open(&inner).expect("trusted");
        owned.write(NAME.as_ref(), &[b"ours"]).expect("written");
        fs::rename(&inner, keep.path().join("away")).expect("moved");
        fs::create_dir(&inner).expect("made");
        fs::write(inner.join(NAME), b"theirs").expect("written");
        assert_eq!(owned.read(NAME.as_ref(), 10).expect("read"), b"ours");
    }

    #[test]
    fn of_two_that_make_a_file_one_does() {
        let (_keep, inner) = directory();
        let owned = open(&inner).expect("trusted");
        let name: &OsStr = NAME.as_ref();
        owned.create_new(name, b"first").expect("made");
        assert!(owned.create_new(name, b"second").is_err());
        assert_eq!(owned.read(name, 10).expect("read"), b"first");
        assert_eq!(owned.files().expect("listed").len(), 1);
    }

    #[test]
    fn the_files_that_were_changed_last_are_kept_as_far_as_there_is_room() {
        let (_keep, inner) = directory();
        let owned = open(&inner).expect("trusted");
        let write = |name: &str, bytes: usize, age: u64| {
            owned
                .write(name.as_ref(), &[&vec![0; bytes]])
                .expect("written");
            let file = File::open(inner.join(name)).expect("there");
            let instant = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 - age);
            file.set_modified(instant).expect("set");
        };
        let kept = || {
            let mut files = owned.files().expect("listed");
            files.sort_unstable();
            let names = files.into_iter().map(|file| file.name);
            names
                .map(|name| name.into_string().expect("a name"))
                .collect::<Vec<_>>()
        };
        let keep = |files, bytes| owned.keep_latest(Room { files, bytes }).expect("kept");
        fs::create_dir(inner.join("below")).expect("made");
        for (name, bytes, age) in [("d", 10, 1), ("a", 10, 9), ("c", 40, 2), ("b", 30, 5)] {
            write(name, bytes, age);
        }
        keep(4, 90);
        assert_eq!(kept(), ["a", "b", "c", "d"], "there is room for all");
        keep(3, 1000);
        assert_eq!(kept(), ["b", "c", "d"]);
        keep(9, 79);
        assert_eq!(kept(), ["c", "d"]);
        keep(0, 0);
        assert_eq!(kept(), ["d"], "the last one stays");
        assert!(inner.join("below").is_dir());
    }
}
