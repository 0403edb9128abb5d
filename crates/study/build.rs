//! Records what the measured program was built with: a report names the compiler and the wasm
//! engine, and neither can be asked at run time.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_else(|| "unknown".into());
    println!("cargo:rustc-env=LEASEHOLD_RUSTC={}", version.trim());

    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    // Of the workspace; of a package, its own.
    let locks = ["../../Cargo.lock", "Cargo.lock"].map(|lock| manifest.join(lock));
    let lock = locks.iter().find(|lock| lock.exists()).unwrap_or(&locks[0]);
    println!("cargo:rerun-if-changed={}", lock.display());
    println!(
        "cargo:rustc-env=LEASEHOLD_WASMTIME={}",
        locked_version(lock, "wasmtime").unwrap_or_else(|| "unknown".into())
    );
}

/// The version of `package` in a lock file, whose entries are `name = …` followed by `version = …`.
fn locked_version(lock: &Path, package: &str) -> Option<String> {
    let text = fs::read_to_string(lock).ok()?;
    let entry = text
        .split_once(&format!("name = \"{package}\"\nversion = \""))?
        .1;
    Some(entry.split_once('"')?.0.to_owned())
}
