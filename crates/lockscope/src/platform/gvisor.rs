//! gVisor: a kernel that is a program of the host, the sentry, and a file server beside it.

use crate::platform::bundle::Bundle;
use crate::platform::request::{Interception, Platform, PlatformError, Prepared, Request, find};

impl Interception {
    fn flag(self) -> &'static str {
        match self {
            Self::Systrap => "--platform=systrap",
            Self::Ptrace => "--platform=ptrace",
            Self::Kvm => "--platform=kvm",
        }
    }
}

pub(super) fn prepare(
    request: &Request<'_>,
    interception: Interception,
) -> Result<Prepared, PlatformError> {
    let name = Platform::Gvisor(interception).name();
    let runsc = find(
        name,
        "runsc",
        "`lab/fetch platforms` builds it, into target/lab/platforms/bin",
    )?;
    if interception == Interception::Kvm && !std::path::Path::new("/dev/kvm").exists() {
        return Err(PlatformError::Needs {
            platform: name,
            what: "found no /dev/kvm; gvisor and gvisor-ptrace do without".into(),
        });
    }
    let bundle = Bundle::create(name, request, request.cgroup)?;
    let mut state = std::ffi::OsString::from("--root=");
    state.push(bundle.state());
    let mut program = vec![runsc.into_os_string(), state, interception.flag().into()];
    // Sentry and file server stay in the group that they are started in. What is written goes to the
    // host's files, as it does in a container: not into the sandbox's memory.
    program.extend(["--ignore-cgroups", "--network=none", "--overlay2=none"].map(Into::into));
    program.extend(["run".into(), "--bundle".into(), bundle.path().into()]);
    program.push(bundle.id().into());
    Ok(Prepared::new(program, Some(bundle.into_files())))
}
