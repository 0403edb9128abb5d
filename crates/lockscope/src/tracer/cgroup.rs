//! Control groups: a workload is all processes in one, however often they fork.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::tracer::error::TracerError;

/// How long the members of a group that was killed may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// The mounted version 2 hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    root: PathBuf,
}

/// A group of the hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
    name: PathBuf,
    id: u64,
    level: u32,
}

impl Hierarchy {
    /// Finds the mount.
    ///
    /// # Errors
    /// None is mounted.
    pub fn mounted() -> Result<Self, TracerError> {
        const MOUNTS: &str = "/proc/self/mountinfo";
        let text = fs::read_to_string(MOUNTS).map_err(|source| TracerError::Io {
            what: MOUNTS.into(),
            source,
        })?;
        let root = text.lines().find_map(mount_point_of_cgroup2);
        root.map(|root| Self { root }).ok_or(TracerError::NoCgroups)
    }

    /// The group at `path`: absolute, or relative to the mount.
    ///
    /// # Errors
    /// There is none.
    pub fn open(&self, path: &Path) -> Result<Cgroup, TracerError> {
        let not_one = || TracerError::NotACgroup {
            path: path.display().to_string(),
            root: self.root.display().to_string(),
        };
        let path = fs::canonicalize(self.root.join(path)).map_err(|_| not_one())?;
        let below = path.strip_prefix(&self.root).map_err(|_| not_one())?;
        let named = |part: &Component<'_>| matches!(part, Component::Normal(_));
        let level = below.components().filter(named).count() as u32;
        let is_group = path.join("cgroup.procs").exists();
        let metadata = fs::metadata(&path).map_err(|_| not_one())?;
        if level == 0 || !is_group {
            return Err(not_one());
        }
        Ok(Cgroup {
            id: metadata.ino(),
            level,
            name: below.to_owned(),
            path,
        })
    }

    /// Makes the group `name`, which may be a path of several new groups.
    ///
    /// # Errors
    /// The system refuses.
    pub fn create(&self, name: &str) -> Result<Cgroup, TracerError> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(|source| TracerError::Io {
            what: format!("cannot make the control group {}", path.display()),
            source,
        })?;
        self.open(&path)
    }

    /// Turns a controller on for the groups below `parent`: `cpuset`, so that they can be restricted
    /// to processors, or `memory`, so that each has lists of its own for its pages.
    ///
    /// # Errors
    /// The hierarchy does not have the controller, as where another one of version 1 has it.
    pub fn turn_on(&self, controller: &'static str, parent: &Cgroup) -> Result<(), TracerError> {
        for group in [&self.root, &parent.path] {
            let file = group.join("cgroup.subtree_control");
            fs::write(&file, format!("+{controller}")).map_err(|_| TracerError::NoController {
                controller,
                root: self.root.display().to_string(),
            })?;
        }
        Ok(())
    }
}

impl Cgroup {
    /// What the kernel calls it: in this hierarchy, the number of its directory.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// How many groups it is below the root.
    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path below the mount.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Lets its members run on one processor only, whatever they ask for.
    ///
    /// # Errors
    /// The system refuses; see [`Hierarchy::turn_on`] with `cpuset`.
    pub fn restrict_to(&self, processor: usize) -> Result<(), TracerError> {
        let file = self.path.join("cpuset.cpus");
        fs::write(&file, processor.to_string()).map_err(|source| TracerError::Io {
            what: format!("cannot restrict the control group {}", self.path.display()),
            source,
        })
    }

    /// How much processor time its members have taken, those of groups below it too, in nanoseconds; 0
    /// where the kernel does not say.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("cpu.stat")).unwrap_or_default();
        let used = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        let micros = used.and_then(|micros| micros.parse::<u64>().ok());
        micros.unwrap_or(0).saturating_mul(1000)
    }

    /// Stops its members, or lets them go on, and waits until they have.
    ///
    /// # Errors
    /// The system refuses, or takes longer than ten seconds.
    pub fn freeze(&self, frozen: bool) -> Result<(), TracerError> {
        let failed = |source| TracerError::Io {
            what: format!("cannot freeze the control group {}", self.path.display()),
            source,
        };
        let state = if frozen { "1" } else { "0" };
        fs::write(self.path.join("cgroup.freeze"), state).map_err(failed)?;
        let wanted = format!("frozen {state}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = fs::read_to_string(self.path.join("cgroup.events")).map_err(failed)?;
            if events.lines().any(|line| line == wanted) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The file to which a process writes its id to become a member.
    #[must_use]
    pub fn members(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Ends every member, those of groups below it too, and removes all of these groups. Waits up to ten
    /// seconds for them to be gone.
    ///
    /// # Errors
    /// A member does not end, or the system refuses.
    pub fn end(&self) -> Result<(), TracerError> {
        let failed = |source| TracerError::Io {
            what: format!("cannot end the control group {}", self.path.display()),
            source,
        };
        let kill = self.path.join("cgroup.kill");
        let deadline = Instant::now() + PATIENCE;
        loop {
            fs::write(&kill, "1").map_err(failed)?;
            match remove(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    if Instant::now() > deadline {
                        return Err(failed(error));
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                done => return done.map_err(failed),
            }
        }
    }
}

/// Removes a group and those below it, which platforms make; fails as busy while one has a member.
fn remove(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    match fs::remove_dir(group) {
        // A runtime may clean up behind itself at the same time.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The mount point in a line of `mountinfo`, if it is of cgroup2: `… root point … - type …`.
fn mount_point_of_cgroup2(line: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    let kind = after.split(' ').next()?;
    let point = before.split(' ').nth(4)?;
    (kind == "cgroup2").then(|| PathBuf::from(point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_version_2_is_found_among_others() {
        let v1 = "30 25 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu";
        let v2 = "42 25 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw";
        assert_eq!(mount_point_of_cgroup2(v1), None);
        let point = Path::new("/sys/fs/cgroup/unified");
        assert_eq!(mount_point_of_cgroup2(v2).as_deref(), Some(point));
    }
}
