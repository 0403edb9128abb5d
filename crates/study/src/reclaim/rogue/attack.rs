//! Guests to be ended, and the damage that they do before.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tempfile::TempDir;

/// Name, for the guest, of the directory that every guest gets.
const DIRECTORY: &str = "/data";
/// The file in it; a descriptor bomb opens it again and again.
const FILE: &str = "bomb";

/// Executions that wait when their tenant, or the tenant that they wait for, is ended. Each takes
/// two of the 256 places that a tenant may have in a cell of 1,024.
const WAITERS: u32 = 100;

/// Reclamation budget of a guest in Leasehold unless it is given another: more than any of them needs,
/// so that the damage is the same in both runtimes.
pub const BUDGET: Duration = Duration::from_secs(2);
/// Which runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// A cell.
    Leasehold,
    /// Stock wasmtime on tokio.
    Wasmtime,
}

impl Runtime {
    /// Name in rows and figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::Wasmtime => "wasmtime",
        }
    }
}

/// When a guest is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// This long after it has said `ready`.
    Ready(Duration),
    /// This long after its start, unless it has ended by itself.
    After(Duration),
    /// It ends by itself.
    ByItself,
}

/// A guest and what it is to do.
#[derive(Debug, Clone)]
pub struct Attack {
    /// Name in rows and figures.
    pub name: &'static str,
    /// Its file in the directory of guests.
    pub file: &'static str,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Standard input.
    pub stdin: Bytes,
    /// When it is ended.
    pub when: When,
    /// Its reclamation budget in Leasehold.
    pub budget: Duration,
    /// A foreign tenant that it is connected to: file and argument of the service, which outlives
    /// it.
    pub(super) service: Option<(&'static str, &'static str)>,
    /// Whether stock wasmtime has what it attacks.
    pub(super) in_stock: bool,
}

impl Attack {
    /// An attack that says `ready` when its damage is done, and is ended then.
    pub fn new(name: &'static str, file: &'static str, args: &str) -> Self {
        Self {
            name,
            file,
            args: args.split_ascii_whitespace().map(str::to_owned).collect(),
            stdin: Bytes::new(),
            when: When::Ready(Duration::ZERO),
            budget: BUDGET,
            service: None,
            in_stock: true,
        }
    }

    /// The same on what only Leasehold has.
    fn without_counterpart(self) -> Self {
        Self {
            in_stock: false,
            ..self
        }
    }

    /// The same, connected to a service.
    fn served_by(self, file: &'static str, argument: &'static str) -> Self {
        Self {
            service: Some((file, argument)),
            ..self
        }
    }

    /// Whether `runtime` has what this attacks.
    pub fn is_for(&self, runtime: Runtime) -> bool {
        runtime == Runtime::Leasehold || self.in_stock
    }

    /// The same, ended at another time.
    pub fn ended(self, when: When) -> Self {
        Self { when, ..self }
    }

    /// The same under another reclamation budget.
    pub fn within(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// The same with something on its standard input.
    pub fn reading(self, stdin: impl Into<Bytes>) -> Self {
        let stdin = stdin.into();
        Self { stdin, ..self }
    }
}

/// How much damage is done.
#[derive(Debug, Clone, Copy)]
pub struct Damage {
    /// Objects, timers and pollables.
    pub objects: u64,
    /// Bytes of memory, of which every page is written.
    pub bytes: u64,
    /// Open files.
    pub files: u64,
    /// Child tenants.
    pub tenants: u64,
}

/// The hostile guests of the study.
///
/// `waits` and `delegations` are without a counterpart on stock wasmtime, which has neither waits
/// nor capabilities across tenants. Left out are `instance-flood` (which it would expand until the
/// host is out of memory), and `copy` and `start-loop`, which are `fill` and `spin` once more.
pub fn hostile(damage: Damage) -> Vec<Attack> {
    let Damage {
        objects,
        bytes,
        files,
        tenants,
    } = damage;
    // The engine lets no component hold more than 100,000 handles, in either runtime.
    let pollables = (objects / 10).min(50_000);
    // Long enough for most of its pages to be there.
    let filling = When::Ready(Duration::from_millis(100));
    vec![
        Attack::new(
            "objects",
            "object-bomb.wasm",
            &format!("semaphore {objects} sleep"),
        ),
        Attack::new(
            "pages",
            "page-scatterer.wasm",
            &format!("{bytes} 4096 sleep"),
        ),
        Attack::new("timers", "timer-bomb.wasm", &format!("{objects} sleep")),
        Attack::new(
            "pollables",
            "timer-bomb-p2.wasm",
            &format!("{pollables} sleep"),
        ),
        Attack::new(
            "files",
            "descriptor-bomb.wasm",
            &format!("{DIRECTORY} {files} sleep"),
        ),
        Attack::new(
            "tenants",
            "tenant-tree.wasm",
            &format!("1 {tenants} sleep 1073741824"),
        ),
        Attack::new("waits", "blocker.wasm", &format!("{WAITERS} sleep")).without_counterpart(),
        Attack::new("delegations", "delegator.wasm", &format!("{WAITERS} sleep"))
            .served_by("service.wasm", "wait")
            .without_counterpart(),
        Attack::new("table", "table-bomb.wat", ""),
        Attack::new("instances", "instance-bomb.wat", ""),
        Attack::new("fill", "fill.wat", "").ended(filling),
        Attack::new("spin", "spin.wasm", "").ended(When::Ready(Duration::from_millis(2))),
        Attack::new("die", "start-and-die.wat", "").ended(When::ByItself),
    ]
}

/// The resources of the host that guests are given: a directory with one file, which goes with the
/// last user.
#[derive(Debug)]
pub struct Surroundings {
    directory: TempDir,
}

impl Surroundings {
    /// A directory with a file of `content`.
    ///
    /// # Errors
    /// If the host refuses it.
    pub fn new(content: &[u8]) -> Result<Self> {
        let directory = tempfile::tempdir().context("creating a directory for guests")?;
        fs::write(directory.path().join(FILE), content).context("writing a file for guests")?;
        Ok(Self { directory })
    }

    /// The directory on the host, and its name for guests.
    pub(super) fn directory(&self) -> (&Path, &'static str) {
        (self.directory.path(), DIRECTORY)
    }

    /// The file as guests name it.
    pub fn file() -> String {
        format!("{DIRECTORY}/{FILE}")
    }
}

/// Sees that every guest is there, before anything is started.
///
/// # Errors
/// If one is not; says how to build them.
pub fn require(attacks: &[Attack], guests: &Path) -> Result<()> {
    let services = attacks.iter().filter_map(|attack| attack.service);
    let files = attacks.iter().map(|attack| attack.file);
    for file in files.chain(services.map(|(file, _)| file)) {
        ensure!(
            guests.join(file).is_file(),
            "{file} is missing in {}: build the guests with `make guests`",
            guests.display()
        );
    }
    Ok(())
}
