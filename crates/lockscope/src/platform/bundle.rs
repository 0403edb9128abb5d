//! A bundle of the Open Container Initiative: the configuration from which `runc` and `runsc` make a
//! container. Its root is the host's, read-only: each directory of the host's root is mounted at its
//! place, so that nothing has to be unpacked, and a command means the same inside as outside.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::platform::request::{PlatformError, Request, directory};

/// What a container has of its own, or not at all.
const OWN: [&str; 5] = ["proc", "sys", "dev", "run", "lost+found"];

/// What root may do in a container, as container engines grant it.
const CAPABILITIES: [&str; 13] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
];

/// A bundle on disk. It is gone when it is dropped.
pub(super) struct Bundle {
    files: TempDir,
    id: String,
}

impl Bundle {
    /// Makes the bundle, whose container shall be in the control group `cgroup` below the mount.
    pub(super) fn create(
        platform: &'static str,
        request: &Request<'_>,
        cgroup: &Path,
    ) -> Result<Self, PlatformError> {
        let files = directory(platform)?;
        let failed = |source| PlatformError::Io {
            platform,
            what: format!("a bundle in {}", files.path().display()),
            source,
        };
        let root = files.path().join("root");
        let mounts = mirror(Path::new("/"), &root).map_err(failed)?;
        let configuration = configuration(request, cgroup, &mounts).map_err(failed)?;
        fs::write(files.path().join("config.json"), configuration.to_string()).map_err(failed)?;
        // Identifiers are the host's, for all that use the same directory of states: here none does.
        let id = format!("lockscope-{}-{}", std::process::id(), request.name);
        Ok(Self { files, id })
    }

    pub(super) fn path(&self) -> &Path {
        self.files.path()
    }

    /// Where the runtime keeps what it knows about the container.
    pub(super) fn state(&self) -> PathBuf {
        self.files.path().join("state")
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn into_files(self) -> TempDir {
        self.files
    }
}

/// Makes `copy` a directory that has, for each entry of `root`, the same link, or a place where it can
/// be mounted. Returns what is to be mounted.
fn mirror(root: &Path, copy: &Path) -> io::Result<Vec<PathBuf>> {
    fs::create_dir(copy)?;
    OWN.iter()
        .take(4)
        .try_for_each(|name| fs::create_dir(copy.join(name)))?;
    let mut mounts = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if name.to_str().is_some_and(|name| OWN.contains(&name)) {
            continue;
        }
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, copy.join(name))?;
        } else if kind.is_dir() {
            fs::create_dir(copy.join(name))?;
            mounts.push(entry.path());
        }
    }
    mounts.sort();
    Ok(mounts)
}

fn configuration(
    request: &Request<'_>,
    cgroup: &Path,
    directories: &[PathBuf],
) -> io::Result<Value> {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        mount(
            "/dev",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        mount(
            "/dev/pts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666"],
        ),
        mount(
            "/dev/shm",
            "tmpfs",
            &["nosuid", "noexec", "nodev", "mode=1777"],
        ),
        mount("/run", "tmpfs", &["nosuid", "nodev", "mode=755"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
    ];
    mounts.extend(directories.iter().map(|directory| bind(directory, "ro")));
    mounts.extend(
        request
            .writable
            .iter()
            .map(|directory| bind(directory, "rw")),
    );
    let namespaces = ["pid", "ipc", "uts", "mount", "network"].map(|kind| json!({"type": kind}));
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": ["sh", "-c", request.command],
            "env": [format!("PATH={path}"), "HOME=/root"],
            "cwd": std::env::current_dir()?,
            "capabilities": {
                "bounding": CAPABILITIES,
                "effective": CAPABILITIES,
                "permitted": CAPABILITIES,
            },
            "noNewPrivileges": true,
        },
        "root": {"path": "root", "readonly": true},
        "hostname": request.name,
        "mounts": mounts,
        "linux": {
            "cgroupsPath": Path::new("/").join(cgroup),
            "namespaces": namespaces,
        },
    }))
}

fn mount(destination: &str, kind: &str, options: &[&str]) -> Value {
    json!({"destination": destination, "type": kind, "source": kind, "options": options})
}

/// A directory of the host at its own place, with what is mounted below it.
fn bind(directory: &Path, access: &str) -> Value {
    let options = ["rbind", access];
    json!({"destination": directory, "type": "bind", "source": directory, "options": options})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_directories_are_read_only_and_what_is_given_is_writable() {
        let writable = [PathBuf::from("/var/tmp")];
        let request = Request {
            name: "a",
            command: "true",
            writable: &writable,
            cgroup: Path::new("lockscope-1/a"),
        };
        let bundle = Bundle::create("runc", &request, request.cgroup).expect("a bundle");
        let text = fs::read_to_string(bundle.path().join("config.json")).expect("written");
        let configuration: Value = serde_json::from_str(&text).expect("JSON");
        let options = |destination: &str| {
            let mounts = configuration["mounts"].as_array().expect("a list");
            let mount = mounts
                .iter()
                .find(|mount| mount["destination"] == destination);
            mount.map(|mount| mount["options"].clone())
        };
        assert_eq!(options("/usr"), Some(json!(["rbind", "ro"])));
        assert_eq!(options("/var/tmp"), Some(json!(["rbind", "rw"])));
        assert_eq!(configuration["root"]["readonly"], true);
        assert_eq!(configuration["linux"]["cgroupsPath"], "/lockscope-1/a");
        // What is mounted has a place, and none of the host's own pseudo file systems is.
        for mount in configuration["mounts"].as_array().expect("a list") {
            let destination = mount["destination"].as_str().expect("a path");
            if mount["type"] == "bind" && !writable.contains(&destination.into()) {
                assert!(bundle.path().join("root").join(&destination[1..]).is_dir());
                assert!(!["/proc", "/sys", "/dev", "/run"].contains(&destination));
            }
        }
    }

    #[test]
    fn links_of_the_root_stay_links() {
        let directory = tempfile::tempdir().expect("a directory");
        let (root, copy) = (directory.path().join("root"), directory.path().join("copy"));
        fs::create_dir_all(root.join("usr")).expect("made");
        fs::create_dir_all(root.join("proc/1")).expect("made");
        fs::write(root.join("file"), "").expect("made");
        symlink("usr/bin", root.join("bin")).expect("made");
        let mounts = mirror(&root, &copy).expect("mirrored");
        assert_eq!(mounts, [root.join("usr")]);
        assert_eq!(
            fs::read_link(copy.join("bin")).expect("a link"),
            Path::new("usr/bin")
        );
        assert!(copy.join("proc").is_dir() && !copy.join("proc/1").exists());
        assert!(!copy.join("file").exists());
    }
}
