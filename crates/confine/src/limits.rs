//! Resource limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// No core files, which would hold the memory of all tenants. Memory may be locked without limit if
/// the process has the capability now, which it is going to lose.
///
/// There is no limit on threads: the kernel counts those of all processes of the user, so that a
/// number that is right alone is wrong beside others. Processes cannot be made at all.
pub(crate) fn set() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    if getrlimit(Resource::Memlock).current.is_some() {
        let unlimited = Rlimit {
            current: None,
            maximum: None,
        };
        // Refused to ordinary users, whose limit stays as it is.
        let _ = setrlimit(Resource::Memlock, unlimited);
    }
    Ok(())
}
