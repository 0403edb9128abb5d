//! A profile of this host, measured once for all tests of a binary.

use std::process::Command;
use std::sync::OnceLock;

/// The profile, as JSON. The first call measures it.
pub(crate) fn profile() -> &'static str {
    static PROFILE: OnceLock<String> = OnceLock::new();
    PROFILE.get_or_init(|| {
        let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["calibrate", "--json", "--no-store"])
            .output()
            .expect("runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    })
}
