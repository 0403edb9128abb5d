//! Other names of a file: hard links, which no path tells of.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

/// The most entries of a directory, and of those below it, that are looked at.
const ENTRIES: usize = 100_000;

/// Whether a file has a name below a directory, or may have one: it has several names, and there are too many entries to
/// look at, or some that cannot be. O(entries), where it has several names, and O(1) otherwise.
pub(crate) fn may_be_below(file: &Path, directory: &Path) -> bool {
    match fs::metadata(file) {
        Ok(status) if status.is_file() && status.nlink() > 1 => {
            may_have(directory, (status.dev(), status.ino()), ENTRIES)
        }
        _ => false,
    }
}

/// Whether a file is among the entries below a directory, or may be: more than `most` are not looked at.
fn may_have(directory: &Path, (device, inode): (u64, u64), most: usize) -> bool {
    let mut left = most;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            return true;
        };
        for entry in entries {
            let (Ok(entry), Some(less)) = (entry, left.checked_sub(1)) else {
                return true;
            };
            left = less;
            // Other devices have the same numbers.
            let is_it = entry.ino() == inode
                && entry
                    .metadata()
                    .is_ok_and(|status| (status.dev(), status.ino()) == (device, inode));
            if is_it {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{may_be_below, may_have};
    use std::fs;

    #[test]
    fn a_second_name_is_found_however_deep_and_a_copy_or_a_link_to_the_name_is_none() {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);
        for directory in ["own", "theirs/a/b", "others"] {
            fs::create_dir_all(path(directory)).expect("made");
        }
        let file = path("own/data");
        fs::write(&file, "data").expect("written");
        fs::copy(&file, path("theirs/copy")).expect("copied");
        std::os::unix::fs::symlink(&file, path("theirs/link")).expect("linked");
        assert!(!may_be_below(&file, &path("theirs")));
        fs::hard_link(&file, path("theirs/a/b/name")).expect("linked");
        assert!(may_be_below(&file, &path("theirs")));
        assert!(!may_be_below(&file, &path("others")));
        assert!(may_be_below(&file, &path("missing")));
    }

    #[test]
    fn what_is_not_looked_at_may_be_it() {
        let root = tempfile::tempdir().expect("a directory");
        for number in 0..10 {
            fs::write(root.path().join(number.to_string()), "").expect("written");
        }
        assert!(may_have(root.path(), (0, 0), 9) && !may_have(root.path(), (0, 0), 10));
    }
}
