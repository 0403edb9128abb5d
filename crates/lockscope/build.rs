//! Compiles the BPF programs, if the tracer is wanted: with clang, the one compiler that emits the
//! relocations that make them run on other kernels than the one they were built on.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const PROGRAMS: [&str; 3] = ["full", "contended", "calibrate"];
const HEADERS: [&str; 3] = ["kernel.h", "layout.h", "record.h"];
/// The names that clang goes by, newest first; `CLANG` overrides them.
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
        let clang = compiler();
        PROGRAMS.iter().for_each(|program| compile(&clang, program));
    }
}

fn compiler() -> String {
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let works = |name: &&&str| {
        let output = Command::new(name).arg("-print-targets").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("bpf"))
    };
    match COMPILERS.iter().find(works) {
        Some(name) => (*name).into(),
        None => panic!(
            "the tracer needs clang with the target `bpf`, as `scripts/setup bpf` installs it; \
             looked for: {}, and $CLANG",
            COMPILERS.join(", ")
        ),
    }
}

fn compile(clang: &str, program: &str) {
    // libbpf's headers, which libbpf-sys brings and announces.
    let include = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let status = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Wextra", "-Werror",
        ])
        .arg(format!("-I{include}"))
        .arg("-c")
        .arg(format!("bpf/{program}.bpf.c"))
        .arg("-o")
        .arg(out.join(format!("{program}.bpf.o")))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} failed on bpf/{program}.bpf.c: {status}"),
        Err(error) => panic!("{clang} cannot be run: {error}"),
    }
}
