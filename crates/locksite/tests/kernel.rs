//! A small test kernel, compiled when the test runs. Each of its functions takes its lock in one of
//! the forms that real ones use; the expected locks were written by hand.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_locksite::{Code, Kernel, Lock, Paths, Reason};

const PRIMITIVES: [&str; 6] = [
    "_raw_spin_lock",
    "_raw_spin_lock_irqsave",
    "_raw_spin_trylock",
    "_raw_read_lock",
    "mutex_lock",
    "down_write",
];

/// The locks that each function takes, in the order of its calls.
const LOCKS: [(&str, &[&str]); 44] = [
    ("member", &["inode.i_lock"]),
    ("member_of_member", &["inode.i_mapping.tree_lock"]),
    ("anonymous_member", &["inode.i_dir_mutex"]),
    ("through_pointers", &["super_block.s_umount"]),
    ("global", &["global_lock"]),
    ("global_reader", &["tasklist"]),
    ("global_structure", &["registry.lock"]),
    ("global_pointer", &["super_block.s_umount"]),
    ("global_pointer_to_lock", &["chosen"]),
    ("static_local", &["once"]),
    ("array_of_locks", &["stripes[]"]),
    ("array_by_sum", &["stripes"]),
    ("hash_bucket", &["bucket.lock[] in table.buckets"]),
    ("array_in_object", &["table.locks[]"]),
    ("lock_elsewhere", &["super_block.s_shared_lock"]),
    ("local_pointer", &["inode.i_lock"]),
    (
        "local_reassigned",
        &["inode.i_lock", "wait_queue.lock in super_block.s_wait"],
    ),
    ("outer_object", &["demo_inode.d_lock"]),
    (
        "embedded_object",
        &["wait_queue.lock in super_block.s_wait"],
    ),
    ("entry_of_list", &["inode.i_lock"]),
    ("with_flags", &["inode.i_lock"]),
    ("over_lines", &["inode.i_mapping.tree_lock"]),
    ("guarded", &["inode.i_lock"]),
    ("guarded_mutex", &["file.f_pos_lock"]),
    ("returned_lock", &["bucket.lock[] in table.buckets"]),
    ("configured_lock", &["inode.i_mapping.tree_lock"]),
    ("either", &["inode.i_lock"]),
    ("from_nothing", &["demo_inode.d_lock"]),
    ("of_typedef", &["pool_t.lock"]),
    ("called_through_pointer", &["inode.i_rwsem"]),
    ("read_once", &["inode.i_lock"]),
    ("own_copy", &["demo_percpu.lock in percpu_state"]),
    ("on_stack", &["wait_queue.lock in queue"]),
    ("tried", &["inode.i_lock"]),
    ("two_on_a_line", &["inode.i_lock", "super_block.s_umount"]),
    ("inlined_taker", &["inode.i_rwsem"]),
    ("by_macro", &["bucket.lock[] in table.buckets"]),
    ("wrapper", &["unknown (caller not in the stack)"]),
    ("jumps", &["registry.lock"]),
    ("queue_lock", &["wait_queue.lock"]),
    ("lock_from_argument", &["inode.i_mapping.tree_lock"]),
    ("in_included_source", &["private.lock"]),
    ("same_name_elsewhere", &["private.lock"]),
    ("never", &[]),
];

/// Locks that wrappers take for a caller: the chain of functions, innermost first.
const CHAINS: [(&[&str], &str, &str); 3] = [
    (
        &["wrapper", "calls_wrapper"],
        "inode.i_lock",
        "calls_wrapper",
    ),
    (
        &[
            "wrapper",
            "wrapper_of_wrapper",
            "calls_wrapper_twice_removed",
        ],
        "wait_queue.lock in super_block.s_wait",
        "calls_wrapper_twice_removed",
    ),
    (
        &["queue_lock", "calls_queue_lock"],
        "wait_queue.lock in super_block.s_wait",
        "queue_lock",
    ),
];

/// The compiled kernel and its calls.
struct Compiled {
    _directory: tempfile::TempDir,
    kernel: Kernel,
    /// For each calling function, the callee and the address after the call.
    calls: BTreeMap<String, Vec<(String, u64)>>,
}

fn compile() -> Compiled {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel");
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("vmlinux");
    let status = Command::new("cc")
        .args([
            "-g",
            "-O2",
            "-w",
            "-std=gnu11",
            "-ffreestanding",
            "-fno-pic",
            "-no-pie",
            "-static",
        ])
        .args([
            "-nostdlib",
            "-fno-stack-protector",
            "-fcf-protection=none",
            "-fno-ipa-icf",
        ])
        .args([
            "-fno-ipa-cp",
            "-fno-ipa-sra",
            "-mno-red-zone",
            "-DCONFIG_SPLIT",
            "-Iinclude",
        ])
        .args([
            "-fno-reorder-functions",
            "-fno-ipa-ra",
            "-fno-inline-functions-called-once",
        ])
        .args([
            "-include",
            "include/linux/kconfig.h",
            "-include",
            "include/linux/compiler_types.h",
        ])
        .args(["fs/demo.c", "mm/page.c", "start.c", "-o"])
        .arg(&image)
        .current_dir(&source)
        .status()
        .expect("a C compiler, cc, which building Rust programs needs too");
    assert!(status.success());
    let calls = common::calls(&fs::read(&image).unwrap());
    let kernel = Kernel::open(&Paths {
        vmlinux: image,
        modules: PathBuf::from("none"),
        config: source.join("config"),
        source,
    });
    Compiled {
        _directory: directory,
        kernel: kernel.unwrap(),
        calls,
    }
}

