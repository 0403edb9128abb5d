//! What a virtual machine boots into: a file system in its own memory, with busybox, the programs that
//! the command names, and the directories that it may write to. What the guest does with files stays in
//! the guest, so a virtual machine needs neither a disk nor a file server here.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::platform::request::{PlatformError, Request};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// The parts of the lab that a virtual machine is made of ([`lab/fetch`]).
pub(super) struct Parts {
    /// The kernel, as a boot loader takes it.
    pub(super) kernel: PathBuf,
    /// Busybox, linked with everything.
    pub(super) busybox: PathBuf,
    /// The tree that QEMU was unpacked into.
    pub(super) machine: PathBuf,
}

impl Parts {
    /// Finds them in `$LEASEHOLD_LAB`, or else in `target/lab`.
    pub(super) fn find(platform: &'static str) -> Result<Self, PlatformError> {
        let lab = std::env::var_os("LEASEHOLD_LAB").unwrap_or_else(|| "target/lab".into());
        let lab = Path::new(&lab);
        let missing = |what: &str| PlatformError::Needs {
            platform,
            what: format!(
                "found no {what} in {}; fetch it: lab/fetch machine",
                lab.display()
            ),
        };
        let kernels = fs::read_dir(lab.join("kernel/boot")).map_err(|_| missing("kernel"))?;
        let names = kernels.filter_map(|entry| Some(entry.ok()?.path()));
        let is_kernel = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        };
        let machine = lab.join("machine/usr");
        let busybox = machine.join("bin/busybox");
        Ok(Self {
            kernel: names
                .into_iter()
                .find(is_kernel)
                .ok_or_else(|| missing("kernel"))?,
            busybox: match busybox.is_file() {
                true => busybox,
                false => return Err(missing("busybox")),
            },
            machine,
        })
    }
}

/// Writes the image to `file`.
pub(super) fn write(file: &Path, busybox: &Path, request: &Request<'_>) -> io::Result<()> {
    let mut archive = Archive {
        bytes: Vec::new(),
        directories: BTreeSet::new(),
    };
    for directory in ["/bin", "/proc", "/sys", "/dev", "/tmp"] {
        archive.directory(Path::new(directory));
    }
    archive.entry(Path::new("/bin/busybox"), PROGRAM, &fs::read(busybox)?);
    archive.entry(Path::new("/bin/sh"), LINK, b"busybox");
    for program in programs(request.command) {
        archive.parents(&program);
        let bytes = fs::read(&program)?;
        archive.entry(&program, PROGRAM, &bytes);
    }
    for directory in request.writable {
        archive.parents(directory);
        archive.directory(directory);
    }
    archive.entry(
        Path::new("/init"),
        PROGRAM,
        init(request.command).as_bytes(),
    );
    fs::File::create(file)?.write_all(&archive.finish())
}

/// The files that a command names by their absolute paths, each once.
fn programs(command: &str) -> BTreeSet<PathBuf> {
    let words = command.split([' ', '\t', '\n', ';', '&', '|', '(', ')', '\'', '"']);
    let paths = words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from);
    paths.filter(|path| path.is_file()).collect()
}

/// The first program of the guest.
fn init(command: &str) -> String {
    format!(
        "#!/bin/sh\n\
         /bin/busybox --install -s /bin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         stty -echo\n\
         {command}\n\
         reboot -f\n"
    )
}

/// An archive in cpio's "newc" format, which the kernel unpacks.
struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<PathBuf>,
}

impl Archive {
    fn parents(&mut self, path: &Path) {
        let parents: Vec<_> = path.ancestors().skip(1).collect();
        for parent in parents
            .into_iter()
            .rev()
            .filter(|parent| parent.parent().is_some())
        {
            self.directory(parent);
        }
    }

    fn directory(&mut self, path: &Path) {
        if self.directories.insert(path.to_owned()) {
            self.entry(path, DIRECTORY, &[]);
        }
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        let path = path.to_string_lossy();
        self.raw(path.trim_start_matches('/'), mode, content);
    }

    fn raw(&mut self, name: &str, mode: u32, content: &[u8]) {
        // Inode, mode, owner and group, links, time, size, four numbers of devices, length of the
        // name, checksum.
        let inode = self.bytes.len() as u32;
        let (size, name_size) = (content.len() as u32, name.len() as u32 + 1);
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.raw("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_programs_of_a_command_are_those_it_names_by_absolute_paths() {
        let found = programs("cd /tmp; '/proc/self/exe' -x && sh -c /no/such/program");
        assert_eq!(found, BTreeSet::from([PathBuf::from("/proc/self/exe")]));
    }

    #[test]
    fn cpio_unpacks_the_image() {
        let directory = tempfile::tempdir().expect("a directory");
        let busybox = directory.path().join("busybox");
        fs::write(&busybox, "not really").expect("written");
        let image = directory.path().join("image");
        let writable = [directory.path().to_owned()];
        let request = Request {
            name: "a",
            command: "exec true",
            writable: &writable,
            cgroup: Path::new("a"),
        };
        write(&image, &busybox, &request).expect("written");
        let list = Command::new("cpio")
            .arg("-t")
            .stdin(fs::File::open(&image).expect("opened"))
            .output();
        let Ok(list) = list else {
            eprintln!("not run: no cpio here");
            return;
        };
        assert!(
            list.status.success(),
            "{}",
            String::from_utf8_lossy(&list.stderr)
        );
        let listed = String::from_utf8_lossy(&list.stdout).into_owned();
        let names: Vec<_> = listed.lines().collect();
        assert!(
            names.contains(&"bin/busybox") && names.contains(&"init"),
            "{names:?}"
        );
        let writable = writable[0].to_string_lossy();
        assert!(
            names.contains(&writable.trim_start_matches('/')),
            "{names:?}"
        );
    }
}
