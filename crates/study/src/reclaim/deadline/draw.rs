//! The victims of `deadline`: guests, their arguments, leases and the instants of their ends, all
//! drawn from one sequence.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold_cell::{Cell, Directory, Input, Lease, Program, StartRequest, Surroundings};
use leasehold_lease::{ByteSize, Nanoseconds};

use crate::harness::random::Random;

/// Largest delay between the start of a guest and its kill.
const LATEST: Duration = Duration::from_millis(2);
/// One kill in so many is sent right after the start, so that it meets the guest in start-up.
const AT_ONCE: u64 = 8;
/// Least and most reclamation budget of a lease, ns.
const BUDGET_NS: (u64, u64) = (200_000, 50_000_000);
/// Least and most memory reserve of a lease, bytes.
const MEMORY_BYTES: (u64, u64) = (128 << 10, 128 << 20);
/// Least and most table elements of a lease.
const TABLE_ELEMENTS: (u64, u64) = (1_000, 1_000_000);

/// Fills 4 MiB for ever, in instructions that each take a millisecond: `fill.wat` of a size that
/// these leases pay for.
const FILL: &str = r#"(module (memory (export "memory") 64)
  (func (export "_start") (loop $again
    (memory.fill (i32.const 0) (i32.const 7) (i32.const 4194304)) (br $again))))"#;

/// A kind of guest: its name, the file it is in (or its text), and how its arguments are drawn.
struct Kind {
    name: &'static str,
    source: Source,
    arguments: fn(&mut Random) -> Vec<String>,
}

