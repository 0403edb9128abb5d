//! Which compiled programs of the cache are used, and where their code is.

mod common;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{captured, lease, profile};
use leasehold_cell::engine_config::engine_config;
use leasehold_cell::preempt::Mechanism;
use leasehold_cell::program::{Entry, Form, Program, Purpose};
use leasehold_cell::{Cell, CellConfig, CodeCache, Exit};
use leasehold_confine::locks_without_limit;
use leasehold_confine::owned::OwnedError;
use leasehold_wasm::inventory::Inventory;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use wasmtime::Engine;

fn engine() -> Engine {
    Engine::new(&engine_config(Mechanism::Epochs)).expect("the configuration is valid")
}

/// A component that does nothing.
const COMPONENT: &str = r#"(component
    (core module $r (memory 2) (func (export "run") (result i32) (i32.const 0)))
    (core instance $ri (instantiate $r))
    (func $run_f (result (result)) (canon lift (core func $ri "run")))
    (component $run (import "x" (func $f (result (result)))) (export "run" (func $f)))
    (instance $ro (instantiate $run (with "x" (func $run_f))))
    (export "wasi:cli/run@0.2.0" (instance $ro)))"#;

/// Opens a cache whose secret is beside it.
fn open_cache(cache: &Path) -> Result<CodeCache, OwnedError> {
    CodeCache::open(cache, &cache.with_extension("key"))
}

/// The compiled programs of a cache.
fn entries(cache: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(cache).into_iter().flatten();
    let paths = listed.map(|entry| entry.expect("readable").path());
    let mut entries: Vec<_> = paths.filter(|path| !path.ends_with("known")).collect();
    entries.sort();
    entries
}

/// Loads a file through a cache; returns what a run of it takes, and whether the cache served it.
fn load_cached(file: &Path, cache: &Path) -> (Inventory, bool) {
    let stamp = |cache: &Path| {
        let inode = |path: PathBuf| {
            let inode = std::fs::metadata(&path).expect("still there").ino();
            (path, inode)
        };
        entries(cache).into_iter().map(inode).collect::<Vec<_>>()
    };
    // Writing an entry makes a new file, so that an entry that stays was used.
    let before = stamp(cache);
    let opened = open_cache(cache).expect("trusted");
    let program = Program::load(&engine(), file, Some(&opened)).expect("valid");
    (
        *program.inventory(),
        !before.is_empty() && stamp(cache) == before,
    )
}

#[test]
fn a_program_is_compiled_once_for_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, cache) = (
        directory.path().join("a.wat"),
        directory.path().join("deep/cache"),
    );
    let bytes = || {
        let opened = open_cache(&cache).expect("trusted");
        let program = Program::load(&engine(), &file, Some(&opened)).expect("valid");
        program.code_bytes()
    };
    for text in [COMPONENT, r#"(module (memory 3) (func (export "_start")))"#] {
        std::fs::write(&file, text).expect("writable");
        let compiled = Program::load(&engine(), &file, None).expect("valid");
        let (first, served) = load_cached(&file, &cache);
        assert!(!served);
        let (second, served) = load_cached(&file, &cache);
        assert!(served);
        // A limit on it holds at every start or at none.
        assert_eq!(bytes(), compiled.code_bytes());
        assert_eq!(second, first);
        assert_ne!(second, Inventory::default());
    }
    assert_eq!(entries(&cache).len(), 2);
}

#[test]
fn an_image_is_kept_with_the_code_as_it_was_found_in_the_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, cache) = (
        directory.path().join("a.wat"),
        directory.path().join("cache"),
    );
    // Two mebibytes from byte 5000 on, each page of its own, with a hole and a segment over others.
    let segments: String = (0..512)
        .filter(|page| *page != 300)
        .map(|page| {
            let text = format!("{page:04}").repeat(1024);
            format!("(data (i32.const {}) {text:?})", 5000 + 4096 * page)
        })
        .collect();
    let text = format!(
        r#"(module (memory (export "memory") 64) {segments} (data (i32.const 9000) "over")
            (func (export "_start")))"#
    );
    std::fs::write(&file, text).expect("writable");
    let load = |form| {
        let opened = open_cache(&cache).expect("trusted");
        let purpose = Purpose {
            entry: Entry::Command,
            form,
        };
        let program = Program::load_for(purpose, &engine(), &file, Some(&opened)).expect("valid");
        let image = program.image().expect("an image").clone();
        let pages = (0..image.pages()).map(|page| image.page(page).expect("read").expect("a page"));
        (image.first(), image.digest(), pages.collect::<Vec<_>>())
    };
    for form in [Form::ImageShown, Form::ImageApart] {
        let compiled = load(form);
        assert_eq!(compiled.0, 1);
        assert_eq!(compiled.2.len(), 513);
        assert_eq!(&compiled.2[1][808..812], b"over");
        let before = entries(&cache).len();
        let kept = load(form);
        assert_eq!(entries(&cache).len(), before);
        assert!(kept == compiled);
        // What instances are shown cannot be written to from here.
        let opened = open_cache(&cache).expect("trusted");
        let purpose = Purpose {
            entry: Entry::Command,
            form,
        };
        let program = Program::load_for(purpose, &engine(), &file, Some(&opened)).expect("valid");
        let (shared, start) = program.image().expect("an image").place();
        assert!(std::os::unix::fs::FileExt::write_at(&*shared, b"x", start).is_err());
    }
}

