//! The memory that the host can spare for a cell: holding more would end the process.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the bytes that can be allocated without taking any from other programs: the kernel's
/// estimate, within the limits of this process' control groups. `None` if neither is known.
pub fn available() -> Option<u64> {
    let host = fs::read_to_string("/proc/meminfo").ok();
    let host = host.and_then(|text| of_host(&text));
    let own = fs::read_to_string("/proc/self/cgroup").ok();
    let own = own.and_then(|text| group(&text)).map(|group| {
        let groups = group.ancestors();
        let left =
            groups.filter_map(|group| Some(left(&read(group, "max")?, &read(group, "current")?)));
        left.flatten().min()
    });
    host.into_iter().chain(own.flatten()).min()
}

/// Reads a file of a control group.
fn read(group: &Path, what: &str) -> Option<String> {
    fs::read_to_string(group.join(format!("memory.{what}"))).ok()
}

fn of_host(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The group of the unified hierarchy.
fn group(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new("/sys/fs/cgroup").join(path))
}

/// Returns the rest of a limit; `None` without one.
fn left(limit: &str, used: &str) -> Option<u64> {
    let limit: u64 = limit.trim().parse().ok()?;
    let used = used.trim().parse().unwrap_or(0);
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::{available, group, left, of_host};
    use std::path::Path;

    #[test]
    fn limits_are_read_where_there_are_some() {
        let meminfo = "MemTotal:  24000000 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(of_host(meminfo), Some(2 << 20));
        assert_eq!(left("max\n", "4096\n"), None);
        assert_eq!(left("8192\n", "4096\n"), Some(4096));
        assert_eq!(left("4096\n", "8192\n"), Some(0));
        let path = group("1:cpu:/x\n0::/user.slice/a\n");
        assert_eq!(
            path.as_deref(),
            Some(Path::new("/sys/fs/cgroup/user.slice/a"))
        );
        assert!(available().is_none_or(|bytes| bytes > 1 << 20));
    }
}