#[test]
fn every_shape_of_taking_a_lock_is_mapped_to_its_object() {
    let compiled = compile();
    let mut wrong = Vec::new();
    for (function, expected) in LOCKS {
        let calls = compiled.calls.get(function).map_or(&[][..], Vec::as_slice);
        let taken = calls
            .iter()
            .filter(|(callee, _)| PRIMITIVES.contains(&callee.as_str()));
        let found: Vec<String> = taken
            .map(|(callee, after)| {
                let site = compiled
                    .kernel
                    .site(callee, &[Code::Linked(*after)])
                    .unwrap();
                site.lock.to_string()
            })
            .collect();
        if found != expected {
            wrong.push(format!(
                "{function}: found {found:?}, expected {expected:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrapper_takes_the_lock_that_its_caller_names() {
    let compiled = compile();
    for (chain, expected, place) in CHAINS {
        let mut callee = "_raw_spin_lock";
        let mut code = Vec::new();
        for function in chain {
            let calls = &compiled.calls[*function];
            let (_, after) = calls.iter().find(|(called, _)| called == callee).unwrap();
            code.push(Code::Linked(*after));
            callee = function;
        }
        let site = compiled.kernel.site("_raw_spin_lock", &code).unwrap();
        assert_eq!(
            (&*site.lock.to_string(), &*site.function),
            (expected, place),
            "{chain:?}"
        );
    }
}

#[test]
fn a_function_that_jumps_to_a_wrapper_is_asked_although_the_chain_lacks_the_wrapper() {
    let compiled = compile();
    // Returned to is the caller of `calls_wrapper`'s wrapper: the chain has that frame alone.
    let (_, after) = compiled.calls["calls_wrapper"]
        .iter()
        .find(|(callee, _)| callee == "wrapper")
        .unwrap();
    let site = compiled
        .kernel
        .site("_raw_spin_lock", &[Code::Linked(*after)])
        .unwrap();
    assert_eq!(site.lock.to_string(), "inode.i_lock");
}

#[test]
fn the_offset_leads_from_the_lock_to_its_object() {
    let compiled = compile();
    let offset = |function: &str| {
        let (callee, after) = compiled.calls[function]
            .iter()
            .find(|(callee, _)| PRIMITIVES.contains(&callee.as_str()))
            .unwrap();
        match compiled
            .kernel
            .site(callee, &[Code::Linked(*after)])
            .unwrap()
            .lock
        {
            Lock::Member { offset, .. } => offset,
            other => panic!("{function}: {other}"),
        }
    };
    // As the structures of the test's kernel are laid out on x86-64.
    assert_eq!(offset("member"), Some(8));
    assert_eq!(offset("member_of_member"), Some(64));
    assert_eq!(offset("outer_object"), Some(8));
    assert_eq!(offset("in_included_source"), Some(24));
    assert_eq!(offset("same_name_elsewhere"), Some(0));
    assert_eq!(
        offset("lock_elsewhere"),
        None,
        "the object has a pointer to the lock only"
    );
}

#[test]
fn code_without_debug_information_is_no_error() {
    let compiled = compile();
    let site = compiled
        .kernel
        .site("mutex_lock", &[Code::Linked(1)])
        .unwrap();
    assert_eq!(
        site.lock,
        Lock::Unknown {
            reason: Reason::NoDebugInformation
        }
    );
    let unloaded = Code::Symbol {
        module: Some("nothing".into()),
        symbol: "init".into(),
        offset: 1,
        size: None,
    };
    let site = compiled.kernel.site("mutex_lock", &[unloaded]).unwrap();
    assert_eq!(
        site.lock,
        Lock::Unknown {
            reason: Reason::NoDebugInformation
        }
    );
}

#[test]
fn what_cannot_be_opened_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vmlinux");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel");
    let open = |vmlinux: &Path, source: &Path| {
        let paths = Paths {
            vmlinux: vmlinux.into(),
            modules: PathBuf::from("none"),
            source: source.into(),
            config: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/config"),
        };
        Kernel::open(&paths).err().unwrap().to_string()
    };
    assert!(open(&file, directory.path()).contains("not a kernel source tree"));
    assert!(
        open(&file, &source).contains("vmlinux"),
        "a file that is not there"
    );
    fs::write(&file, b"no image").unwrap();
    assert!(open(&file, &source).contains("not a usable ELF file"));
    fs::copy("/bin/true", &file).unwrap();
    assert!(open(&file, &source).contains("stripped"));
}
