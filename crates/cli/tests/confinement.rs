//! The second line of defence, on the real program: the kernel's status of its threads, the system
//! calls that guests cause, and the refused directories and files.

mod calibrated;

use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Exit code of a process that made a system call that is on no list, if denials are trapped.
const DENIED: i32 = 128 + 31;

fn guests() -> PathBuf {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guests"));
    assert!(path.exists(), "no guests: run `make guests`");
    path.to_owned()
}

fn guest(name: &str) -> String {
    guests().join(name).display().to_string()
}

/// A home directory with a profile that was measured once.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().expect("directory"));
        fs::create_dir_all(home.path("state/leasehold")).expect("made");
        fs::write(
            home.path("state/leasehold/profile.json"),
            calibrated::profile(),
        )
        .expect("written");
        fs::create_dir(home.path("work")).expect("made");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(args)
            .current_dir(self.path("work"))
            .env_remove("LEASEHOLD_PROFILE")
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("HOME", self.path("work"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("runs")
    }

    /// A lease file of tenants that spin, read and page.
    fn leases(&self) -> String {
        let text = format!(
            "[tenant.spinner]\nreclaim = {{ budget = \"50ms\" }}\ncomponent = {spin:?}\n\
             cpu = {{ budget = \"2ms\", period = \"20ms\", priority = 5 }}\n\
             [tenant.reader]\nreclaim = {{ budget = \"50ms\" }}\ncomponent = {wordcount:?}\nargs = [\"/data\"]\n\
             dirs = [{{ host = {work:?}, guest = \"/data\" }}]\n\
             [tenant.pager]\nreclaim = {{ budget = \"50ms\" }}\ncomponent = {scatter:?}\n\
             memory = {{ reserve = \"1MiB\", limit = \"32MiB\", swap = {swap:?} }}\n",
            spin = guest("spin.wasm"),
            wordcount = guest("wordcount.wasm"),
            scatter = guest("page-scatterer.wasm"),
            work = self.text("work"),
            swap = self.text("swap"),
        );
        fs::write(self.path("leases.toml"), text).expect("written");
        self.text("leases.toml")
    }
}

/// A process that is killed with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Of each thread of a process, its name and what the kernel says of it.
fn threads(process: u32) -> Vec<(String, String)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    let tasks = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let status = fs::read_to_string(path.join("status")).ok()?;
        Some((name.trim().to_owned(), status))
    });
    tasks.collect()
}

fn value<'a>(status: &'a str, key: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap_or_default().trim_start_matches(':').trim()
}

/// The properties of a thread that are not as they should be.
fn unconfined((name, status): &(String, String)) -> Option<String> {
    let none = "0000000000000000";
    let mut expected = vec![
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        // Three of the process, and that of the kind of thread.
        ("Seccomp_filters", "4"),
        ("CapInh", none),
        ("CapPrm", none),
        ("CapEff", none),
        ("CapAmb", none),
    ];
    if rustix::process::geteuid().is_root() {
        expected.push(("CapBnd", none));
    }
    // The controller locks the code of programs, and a cell the frames that it holds, if the limit on that could not be
    // lifted; what these threads start has the same.
    let lock = "0000000000004000";
    let compiles = name.starts_with("leasehold-code");
    let may_lock = |key: &str| !compiles && matches!(key, "CapPrm" | "CapEff");
    let wrong = |(key, expected): &(&str, &str)| match value(status, key) {
        found if found == *expected || (found == lock && may_lock(key)) => None,
        found => Some(format!("{name}: {key} {found}, expected {expected}")),
    };
    expected.iter().find_map(wrong)
}

