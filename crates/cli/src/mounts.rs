//! The mounts of the process: they identify a directory under different names.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The mounts that this process sees.
pub(crate) struct Mounts(Vec<Mount>);

/// One of them (proc_pid_mountinfo(5)).
struct Mount {
    /// The file system, as `MAJOR:MINOR`.
    device: String,
    /// What of the file system is mounted.
    root: PathBuf,
    /// Where.
    point: PathBuf,
    /// Of which type it is.
    kind: String,
}

/// A directory or file of a file system, by whatever name.
struct Seat<'a> {
    device: &'a str,
    path: PathBuf,
}

impl Mounts {
    /// Those of now.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    fn parse(table: &[u8]) -> Self {
        let lines = table.split(|&byte| byte == b'\n');
        Self(lines.filter_map(Mount::parse).collect())
    }

    /// Of several mounts at one point, the last one is visible.
    fn mount_of(&self, path: &Path) -> Option<&Mount> {
        let above = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        above.max_by_key(|mount| mount.point.components().count())
    }

    /// Where `directory`, a path without links, reaches a file system of a type: through the mount that it
    /// lies in, or one below it.
    pub(crate) fn reaches_type(&self, directory: &Path, kind: &str) -> Option<&Path> {
        let below = self.0.iter();
        let below = below.filter(|mount| mount.point.starts_with(directory));
        let mut reached = below.chain(self.mount_of(directory));
        let found = reached.find(|mount| mount.kind == kind)?;
        Some(&found.point)
    }

    /// Where `directory` reaches `place`, or something in it, through a mount below. Both are paths
    /// without links.
    pub(crate) fn reaches(&self, directory: &Path, place: &Path) -> Option<&Path> {
        let place = self.seat(place)?;
        let below = self.0.iter();
        let mut below = below.filter(|mount| mount.point.starts_with(directory));
        let reaching = below.find(|mount| {
            mount.device == place.device
                && (place.path.starts_with(&mount.root) || mount.root.starts_with(&place.path))
        });
        reaching.map(|mount| mount.point.as_path())
    }

    fn seat(&self, path: &Path) -> Option<Seat<'_>> {
        let mount = self.mount_of(path)?;
        let relative = path.strip_prefix(&mount.point).ok()?;
        Some(Seat {
            device: &mount.device,
            path: mount.root.join(relative),
        })
    }
}

impl Mount {
    /// `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELD…] - TYPE SOURCE OPTIONS`
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ').skip(2);
        let device = String::from_utf8_lossy(fields.next()?).into_owned();
        let root = unescaped(fields.next()?);
        let point = unescaped(fields.next()?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Self {
            device,
            root,
            point,
            kind: String::from_utf8_lossy(kind).into_owned(),
        })
    }
}

/// A path in which space, tab, newline and backslash are written as `\OOO`.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, others @ ..] = rest {
        let octal = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok();
        match (first, others.get(..3).and_then(octal)) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            _ => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::Mounts;
    use std::path::Path;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:20 / /proc rw shared:5 - proc proc rw
40 22 0:50 / /srv/app/p rw - proc proc rw
41 22 254:0 /home/u/.cache/leasehold /srv/app/with\\040space rw - ext4 /dev/vda rw
42 22 254:0 /var/lib/x /srv/data rw - ext4 /dev/vda rw
";

    #[test]
    fn a_file_system_is_found_wherever_it_is_mounted() {
        let mounts = Mounts::parse(TABLE);
        let found = |directory: &str| mounts.reaches_type(Path::new(directory), "proc");
        assert_eq!(found("/srv/app"), Some(Path::new("/srv/app/p")));
        assert_eq!(found("/srv/app/p/self"), Some(Path::new("/srv/app/p")));
        assert_eq!(found("/srv/data"), None);
        assert_eq!(found("/srv/apples"), None);
    }

    #[test]
    fn a_place_is_found_through_a_mount_of_it_or_of_what_is_in_or_above_it() {
        let mounts = Mounts::parse(TABLE);
        let found =
            |directory: &str, place: &str| mounts.reaches(Path::new(directory), Path::new(place));
        let space = Some(Path::new("/srv/app/with space"));
        assert_eq!(found("/srv/app", "/home/u/.cache/leasehold"), space);
        assert_eq!(found("/srv", "/home/u/.cache/leasehold/code"), space);
        assert_eq!(found("/srv/app", "/home/u/.cache"), space);
        assert_eq!(found("/srv/app", "/home/u/.local"), None);
        assert_eq!(found("/srv/data", "/home/u/.cache/leasehold"), None);
    }

    #[test]
    fn this_process_has_mounts() {
        let mounts = Mounts::read().expect("a table");
        assert_eq!(
            mounts.reaches_type(Path::new("/proc/self"), "proc"),
            Some(Path::new("/proc"))
        );
    }
}
