//! A profile of this host, measured once for the tests of all binaries of a build.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

/// After this time the host may have become another one.
const LASTS: Duration = Duration::from_secs(3600);

/// The profile, as JSON: that which `LEASEHOLD_TEST_PROFILE` names; else the first call measures it, unless the tests of another
/// binary have done so.
pub(crate) fn profile() -> &'static str {
    static PROFILE: OnceLock<String> = OnceLock::new();
    PROFILE.get_or_init(|| {
        if let Some(given) = env::var_os("LEASEHOLD_TEST_PROFILE") {
            return fs::read_to_string(given).expect("the profile that is given");
        }
        let kept = kept();
        recent(&kept).unwrap_or_else(|| {
            let output = Command::new(PROGRAM)
                .args(["calibrate", "--json", "--no-store"])
                .output()
                .expect("runs");
            assert!(output.status.success(), "{output:?}");
            let profile = String::from_utf8(output.stdout).expect("text");
            let written = kept.with_extension(std::process::id().to_string());
            fs::write(&written, &profile).expect("written");
            fs::rename(written, kept).expect("renamed");
            profile
        })
    })
}

/// Where the profile of this build of the program is kept.
fn kept() -> PathBuf {
    let changed = fs::metadata(PROGRAM).and_then(|program| program.modified());
    let changed = changed
        .expect("the program")
        .duration_since(SystemTime::UNIX_EPOCH);
    let name = format!("profile-{}.json", changed.expect("a time").as_nanos());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn recent(path: &Path) -> Option<String> {
    let measured = fs::metadata(path).and_then(|kept| kept.modified()).ok()?;
    (measured.elapsed().ok()? < LASTS).then(|| fs::read_to_string(path).ok())?
}
