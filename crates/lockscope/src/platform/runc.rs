//! A container: namespaces and a control group, by `runc`, on the host's kernel.

use crate::platform::bundle::Bundle;
use crate::platform::request::{Platform, PlatformError, Prepared, Request, find};

pub(super) fn prepare(request: &Request<'_>) -> Result<Prepared, PlatformError> {
    let name = Platform::Runc.name();
    let runc = find(
        name,
        "runc",
        "install the package runc, as `lab/fetch platforms` does for the lab",
    )?;
    // `runc` wants a group of its own, with nothing in it: one below the workload's.
    let bundle = Bundle::create(name, request, &request.cgroup.join("container"))?;
    let mut program = vec![runc.into_os_string()];
    program.extend(["--root".into(), bundle.state().into()]);
    program.extend(["run".into(), "--bundle".into(), bundle.path().into()]);
    program.push(bundle.id().into());
    Ok(Prepared::new(program, Some(bundle.into_files())))
}