#[test]
fn what_is_known_of_an_entry_and_of_a_program_ends_with_their_next_change() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, cache) = (
        directory.path().join("a.wat"),
        directory.path().join("cache"),
    );
    let text = |pages: u32| format!(r#"(module (memory {pages}) (func (export "_start")))"#);
    std::fs::write(&file, text(2)).expect("writable");
    let notes = || entries(&cache.join("known")).len();
    let settle = || std::thread::sleep(std::time::Duration::from_millis(2_100));
    assert!(!load_cached(&file, &cache).1);
    assert_eq!(notes(), 0, "both are young");
    settle();
    let (before, served) = load_cached(&file, &cache);
    assert!(served);
    assert_eq!(
        notes(),
        3,
        "the entry's, the program's digest and what it reaches"
    );
    assert_eq!(load_cached(&file, &cache), (before, true));
    assert_eq!(notes(), 3);
    // In place, with the same length and time of modification.
    let alter = |path: &Path, alter: &dyn Fn(&mut Vec<u8>)| {
        let modified = std::fs::metadata(path).and_then(|it| it.modified());
        let mut bytes = std::fs::read(path).expect("readable");
        alter(&mut bytes);
        std::fs::write(path, bytes).expect("writable");
        let opened = std::fs::File::options().write(true).open(path);
        let opened = opened.expect("writable");
        opened.set_modified(modified.expect("known")).expect("set");
    };
    let entry = entries(&cache).pop().expect("one entry");
    alter(&entry, &|bytes| bytes[100] ^= 1);
    settle();
    assert!(!load_cached(&file, &cache).1, "it is damaged");
    alter(&file, &|bytes| *bytes = text(3).into_bytes());
    settle();
    let (after, served) = load_cached(&file, &cache);
    assert!(!served && after != before);
}

#[test]
fn a_damaged_entry_is_compiled_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, cache) = (
        directory.path().join("a.wat"),
        directory.path().join("cache"),
    );
    std::fs::write(&file, r#"(module (func (export "_start")))"#).expect("writable");
    let (inventory, _) = load_cached(&file, &cache);
    let entry = entries(&cache).pop().expect("one entry");
    let whole = std::fs::read(&entry).expect("readable");
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    for damaged in [
        Vec::new(),
        whole[..40].to_vec(),
        whole[..whole.len() - 1].to_vec(),
        flipped(3),
        flipped(20),
        flipped(60),
        flipped(whole.len() / 2),
        flipped(whole.len() - 1),
    ] {
        std::fs::remove_file(&entry).expect("there");
        let mut options = std::fs::File::options();
        let opened = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&entry);
        let mut opened = opened.expect("writable");
        opened.write_all(&damaged).expect("writable");
        assert_eq!(load_cached(&file, &cache), (inventory, false));
        assert_eq!(load_cached(&file, &cache), (inventory, true));
    }
}

#[test]
fn entries_that_others_could_have_written_are_not_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, cache) = (
        directory.path().join("a.wat"),
        directory.path().join("cache"),
    );
    std::fs::write(&file, r#"(module (func (export "_start")))"#).expect("writable");
    load_cached(&file, &cache);
    let entry = entries(&cache).pop().expect("one entry");
    std::fs::set_permissions(&entry, Permissions::from_mode(0o666)).expect("ours");
    assert!(
        !load_cached(&file, &cache).1,
        "a file that any user can write to"
    );
    assert!(load_cached(&file, &cache).1);
    let elsewhere = directory.path().join("elsewhere");
    std::fs::rename(&entry, &elsewhere).expect("ours");
    std::os::unix::fs::symlink(&elsewhere, &entry).expect("ours");
    assert!(!load_cached(&file, &cache).1, "a link");
    for shared in [&cache, directory.path()] {
        std::fs::set_permissions(shared, Permissions::from_mode(0o777)).expect("ours");
        let refused = open_cache(&cache)
            .expect_err("others can write")
            .to_string();
        assert!(
            refused.contains(shared.to_str().expect("text")),
            "{refused}"
        );
        std::fs::set_permissions(shared, Permissions::from_mode(0o700)).expect("ours");
    }
    open_cache(&cache).expect("trusted again");
}