/// Waits until a cell runs and its threads are all confined; says what is not.
fn wait_until_confined(process: u32) -> Vec<(String, String)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let threads = threads(process);
        let has_cell = threads.iter().any(|(name, _)| name == "leasehold-cell");
        let wrong: Vec<_> = threads.iter().filter_map(unconfined).collect();
        if has_cell && wrong.is_empty() {
            return threads;
        }
        assert!(Instant::now() < deadline, "{wrong:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_thread_of_a_process_with_guests_is_confined() {
    let home = Home::new();
    let leases = home.leases();
    let spin = guest("spin.wasm");
    for args in [&["run", &spin][..], &["up", &leases, "--quiet"]] {
        let child = home
            .command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let running = Running(child.expect("starts"));
        let process = running.0.id();
        wait_until_confined(process);
        // Still so when guests have run, and other threads have come.
        std::thread::sleep(Duration::from_millis(300));
        let threads = wait_until_confined(process);
        assert!(threads.len() >= 2, "{args:?}");
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("runs");
        let core = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max core file size"))
            .expect("listed");
        let words: Vec<_> = core.split_whitespace().collect();
        assert_eq!(words[..2], ["0", "0"], "{args:?}");
        // A process that can be dumped belongs to its user, one that cannot to root.
        use std::os::unix::fs::MetadataExt;
        let owner = fs::metadata(format!("/proc/{process}/mem"))
            .expect("runs")
            .uid();
        assert_eq!(owner, 0, "{args:?}");
    }
}

#[test]
fn threads_that_compile_are_made_for_what_is_not_in_the_cache() {
    let home = Home::new();
    let spin = guest("spin.wasm");
    let run = || Running(home.command(&["run", &spin]).spawn().expect("starts"));
    let wait = |of: &Running, holds: &dyn Fn(u32) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds(of.0.id()) {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let compiles = |process| {
        let threads = threads(process);
        threads.iter().any(|(name, _)| name == "leasehold-code0")
    };
    let compiled = run();
    wait(&compiled, &compiles);
    wait_until_confined(compiled.0.id());
    drop(compiled);
    home.run(&["run", "--kill-after", "50ms", &spin]);
    let cached = run();
    let cache = home.text("cache");
    wait(&cached, &|process| {
        let mapped = fs::read_to_string(format!("/proc/{process}/maps"));
        mapped.is_ok_and(|mapped| mapped.contains(&cache))
    });
    wait_until_confined(cached.0.id());
    assert!(!compiles(cached.0.id()));
}

#[test]
fn without_confinement_nothing_is_confined_and_the_report_says_so() {
    let home = Home::new();
    let spin = guest("spin.wasm");
    let args = ["run", "--no-confinement", &spin];
    let child = home.command(&args).spawn().expect("starts");
    let running = Running(child);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let threads = threads(running.0.id());
        if threads.iter().any(|(name, _)| name == "leasehold-cell") {
            let filters = |(_, status): &(String, String)| value(status, "Seccomp") == "0";
            assert!(threads.iter().all(filters), "{threads:?}");
            break;
        }
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    let hello = guest("hello.wasm");
    let report = |args: &[&str]| {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let json = |args: &[&str]| serde_json::from_str::<Value>(&report(args)).expect("JSON");
    let off = json(&["run", "--json", "--no-confinement", &hello]);
    assert_eq!(off["confinement"]["mode"], "off");
    assert!(report(&["run", "--report", "--no-confinement", &hello]).contains("confinement: off"));
    let on = json(&["run", "--json", &hello]);
    assert_eq!(on["confinement"]["mode"], "enforce");
    assert_eq!(on["confinement"]["privileges_dropped"], true);
    assert_eq!(on["confinement"]["system_calls"], true);
    assert!(report(&["run", "--report", &hello]).contains("confinement: no privileges"));
    let leases = home.leases();
    let output = home.run(&["up", &leases, "--for", "200ms", "--json"]);
    let up: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(up["confinement"], on["confinement"]);
}

/// Runs with denials trapped: then each ends the process and says which call it was.
fn runs_without_a_denial(home: &Home, args: &[&str]) -> Output {
    let output = home
        .command(args)
        .env("LEASEHOLD_CONFINEMENT", "trap")
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    let denied = output.status.code() == Some(DENIED) || error.contains("denied system call");
    assert!(!denied, "{args:?}: {error}");
    // Other signals mean that something broke in another way.
    assert!(output.status.code().is_some(), "{args:?}: {output:?}");
    // Landlock refuses with this error.
    assert!(!error.contains("Permission denied"), "{args:?}: {error}");
    assert!(
        !error.contains("Operation not permitted"),
        "{args:?}: {error}"
    );
    output
}

#[test]
fn no_guest_leads_to_a_system_call_that_is_on_no_list() {
    let home = Home::new();
    fs::write(home.path("work/text"), "some words\n".repeat(1000)).expect("written");
    let directories = [guests(), guests().join("../../guests/attacks")];
    let mut programs: Vec<_> = directories
        .iter()
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flatten()
        .map(|entry| entry.expect("listed").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "wasm" || end == "wat")
        })
        .collect();
    programs.sort();
    assert!(programs.len() > 30, "{programs:?}");
    let (work, swap) = (home.text("work"), home.text("swap"));
    let directory = format!("{work}::/data");
    let paging = format!("limit=64MiB,swap={swap}");
    for program in &programs {
        let program = program.display().to_string();
        let rest = ["--kill-after", "150ms", "--report", &program, "/data/text"];
        let plain = [
            "run",
            "--dir",
            &directory,
            "--cpu",
            "budget=5ms,period=10ms,priority=3",
        ];
        runs_without_a_denial(&home, &[&plain[..], &rest].concat());
        let paging = [
            "run", "--dir", &directory, "--memory", "4MiB", "--paging", &paging,
        ];
        runs_without_a_denial(&home, &[&paging[..], &rest].concat());
    }
}

