//! Compiles the BPF programs, if the tracer is wanted: with clang, the one compiler that emits the
//! relocations that make them run on other kernels than the one they were built on. Where there is no
//! clang, takes those that `scripts/bpf` compiled.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const PROGRAMS: [&str; 4] = ["full", "contended", "calibrate", "delay"];
const HEADERS: [&str; 6] = [
    "interrupt.h",
    "kernel.h",
    "layout.h",
    "object.h",
    "record.h",
    "workload.h",
];
/// The names that clang goes by, newest first; `CLANG` overrides them, and stands for none if it is empty.
const COMPILERS: [&str; 7] = [
    "clang", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-14",
];

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    for file in HEADERS {
        println!("cargo::rerun-if-changed=bpf/{file}");
    }
    for program in PROGRAMS {
        println!("cargo::rerun-if-changed=bpf/{program}.bpf.c");
    }
    if env::var_os("CARGO_FEATURE_TRACER").is_some() {
        match compiler() {
            Some(clang) => PROGRAMS.iter().for_each(|program| compile(&clang, program)),
            None => PROGRAMS.iter().for_each(|program| take(program)),
        }
    }
}

fn compiler() -> Option<String> {
    if let Ok(clang) = env::var("CLANG") {
        return Some(clang).filter(|clang| !clang.is_empty());
    }
    let works = |name: &&&str| {
        let output = Command::new(name).arg("-print-targets").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("bpf"))
    };
    COMPILERS.iter().find(works).map(|name| (*name).into())
}

/// Takes the program as it is in the tree.
fn take(program: &str) {
    let object = format!("bpf/prebuilt/{program}.bpf.o");
    println!("cargo::rerun-if-changed={object}");
    if let Err(error) = fs::copy(&object, compiled(program)) {
        panic!("{object} cannot be copied: {error}");
    }
}

/// Where the crate includes the program from.
fn compiled(program: &str) -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    out.join(format!("{program}.bpf.o"))
}

fn compile(clang: &str, program: &str) {
    // libbpf's headers, which libbpf-sys brings and announces.
    let include = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    let status = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Wextra", "-Werror",
        ])
        .arg(format!("-I{include}"))
        .arg("-c")
        .arg(format!("bpf/{program}.bpf.c"))
        .arg("-o")
        .arg(compiled(program))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} failed on bpf/{program}.bpf.c: {status}"),
        Err(error) => panic!("{clang} cannot be run: {error}"),
    }
}