enum Source {
    File(&'static str),
    Text(&'static str),
}

const CLASSES: [&str; 7] = [
    "semaphore",
    "channel",
    "region",
    "timer",
    "task",
    "capability",
    "tenant",
];

fn none(_: &mut Random) -> Vec<String> {
    Vec::new()
}

/// A count and what to do when it is reached.
fn count(random: &mut Random, most: u64) -> [String; 2] {
    let aftermath = random.of(&["spin", "sleep", "sleep", "exit"]);
    let count = random.log_uniform(1, most);
    [count.to_string(), (*aftermath).to_owned()]
}

fn objects(random: &mut Random) -> Vec<String> {
    let class = *random.of(&CLASSES);
    let most = if class == "task" { 64 } else { 30_000 };
    let [count, aftermath] = count(random, most);
    vec![class.to_owned(), count, aftermath]
}

fn pages(random: &mut Random) -> Vec<String> {
    let bytes = random.log_uniform(64 << 10, 64 << 20);
    let stride = random.log_uniform(1 << 10, 1 << 16);
    let [_, aftermath] = count(random, 1);
    vec![bytes.to_string(), stride.to_string(), aftermath]
}

fn descriptors(random: &mut Random) -> Vec<String> {
    let [count, aftermath] = count(random, 1_000);
    vec!["/".to_owned(), count, aftermath]
}

fn tree(random: &mut Random) -> Vec<String> {
    let depth = 1 + random.below(3);
    let width = random.log_uniform(1, 30 / depth);
    let [_, aftermath] = count(random, 1);
    vec![
        depth.to_string(),
        width.to_string(),
        aftermath,
        "0".to_owned(),
    ]
}

const KINDS: &[Kind] = &[
    Kind {
        name: "hello",
        source: Source::File("hello.wasm"),
        arguments: none,
    },
    Kind {
        name: "hello-p2",
        source: Source::File("hello-p2.wasm"),
        arguments: none,
    },
    Kind {
        name: "wordcount-p2",
        source: Source::File("wordcount-p2.wasm"),
        arguments: none,
    },
    Kind {
        name: "jsonsort",
        source: Source::File("jsonsort.wasm"),
        arguments: none,
    },
    Kind {
        name: "spin",
        source: Source::File("spin.wasm"),
        arguments: none,
    },
    Kind {
        name: "object-bomb",
        source: Source::File("object-bomb.wasm"),
        arguments: objects,
    },
    Kind {
        name: "object-bomb-p2",
        source: Source::File("object-bomb-p2.wasm"),
        arguments: objects,
    },
    Kind {
        name: "page-scatterer",
        source: Source::File("page-scatterer.wasm"),
        arguments: pages,
    },
    Kind {
        name: "timer-bomb",
        source: Source::File("timer-bomb.wasm"),
        arguments: |random| count(random, 30_000).into(),
    },
    Kind {
        name: "timer-bomb-p2",
        source: Source::File("timer-bomb-p2.wasm"),
        arguments: |random| count(random, 10_000).into(),
    },
    Kind {
        name: "descriptor-bomb",
        source: Source::File("descriptor-bomb.wasm"),
        arguments: descriptors,
    },
    Kind {
        name: "tenant-tree",
        source: Source::File("tenant-tree.wasm"),
        arguments: tree,
    },
    Kind {
        name: "blocker",
        source: Source::File("blocker.wasm"),
        arguments: |random| count(random, 64).into(),
    },
    Kind {
        name: "table-bomb",
        source: Source::File("table-bomb.wat"),
        arguments: none,
    },
    Kind {
        name: "instance-bomb",
        source: Source::File("instance-bomb.wat"),
        arguments: none,
    },
    Kind {
        name: "fill",
        source: Source::Text(FILL),
        arguments: none,
    },
    Kind {
        name: "start-and-die",
        source: Source::File("start-and-die.wat"),
        arguments: none,
    },
    Kind {
        name: "start-loop",
        source: Source::File("start-loop.wat"),
        arguments: none,
    },
];

/// Names of the kinds of guests; a [`Draw`] names its kind by the index.
pub(crate) fn names() -> impl ExactSizeIterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// Every kind of guest, compiled, and the directory they are given.
pub(crate) struct Guests {
    programs: Vec<Arc<Program>>,
    directory: Directory,
}

/// One tenant to start, and when to kill it.
pub(crate) struct Draw {
    /// Index of its kind.
    pub(crate) kind: usize,
    /// How to start it.
    pub(crate) request: StartRequest,
    /// How long after its start it is killed.
    pub(crate) after: Duration,
}

impl Guests {
    /// Compiles the guests, which are in `guests`; `directory` is what they may open.
    ///
    /// # Errors
    /// When a guest is not there or cannot be compiled.
    pub(crate) fn load(cell: &Cell, guests: &Path, directory: &Path) -> Result<Self> {
        let program = |kind: &Kind| match kind.source {
            Source::File(file) => {
                let path = guests.join(file);
                cell.load(&path)
                    .with_context(|| format!("the guest {} (guests/build makes it)", kind.name))
            }
            Source::Text(text) => Ok(cell.compile(text.as_bytes())?),
        };
        fs::write(directory.join("bomb"), "opened again and again")
            .with_context(|| format!("writing to {}", directory.display()))?;
        Ok(Self {
            programs: KINDS.iter().map(program).collect::<Result<_>>()?,
            directory: Directory {
                host: directory.to_owned(),
                guest: "/".to_owned(),
                write: true,
            },
        })
    }

    /// The next tenant of the sequence.
    pub(crate) fn draw(&self, random: &mut Random) -> Draw {
        let kind = random.below(KINDS.len() as u64) as usize;
        let mut lease = Lease::default();
        let (least, most) = BUDGET_NS;
        if let Some(budget) = Nanoseconds::new(random.log_uniform(least, most)) {
            lease.reclaim.budget = budget;
        }
        let (least, most) = MEMORY_BYTES;
        if let Some(reserve) = ByteSize::new(random.log_uniform(least, most)) {
            lease.memory.reserve = reserve;
        }
        let (least, most) = TABLE_ELEMENTS;
        lease.memory.table_elements = random.log_uniform(least, most);
        let mut args = vec![KINDS[kind].name.to_owned()];
        args.extend((KINDS[kind].arguments)(random));
        let at_once = random.below(AT_ONCE) == 0;
        let after = Duration::from_nanos(random.below(LATEST.as_nanos() as u64));
        Draw {
            kind,
            request: StartRequest {
                program: self.programs[kind].clone(),
                lease,
                surroundings: Surroundings {
                    args,
                    dirs: vec![self.directory.clone()],
                    stdin: Input::Bytes((&b"[3, 1, 2]"[..]).into()),
                    ..Surroundings::default()
                },
            },
            after: if at_once { Duration::ZERO } else { after },
        }
    }
}