#[test]
fn tenants_together_lead_to_no_system_call_that_is_on_no_list() {
    let home = Home::new();
    let leases = home.leases();
    for args in [
        &["up", &leases, "--for", "500ms", "--quiet"][..],
        &[
            "up",
            "--memory",
            &leases,
            "--for",
            "500ms",
            "--json",
            "--preempt",
            "epochs",
        ],
    ] {
        let output = runs_without_a_denial(&home, args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn a_directory_that_is_not_for_tenants_is_refused_by_whatever_name() {
    let home = Home::new();
    let hello = guest("hello.wasm");
    // The cache is there from here on.
    assert!(home.run(&["run", &hello]).status.success());
    fs::create_dir(home.path("work/link-here")).expect("made");
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(home.path(to), home.path(name)).expect("linked");
        home.text(name)
    };
    let (cache, state) = (
        link("cache/leasehold", "work/cache"),
        link("state", "work/state"),
    );
    fs::create_dir(home.path("state/leasehold/deep")).expect("made");
    let all = home.0.path().display().to_string();
    let cases = [
        (
            home.text("cache/leasehold"),
            "lies in the cache of compiled programs",
        ),
        (cache, "lies in the cache of compiled programs"),
        (
            home.text("cache"),
            "contains the cache of compiled programs",
        ),
        (all, "contains the cache of compiled programs"),
        (state, "contains the state directory"),
        (
            home.text("state/leasehold/deep"),
            "lies in the state directory",
        ),
        ("/proc".to_owned(), "lies in the kernel's view"),
        ("/proc/self".to_owned(), "lies in the kernel's view"),
    ];
    for (directory, words) in &cases {
        let output = home.run(&["run", "--dir", directory, &hello]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{directory}: {error}");
        assert_eq!(error.trim().lines().count(), 1, "{error}");
        for word in ["--dir: found ", directory, words, "allowed: "] {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
        assert!(output.stdout.is_empty(), "it has run: {output:?}");
    }
    // In a lease file, with the file and the key; the swap file and a profile elsewhere too.
    let text = format!(
        "[tenant.a]\ncomponent = {hello:?}\nreclaim = {{ budget = \"20ms\" }}\ndirs = [{{ host = \"store\", guest = \"/\" }}]\n\
         memory = {{ reserve = \"1MiB\", limit = \"4MiB\", swap = \"store/swap\" }}\n"
    );
    fs::create_dir(home.path("work/store")).expect("made");
    fs::write(home.path("work/leases.toml"), &text).expect("written");
    let refused = |args: &[&str], words: &[&str]| {
        let output = home.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
    };
    let key = "leases.toml: tenant.a.dirs: found ";
    refused(&["up", "leases.toml"], &[key, "contains the swap file"]);
    let profile = home.text("work/store/profile.json");
    fs::copy(home.path("state/leasehold/profile.json"), &profile).expect("copied");
    let args = ["--profile", &profile, "run", "--dir", "store", &hello];
    refused(&args, &["--dir: found ", "contains the profile"]);
}

#[test]
fn a_profile_that_others_could_have_written_is_refused() {
    let home = Home::new();
    let hello = guest("hello.wasm");
    let profile = home.path("state/leasehold/profile.json");
    for shared in [&profile, &home.path("state/leasehold"), &home.path("state")] {
        let mode = |mode| fs::set_permissions(shared, Permissions::from_mode(mode)).expect("ours");
        mode(0o777);
        let output = home.run(&["run", &hello]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{error}");
        assert!(error.contains(&shared.display().to_string()), "{error}");
        assert!(error.contains("mode 0777"), "{error}");
        mode(0o700);
    }
    // A link to one that is in order, in the place of the file.
    let elsewhere = home.path("state/elsewhere.json");
    fs::rename(&profile, &elsewhere).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, &profile).expect("linked");
    assert_eq!(home.run(&["run", &hello]).status.code(), Some(78));
}

#[test]
fn no_tenant_may_write_to_the_program_or_to_a_data_set_of_another_one() {
    let home = Home::new();
    fs::create_dir_all(home.path("work/theirs")).expect("made");
    fs::copy(guest("hello.wasm"), home.path("work/theirs/hello.wasm")).expect("copied");
    fs::write(home.path("work/theirs/data"), "data").expect("written");
    let admitted = |write: bool, program: &str, data: &str| {
        let text = format!(
            "[tenant.a]\ncomponent = {hello:?}\nreclaim = {{ budget = \"50ms\" }}\n\
             dirs = [{{ host = \"work/theirs\", guest = \"/data\", write = {write} }}]\n\
             [tenant.b]\ncomponent = {program:?}\nreclaim = {{ budget = \"50ms\" }}\n{data}\n",
            hello = guest("hello.wasm"),
        );
        fs::write(home.path("leases.toml"), text).expect("written");
        let output = home.run(&["admit", &home.text("leases.toml")]);
        let said = [&*output.stdout, &*output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    let data = "memory = { reserve = \"1MiB\", limit = \"2MiB\", swap = \"swap\" }\ndata = [{ name = \"x\", file = \"work/theirs/data\" }]";
    let cases = [
        (
            "work/theirs/hello.wasm",
            "",
            "contains the program of another tenant",
        ),
        (
            &*guest("hello.wasm"),
            data,
            "contains a data set of another tenant",
        ),
    ];
    // By another name of the file.
    fs::create_dir(home.path("work/ours")).expect("made");
    fs::write(home.path("work/ours/data"), "data").expect("written");
    fs::hard_link(home.path("work/ours/data"), home.path("work/theirs/name")).expect("linked");
    let data_of_ours = data.replace("theirs/data", "ours/data");
    let by_name = [(
        &*guest("hello.wasm"),
        &*data_of_ours,
        "a hard link to a data set of another tenant",
    )];
    // Through a link in it, which its tenant may exchange, to a place that is none of its own.
    fs::copy(guest("hello.wasm"), home.path("work/ours/hello.wasm")).expect("copied");
    symlink("../ours", home.path("work/theirs/link")).expect("linked");
    let through = [
        (
            "work/theirs/link/hello.wasm",
            "",
            "is on the way to the program of another tenant",
        ),
        (
            &*guest("hello.wasm"),
            "keyvalue = { file = \"work/theirs/link/store\", size = \"8MiB\" }",
            "a path that does not lead through a directory that a tenant has",
        ),
        (
            &*guest("hello.wasm"),
            "dirs = [{ host = \"work/theirs/link\", guest = \"/\" }]",
            "is on the way to a directory of a tenant",
        ),
    ];
    for (program, more, words) in through {
        let refused = admitted(true, program, more);
        assert!(refused.contains(words), "{refused}");
    }
    for (program, data, words) in cases.into_iter().chain(by_name) {
        let refused = admitted(true, program, data);
        assert!(refused.contains(words), "{refused}");
        let allowed = admitted(false, program, data);
        assert!(!allowed.contains(words), "{allowed}");
    }
}

#[test]
fn a_store_that_cannot_be_used_is_made_nowhere() {
    let home = Home::new();
    fs::create_dir_all(home.path("work/theirs")).expect("made");
    symlink("work/theirs/later", home.path("link")).expect("linked");
    symlink("a.redb", home.path("same")).expect("linked");
    let table = |name: &str, store: &str| {
        format!(
            "[tenant.{name}]\ncomponent = {hello:?}\nreclaim = {{ budget = \"50ms\" }}\n\
             keyvalue = {{ file = {store:?}, size = \"8MiB\" }}\n",
            hello = guest("hello.wasm"),
        )
    };
    let theirs = "dirs = [{ host = \"work/theirs\", guest = \"/data\", write = true }]\n";
    for (text, words) in [
        (
            table("a", "link") + theirs,
            "does not lead through a directory that a tenant has",
        ),
        (
            table("a", "a.redb") + &table("b", "same"),
            "a file of its own: tenant.a has this one",
        ),
    ] {
        fs::write(home.path("leases.toml"), text).expect("written");
        for (command, code) in [("admit", 1), ("up", 78)] {
            let output = home.run(&[command, &home.text("leases.toml")]);
            let said = [&*output.stdout, &*output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            assert_eq!(output.status.code(), Some(code), "{command}: {said}");
            assert!(said.contains(words), "{command}: {said}");
        }
        assert!(!home.path("work/theirs/later").exists());
        assert!(!home.path("a.redb").exists());
    }
}

#[test]
fn without_a_home_no_file_in_a_place_that_all_can_guess_is_read() {
    let home = Home::new();
    fs::create_dir_all(home.path("tmp/leasehold")).expect("made");
    fs::write(home.path("tmp/leasehold/profile.json"), "{").expect("written");
    let leases = home.leases();
    let output = home
        .command(&["admit", &leases])
        .env_remove("HOME")
        .env_remove("XDG_STATE_HOME")
        .env("TMPDIR", home.path("tmp"))
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!error.contains("profile"), "it was read: {error}");
    let output = home
        .command(&["calibrate"])
        .env_remove("HOME")
        .env_remove("XDG_STATE_HOME")
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("neither XDG_STATE_HOME nor HOME"), "{error}");
}

#[test]
fn a_store_is_opened_before_the_process_is_confined_and_lies_in_no_directory_of_a_tenant() {
    let home = Home::new();
    let lease = |name: &str, more: &str| {
        let text = format!(
            "[tenant.a]\ncomponent = \"{}\"\nargs = [\"transcript\"]\nreclaim = {{ budget = \"50ms\" }}\n\
             config = {{ shop = \"open\" }}\n{more}\n",
            guest("interfaces-p2.wasm")
        );
        fs::write(home.path(name), text).expect("written");
        home.text(name)
    };
    let store = "keyvalue = { file = \"work/a.redb\", size = \"4MiB\" }";
    let sound = lease("sound.toml", store);
    let output = runs_without_a_denial(&home, &["run", "--lease", &sound]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("config \"shop\": Ok(Some(\"open\"))"),
        "{text}"
    );
    assert!(
        text.ends_with("keys: [\"\", \"n\", \"text\", \"ä/\\0\\n\"]\nover\n"),
        "{text}"
    );
    // It is there the next time.
    let output = home.run(&["run", "--lease", &sound]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("keys: [\"\", \"n\", \"text\", \"ä/\\0\\n\"]\nget: Ok(None)"),
        "{text}"
    );

    let work = home.text("work");
    let inside = lease(
        "inside.toml",
        &format!("{store}\ndirs = [{{ host = \"{work}\", guest = \"/work\", write = true }}]"),
    );
    fs::write(home.path("no-store"), "something else").expect("written");
    let other = lease(
        "other.toml",
        "keyvalue = { file = \"no-store\", size = \"4MiB\" }",
    );
    let missing = lease(
        "missing.toml",
        "keyvalue = { file = \"no/store\", size = \"4MiB\" }",
    );
    for (file, code, words) in [
        (
            inside,
            78,
            "does not lead through a directory that a tenant has",
        ),
        (other, 78, "found no store"),
        (missing, 66, "tenant.a.keyvalue.file"),
    ] {
        let output = home.run(&["run", "--lease", &file]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{file}: {error}");
        assert!(error.contains(words), "{file}: {error}");
    }
}
