//! A memory cgroup for a neighbour alone, as every container and every service of the host has one.
//!
//! The kernel keeps the pages of one memory cgroup on one list under one lock. Processes that share
//! a cgroup contend for it whenever one of them takes or gives back memory; those of two cgroups do
//! not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// File of a cgroup that takes processes in.
const PROCESSES: &str = "cgroup.procs";

/// An empty memory cgroup beside the one of this process; removed when it is dropped, if it is
/// empty then.
#[derive(Debug)]
pub(super) struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// Makes one; `None` if the host has no memory cgroups, or does not let this process make one.
    pub(super) fn beside_own() -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let own = own_directory(
            &fs::read_to_string("/proc/self/cgroup").ok()?,
            &fs::read_to_string("/proc/self/mountinfo").ok()?,
        )?;
        let name = format!(
            "leasehold-neighbour-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        // Beside, since below version 2 allows none where processes are; the topmost one has
        // nothing beside it, and is the exception.
        let directories = [own.path.parent().filter(|_| !own.topmost), Some(&own.path)];
        directories.into_iter().flatten().find_map(|directory| {
            let made = Self(directory.join(&name));
            fs::create_dir(&made.0).ok()?;
            // Version 2 hands controllers down one by one.
            made.counts_memory().then_some(made)
        })
    }

    fn counts_memory(&self) -> bool {
        ["memory.current", "memory.usage_in_bytes"]
            .iter()
            .any(|file| self.0.join(file).exists())
    }

    /// The file to which a process writes its number to join.
    pub(super) fn entrance(&self) -> PathBuf {
        self.0.join(PROCESSES)
    }

    /// Takes the calling process in.
    pub(super) fn enter(entrance: &Path) -> std::io::Result<()> {
        fs::write(entrance, std::process::id().to_string())
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            tracing::warn!("{}: {error}", self.0.display());
        }
    }
}

/// Where a memory cgroup is in the file system.
#[derive(Debug, PartialEq)]
struct Directory {
    path: PathBuf,
    /// Whether nothing is above it that can be seen from here.
    topmost: bool,
}

/// The directory of the caller's memory cgroup, from what the kernel says of its cgroups and of its
/// mounts (`proc_pid_cgroup(5)`, `proc_pid_mountinfo(5)`).
fn own_directory(cgroups: &str, mounts: &str) -> Option<Directory> {
    let memberships = || {
        cgroups.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        })
    };
    let first_version =
        memberships().find(|(controllers, _)| controllers.split(',').any(|name| name == "memory"));
    let (kind, (_, path)) = match first_version {
        Some(membership) => ("cgroup", membership),
        None => (
            "cgroup2",
            memberships().find(|(names, _)| names.is_empty())?,
        ),
    };
    let mount_point = mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let right_kind = file_system.next()? == kind;
        let options = file_system.nth(1)?;
        let memory = kind == "cgroup2" || options.split(',').any(|option| option == "memory");
        let mut mount = mount.split(' ').skip(3);
        let (root, at) = (mount.next()?, mount.next()?);
        // Another root shows a part only, in which the path may be missing.
        (right_kind && memory && root == "/").then_some(at)
    })?;
    let below = path.trim_start_matches('/');
    Some(Directory {
        path: Path::new(mount_point).join(below),
        topmost: below.is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Directory, own_directory};

    const FIRST: &str = "\
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const SECOND: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    fn found(path: &str, topmost: bool) -> Option<Directory> {
        let path = path.into();
        Some(Directory { path, topmost })
    }

    #[test]
    fn the_memory_controller_decides_where_it_is_mounted_by_itself() {
        let cgroups = "4:memory:/services/7\n1:cpu:/\n0::/unified\n";
        let expected = found("/sys/fs/cgroup/memory/services/7", false);
        assert_eq!(own_directory(cgroups, FIRST), expected);
        let top = found("/sys/fs/cgroup/memory/", true);
        assert_eq!(own_directory("4:memory:/\n", FIRST), top);
    }

    #[test]
    fn otherwise_there_is_one_tree_for_all() {
        let expected = found("/sys/fs/cgroup/user.slice/a.scope", false);
        assert_eq!(own_directory("0::/user.slice/a.scope\n", SECOND), expected);
        assert_eq!(own_directory("1:cpu:/\n", SECOND), None);
        assert_eq!(own_directory("0::/a\n", ""), None);
    }
}
