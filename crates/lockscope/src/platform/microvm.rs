//! A virtual machine of QEMU's `microvm` type: a processor, memory and a serial line, no board. It is
//! accelerated where the host can do that, and emulated elsewhere.

use std::ffi::OsString;
use std::path::Path;

use crate::platform::guest_image::{self, Parts};
use crate::platform::request::{Platform, PlatformError, Prepared, Request, directory};

/// What the guest has.
const MEMORY: &str = "512M";

/// What the guest's kernel is told.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet loglevel=0 panic=-1 reboot=t nokaslr";

pub(super) fn prepare(request: &Request<'_>) -> Result<Prepared, PlatformError> {
    let name = Platform::Microvm.name();
    let parts = Parts::find(name)?;
    let files = directory(name)?;
    let image = files.path().join("image");
    guest_image::write(&image, &parts.busybox, request).map_err(|source| PlatformError::Io {
        platform: name,
        what: format!("the image of the guest, {}", image.display()),
        source,
    })?;
    let libraries = parts.machine.join("lib/x86_64-linux-gnu");
    let accelerator = match Path::new("/dev/kvm").exists() {
        true => ["kvm", "host"],
        false => ["tcg", "max,cx16=off"],
    };
    let mut program: Vec<OsString> = vec![
        libraries.join("ld-linux-x86-64.so.2").into(),
        "--library-path".into(),
        libraries.into(),
        parts.machine.join("bin/qemu-system-x86_64").into(),
        "-L".into(),
        parts.machine.join("share/qemu").into(),
        "-L".into(),
        parts.machine.join("share/seabios").into(),
        "-kernel".into(),
        parts.kernel.into(),
        "-initrd".into(),
        image.into(),
    ];
    let [accelerator, processor] = accelerator;
    let rest = [
        "-M",
        "microvm",
        "-accel",
        accelerator,
        "-cpu",
        processor,
        "-smp",
        "1",
        "-m",
        MEMORY,
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-serial",
        "stdio",
        "-append",
        KERNEL_ARGUMENTS,
    ];
    program.extend(rest.map(OsString::from));
    Ok(Prepared::new(program, Some(files)))
}
