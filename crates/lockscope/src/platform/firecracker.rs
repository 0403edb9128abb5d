//! A virtual machine of Firecracker, LockScope's fourth platform. Not run here: there is neither its
//! program in a registry nor a `/dev/kvm` on the machine that this was written on.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::platform::guest_image::{self, Parts};
use crate::platform::request::{Platform, PlatformError, Prepared, Request, directory, find};

/// Names a kernel image in ELF: Firecracker takes no compressed one.
const KERNEL: &str = "LOCKSCOPE_VMLINUX";

pub(super) fn prepare(request: &Request<'_>) -> Result<Prepared, PlatformError> {
    let name = Platform::Firecracker.name();
    let needs = |what: String| PlatformError::Needs {
        platform: name,
        what,
    };
    let install = "get it from its project's releases";
    let firecracker = find(name, "firecracker", install)?;
    if !Path::new("/dev/kvm").exists() {
        return Err(needs(
            "found no /dev/kvm, which its virtual machines need".into(),
        ));
    }
    let kernel = std::env::var_os(KERNEL)
        .map(PathBuf::from)
        .filter(|kernel| kernel.is_file());
    let kernel = kernel.ok_or_else(|| {
        needs(format!(
            "${KERNEL} names no file, expected a kernel in ELF (vmlinux)"
        ))
    })?;
    let files = directory(name)?;
    let image = files.path().join("image");
    let configuration = files.path().join("machine.json");
    let machine = json!({
        "boot-source": {
            "kernel_image_path": kernel,
            "initrd_path": image,
            "boot_args": "console=ttyS0 quiet loglevel=0 panic=1 reboot=k pci=off",
        },
        "drives": [],
        "machine-config": {"vcpu_count": 1, "mem_size_mib": 512},
    });
    let parts = Parts::find(name)?;
    guest_image::write(&image, &parts.busybox, request)
        .and_then(|()| fs::write(&configuration, machine.to_string()))
        .map_err(|source| PlatformError::Io {
            platform: name,
            what: format!("its configuration in {}", files.path().display()),
            source,
        })?;
    let program = [
        firecracker.into_os_string(),
        "--no-api".into(),
        "--config-file".into(),
    ];
    Ok(Prepared::new(
        program.into_iter().chain([configuration.into()]),
        Some(files),
    ))
}
