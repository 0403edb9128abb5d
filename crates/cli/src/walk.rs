//! The walk of a path: what decides about the file that it names.

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Links that a path may lead through, as many as the kernel allows.
const MOST_LINKS: u32 = 40;

/// The identity of a file, which does not depend on links and mounts.
type Identity = (u64, u64);

/// What a walk from the root to a file comes by, link by link. Who can write to a directory on the way decides where
/// the path leads.
pub(crate) struct Walk {
    /// The directories in which a name is looked up.
    passed: HashSet<Identity>,
    /// The file, or the directory nearest to where it would be, and the directories above it up to the root.
    chain: Vec<Identity>,
    /// The path without links.
    end: PathBuf,
    /// Whether the file is there.
    exists: bool,
}

fn identity(path: &Path) -> Option<Identity> {
    let status = std::fs::metadata(path).ok()?;
    Some((status.dev(), status.ino()))
}

impl Walk {
    /// Walks a path. What is missing, at its end or at that of a link, leads nowhere else.
    pub(crate) fn of(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut rest: VecDeque<OsString> = names(&absolute).collect();
        let (mut end, mut passed) = (PathBuf::from("/"), HashSet::new());
        let (mut links, mut exists) = (0, true);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                end.pop();
                continue;
            }
            passed.extend(identity(&end));
            let here = end.join(&name);
            match std::fs::symlink_metadata(&here) {
                Ok(status) if status.is_symlink() && links < MOST_LINKS => {
                    links += 1;
                    let target = std::fs::read_link(&here).unwrap_or_default();
                    if target.is_absolute() {
                        end = PathBuf::from("/");
                    }
                    for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                        rest.push_front(name);
                    }
                    continue;
                }
                Ok(_) => {}
                Err(_) => exists = false,
            }
            end = here;
        }
        let chain = end.ancestors().filter_map(identity).collect();
        Self {
            passed,
            chain,
            end,
            exists,
        }
    }

    fn top(&self) -> Option<&Identity> {
        self.chain.first().filter(|_| self.exists)
    }

    /// The path without links.
    pub(crate) fn end(&self) -> &Path {
        &self.end
    }

    /// Whether the file is below that of the other, or the same.
    pub(crate) fn lies_in(&self, other: &Self) -> bool {
        other.top().is_some_and(|top| self.chain.contains(top))
    }

    /// Whether it leads through the other's file, a directory: to what is in it, or by a name in it to somewhere else.
    pub(crate) fn leads_through(&self, other: &Self) -> bool {
        other.top().is_some_and(|top| self.passed.contains(top))
    }

    /// Whether both lead to one file, or to where one would be.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        match (self.exists, other.exists) {
            (true, true) => self.top() == other.top(),
            (false, false) => self.end == other.end,
            _ => false,
        }
    }
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::Walk;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn a_place_is_found_through_links_and_where_it_is_not_yet() {
        let directory = tempfile::tempdir().expect("directory");
        let inner = directory.path().join("a/b");
        create_dir_all(&inner).expect("made");
        let link = directory.path().join("link");
        symlink(&inner, &link).expect("linked");
        let dangling = directory.path().join("dangling");
        symlink("a/b/later", &dangling).expect("linked");
        let outer = Walk::of(&directory.path().join("a"));
        for inside in [
            inner.clone(),
            link.clone(),
            link.join("../b/not/there"),
            inner.join("x"),
            dangling,
        ] {
            let inside = Walk::of(&inside);
            assert!(inside.lies_in(&outer) && inside.leads_through(&outer));
            assert!(!outer.lies_in(&inside) && !outer.leads_through(&inside));
        }
        let beside = Walk::of(&directory.path().join("c"));
        assert!(!beside.lies_in(&outer) && !outer.lies_in(&beside));
        assert!(outer.lies_in(&outer) && !outer.leads_through(&outer));
    }

    #[test]
    fn a_path_leads_through_each_directory_that_it_looks_a_name_up_in() {
        let directory = tempfile::tempdir().expect("directory");
        let path = |name: &str| directory.path().join(name);
        create_dir_all(path("theirs")).expect("made");
        create_dir_all(path("ours")).expect("made");
        write(path("ours/file"), "").expect("written");
        symlink("../ours", path("theirs/link")).expect("linked");
        symlink(path("theirs/link"), path("far")).expect("linked");
        symlink("around", path("around")).expect("linked");
        let theirs = Walk::of(&path("theirs"));
        for through in ["theirs/link/file", "far/file", "theirs/../ours/file/"] {
            let walk = Walk::of(&path(through));
            let is_through = !through.contains("..");
            assert_eq!(walk.leads_through(&theirs), is_through, "{through}");
            assert!(!walk.lies_in(&theirs), "{through}");
            assert!(walk.meets(&Walk::of(&path("ours/file"))), "{through}");
        }
        for direct in ["ours/file", "theirs"] {
            assert!(!Walk::of(&path(direct)).leads_through(&theirs), "{direct}");
        }
        // As in the kernel, it ends somewhere.
        assert!(!Walk::of(&path("around")).lies_in(&theirs));
        let missing = |name: &str| Walk::of(&path(name));
        assert!(missing("theirs/link/new").meets(&missing("ours/new")));
        assert!(!missing("ours/new").meets(&missing("ours/file")));
    }
}