/// The only entry of a cache.
fn entry_of(cache: &Path) -> PathBuf {
    entries(cache).pop().expect("one entry")
}

/// Code that exits with this number.
fn exits_with(code: u32) -> String {
    format!(
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
             (memory (export "memory") 1) (func (export "_start") (call $exit (i32.const {code}))))"#
    )
}

#[test]
fn an_entry_under_the_name_of_another_program_is_not_executed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let (mine, yours) = (path("mine.wat"), path("yours.wat"));
    std::fs::write(&mine, exits_with(1)).expect("writable");
    std::fs::write(&yours, exits_with(2)).expect("writable");
    load_cached(&mine, &path("cache"));
    // Made by the same user, with the same secret.
    std::fs::copy(path("cache.key"), path("other.key")).expect("copied");
    load_cached(&yours, &path("other"));
    std::fs::copy(entry_of(&path("other")), entry_of(&path("cache"))).expect("copied");
    assert!(!load_cached(&mine, &path("cache")).1);
}

#[test]
fn an_entry_made_without_the_secret_is_not_executed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let file = path("a.wat");
    std::fs::write(&file, exits_with(1)).expect("writable");
    load_cached(&file, &path("cache"));
    // The whole directory under another secret: as restored, or as made by a tenant that got out.
    load_cached(&file, &path("other"));
    std::fs::copy(entry_of(&path("other")), entry_of(&path("cache"))).expect("copied");
    assert!(!load_cached(&file, &path("cache")).1);
    assert!(load_cached(&file, &path("cache")).1);
    // Others may not read the secret.
    std::fs::set_permissions(path("cache.key"), Permissions::from_mode(0o640)).expect("ours");
    assert!(open_cache(&path("cache")).is_err());
}

/// Whether a thread of this process has the code of the entry mapped from its file.
fn is_mapped(entry: &Path) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let entry = entry.to_str().expect("text");
    let mut of_entry = maps.lines().filter(|line| line.contains(entry));
    of_entry.any(|line| line.contains(" r-xp "))
}

/// Runs the program in `file` on a cell of its own, from a cache that was empty; returns how it ended, and whether its
/// code was mapped.
fn run_cached(file: &Path, cache: &Path) -> (Exit, bool) {
    let mut config = CellConfig::new(profile());
    config.code_cache = Some(Arc::new(open_cache(cache).expect("trusted")));
    let cell = Cell::start(config).expect("a cell starts");
    // Of the host's own modules.
    let own = entries(cache);
    drop(cell.load(file).expect("compiled"));
    let program = cell.load(file).expect("cached");
    let mut entry = entries(cache);
    entry.retain(|entry| !own.contains(entry));
    let entry = entry.pop().expect("one entry");
    let mapped = is_mapped(&entry);
    // The code is in use: another file takes the place of its entry, and then there is none.
    let other = cache.with_extension("other");
    std::fs::write(&other, [0; 8192]).expect("writable");
    std::fs::rename(&other, &entry).expect("replaced");
    std::fs::remove_file(&entry).expect("removed");
    let (request, _) = captured(program, "cached", &[], lease(50_000, 1024));
    let ended = cell.start_tenant(request).expect("started").wait();
    (ended.expect("ended").exit, mapped)
}

/// The calling thread gives up the right to lock more memory than the limit.
fn forgo_locks() {
    let mut sets = capabilities(None).expect("known");
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).expect("given up");
}

#[test]
fn cached_code_is_mapped_where_it_may_be_locked_and_copied_elsewhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a.wat");
    for (text, exit) in [(&*exits_with(7), 7), (COMPONENT, 0)] {
        std::fs::write(&file, text).expect("writable");
        for forgoes in [false, true] {
            let cache = directory.path().join(format!("cache-{exit}-{forgoes}"));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    if forgoes {
                        forgo_locks();
                    }
                    let expected = (Exit::Code(exit), locks_without_limit());
                    assert_eq!(run_cached(&file, &cache), expected, "{text}");
                });
            });
        }
    }
}

#[test]
fn a_program_that_is_replaced_is_not_run_from_the_entry_of_the_old_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, cache) = (
        directory.path().join("a.wat"),
        directory.path().join("cache"),
    );
    for code in [3, 4] {
        std::fs::write(&file, exits_with(code)).expect("writable");
        let (exit, _) = run_cached(&file, &cache);
        assert_eq!(exit, Exit::Code(code as i32));
    }
}
