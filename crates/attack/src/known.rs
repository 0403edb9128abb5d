//! Attacks that are known: most of them once hurt another tenant, or broke a bound.
//!
//! They are played in the same scene as those that are drawn. Those whose text is not made here are in
//! `guests/attacks`, where the tests of each have them from, too.

use crate::plan::{Form, Plan};
use crate::scene::{Attackers, HOST_BYTES, HeldForPaging, page};
use crate::steps::recipe;
use crate::{Offers, render};
use anyhow::{Context, Result};
use leasehold_lease::{ByteSize, Lease, Nanoseconds};
use std::path::Path;
use std::time::Duration;

/// An attack that is known.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a few words.
    pub does: &'static str,
    /// How its tenants end if they did that, and no more than a lease allows: the beginning of their exit.
    pub ends: &'static str,
    program: Source,
    /// What its lease has other than [`lease`].
    terms: fn(&mut Lease) -> Result<()>,
    /// How many tenants run it.
    tenants: usize,
    /// After how many ms they are killed, if they have not ended.
    lives_ms: u64,
    /// Prepares the directory of the attackers.
    prepare: fn(&Path) -> Result<()>,
}

/// Where the program comes from.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// A module or a component, in the text format.
    Text(&'static str),
    /// It is made: its text would be long.
    Made(fn() -> Result<Vec<u8>>),
}

macro_rules! text {
    ($name:literal) => {
        Source::Text(include_str!(concat!("../known/", $name, ".wat")))
    };
}

const MIB: u64 = 1 << 20;

/// What most of them are: one tenant with a lease like that of any program.
const ORDINARY: Known = Known {
    name: "",
    does: "",
    ends: "Killed",
    program: Source::Text(""),
    terms: |_| Ok(()),
    tenants: 1,
    lives_ms: 300,
    prepare: |_| Ok(()),
};

/// Pages of 4 KiB that a tenant which pages has reserved: half of what it writes.
const FRAMES: u64 = 256;

/// The memory of a tenant which pages, bytes.
const PAGED_LIMIT: u64 = 34 << 16;

/// All of them, in the order in which they are played.
pub const KNOWN: &[Known] = &[
    Known {
        name: "realloc-loop",
        does: "a function that makes room for random bytes never returns",
        program: text!("realloc-loop"),
        tenants: 4,
        ..ORDINARY
    },
    Known {
        name: "region-read-loop",
        does: "a function that makes room for a region's bytes never returns",
        program: text!("region-read-loop"),
        tenants: 4,
        ..ORDINARY
    },
    Known {
        name: "random-flood",
        does: "64 MiB of random bytes in a call, again and again",
        program: text!("random-flood"),
        terms: |lease| reserve(lease, 128 * MIB),
        ..ORDINARY
    },
    Known {
        name: "random-list",
        does: "64 MiB of random bytes as a list of a component",
        ends: "Trap(\"requested len 67108864",
        program: text!("random-list"),
        terms: |lease| reserve(lease, 128 * MIB),
        ..ORDINARY
    },
    Known {
        name: "long-name",
        does: "a trap in a function whose name has 20 MB",
        ends: "Trap(\"wasm trap: call stack",
        program: Source::Made(long_name),
        ..ORDINARY
    },
    Known {
        name: "poll-borrows",
        does: "a poll of 120,000 borrows of one pollable",
        ends: "Trap(\"too much data",
        program: text!("poll-borrows"),
        ..ORDINARY
    },
    Known {
        name: "long-path",
        does: "a path of 16 MB, again and again",
        ends: "Code(37)",
        program: text!("long-path"),
        ..ORDINARY
    },
    Known {
        name: "long-message",
        does: "a message of 16 MB in a channel, again and again",
        program: Source::Made(long_message),
        ..ORDINARY
    },
    Known {
        name: "many-buffers",
        does: "lists of half a million buffers",
        ends: "Code(0)",
        program: text!("many-buffers"),
        ..ORDINARY
    },
    Known {
        name: "data-tasks",
        does: "tasks with 48 MiB of initial data, one after the other",
        program: Source::Made(data_tasks),
        terms: |lease| {
            lease.cpu = Some("budget=1ms,period=10ms,priority=1".parse()?);
            budget(lease, 5_000)?;
            reserve(lease, 512 * MIB)
        },
        lives_ms: 2_000,
        ..ORDINARY
    },
    Known {
        name: "unlinked-file",
        does: "a file of 64 MiB without a name, freed by its last close",
        ends: "Code(0)",
        program: text!("unlinked-file"),
        terms: |lease| disk(lease, 128 * MIB, 8),
        lives_ms: 4_000,
        ..ORDINARY
    },
    Known {
        name: "nameless-files",
        does: "a thousand open files without a name",
        ends: "Code(0)",
        program: text!("nameless-files"),
        terms: |lease| {
            lease.files.open = 1_001;
            disk(lease, 128 * MIB, 2_000)
        },
        lives_ms: 4_000,
        ..ORDINARY
    },
    Known {
        name: "many-descriptors",
        does: "8,000 open files, closed by the end",
        ends: "Code(0)",
        program: text!("open-until-refused"),
        terms: |lease| {
            lease.files.open = 8_000;
            Ok(())
        },
        lives_ms: 4_000,
        ..ORDINARY
    },
    Known {
        name: "many-streams",
        does: "10,000 streams of a file with a read of each",
        ends: "Code(0)",
        program: Source::Made(many_streams),
        prepare: |directory| Ok(std::fs::write(directory.join("f"), vec![1; 100_000])?),
        lives_ms: 2_000,
        ..ORDINARY
    },
    Known {
        name: "name-bomb",
        does: "directories until one is refused",
        ends: "Code(19)",
        program: text!("name-bomb"),
        terms: |lease| disk(lease, 64 * MIB, 5_000),
        lives_ms: 4_000,
        ..ORDINARY
    },
    Known {
        name: "deep-directories",
        does: "directories in each other until one is refused, opened again and again",
        ends: "Killed",
        program: text!("deep-directories"),
        terms: |lease| disk(lease, 64 * MIB, 2_001),
        lives_ms: 1_000,
        ..ORDINARY
    },
    Known {
        name: "fill-disk",
        does: "a file that grows until that is refused, and one without a name",
        ends: "Code(19)",
        program: text!("fill-disk"),
        terms: |lease| disk(lease, 64 * MIB, 2),
        lives_ms: 4_000,
        ..ORDINARY
    },
    Known {
        name: "fifo",
        does: "reads of a FIFO that nobody writes to",
        program: text!("fifo"),
        tenants: 8,
        prepare: |directory| {
            let (mode, kind) = (rustix::fs::Mode::RWXU, rustix::fs::FileType::Fifo);
            rustix::fs::mknodat(rustix::fs::CWD, directory.join("fifo"), kind, mode, 0)?;
            Ok(())
        },
        ..ORDINARY
    },
    Known {
        name: "copied-pages",
        does: "copies of every second page of what 160 tenants share",
        program: Source::Made(copied_pages),
        terms: |lease| pages(lease, FRAMES * 4096, PAGED_LIMIT),
        tenants: 160,
        lives_ms: 3_000,
        ..ORDINARY
    },
    Known {
        name: "small-regions",
        does: "regions of a page in a memory that grows",
        program: text!("small-regions"),
        terms: |lease| pages(lease, FRAMES * 4096, 4 * MIB),
        tenants: 4,
        lives_ms: 1_000,
        ..ORDINARY
    },
    Known {
        name: "keeps-all-frames",
        does: "a copy between pages where hardly any frame is left",
        program: text!("keeps-all-frames"),
        terms: |lease| pages(lease, FRAMES * 4096, 4 * MIB),
        ..ORDINARY
    },
];

impl Known {
    /// The attack of this name.
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.iter().find(|known| known.name == name).copied()
    }

    /// Its tenants, whose directory is made ready.
    pub(crate) fn attackers(&self, directory: &Path) -> Result<Attackers> {
        (self.prepare)(directory)?;
        let mut lease = lease()?;
        (self.terms)(&mut lease)?;
        let program = match self.program {
            Source::Text(text) => text.as_bytes().to_vec(),
            Source::Made(make) => make().with_context(|| self.name)?,
        };
        Ok(Attackers {
            program,
            tenants: self.tenants,
            lives: Duration::from_millis(self.lives_ms),
            held: HeldForPaging::for_tenants(self.tenants as u64, &lease),
            lease,
        })
    }
}

/// 64 MiB, 64 files, and a reclamation budget of half a second.
fn lease() -> Result<Lease> {
    let mut lease = Lease::default();
    lease.files.open = 64;
    lease.memory.host = Some(ByteSize::new(HOST_BYTES).context("a size")?);
    budget(&mut lease, 500)?;
    reserve(&mut lease, 64 * MIB)?;
    Ok(lease)
}

fn budget(lease: &mut Lease, ms: u64) -> Result<()> {
    lease.reclaim.budget = Nanoseconds::new(ms * 1_000_000).context("a budget")?;
    Ok(())
}

fn reserve(lease: &mut Lease, bytes: u64) -> Result<()> {
    lease.memory.reserve = ByteSize::new(bytes).context("a size")?;
    Ok(())
}

fn disk(lease: &mut Lease, bytes: u64, names: u32) -> Result<()> {
    lease.disk.bytes = ByteSize::new(bytes).context("a size")?;
    lease.disk.files = names;
    Ok(())
}

fn pages(lease: &mut Lease, bytes: u64, limit: u64) -> Result<()> {
    budget(lease, 2_000)?;
    page(lease, bytes, limit)
}

/// Calls itself until its stack is used up. A text may not be so long.
fn long_name() -> Result<Vec<u8>> {
    let name = "n".repeat(20 << 20);
    let text = format!("(module ${name} (func ${name} (export \"_start\") (call ${name})))");
    Ok(wat::parse_str(text)?)
}

fn long_message() -> Result<Vec<u8>> {
    let text = r#"(module
      (import "leasehold_kernel" "channel_create" (func $create (param i32) (result i64)))
      (import "leasehold_kernel" "channel_try_send"
        (func $send (param i32 i32 i32 i32 i32) (result i64)))
      (memory (export "memory") 512)
      (func (export "_start") (local $channel i32)
        (local.set $channel (i32.wrap_i64 (call $create (i32.const 131072))))
        (loop $again
          (drop (call $send (local.get $channel) (i32.const 0) (i32.const 16777216) (i32.const 0) (i32.const 0)))
          (br $again))))"#;
    Ok(wat::parse_str(text)?)
}

/// With arguments, it is one of its tasks.
fn data_tasks() -> Result<Vec<u8>> {
    let data = "x".repeat(48 << 20);
    let text = format!(
        r#"(module
      (import "leasehold_kernel" "task_start" (func $task (param i32 i32) (result i64)))
      (import "leasehold_kernel" "task_wait" (func $wait (param i32) (result i64)))
      (import "leasehold_kernel" "capability_drop" (func $drop (param i32) (result i64)))
      (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
      (memory (export "memory") 770)
      (data (i32.const 65536) "{data}")
      (func (export "_start") (local $task i64)
        (drop (call $args (i32.const 16) (i32.const 20)))
        (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1)) (then (return)))
        (i32.store8 (i32.const 64) (i32.const 97))
        (loop $next
          (local.set $task (call $task (i32.const 64) (i32.const 2)))
          (if (i64.lt_s (local.get $task) (i64.const 0)) (then unreachable))
          (drop (call $wait (i32.wrap_i64 (local.get $task))))
          (drop (call $drop (i32.wrap_i64 (local.get $task))))
          (br $next))))"#
    );
    Ok(wat::parse_str(text)?)
}

fn many_streams() -> Result<Vec<u8>> {
    let line = "10000 | FILE | types/[method]descriptor.read-via-stream 2 0 @slot ; \
                streams/[method]input-stream.blocking-read ^1.1 4096 @slot";
    let offers = Offers::all()?;
    let plan: Plan = recipe::plan(Form::Component, line, &offers.component)?;
    Ok(render(&plan, &offers)?.1)
}

fn copied_pages() -> Result<Vec<u8>> {
    let text = include_str!("../known/copies-every-second-page.wat");
    let data = format!("(data (i32.const 0) \"{}\")", "x".repeat(2 << 20));
    Ok(wat::parse_str(text.replace("(;data;)", &data))?)
}

#[cfg(test)]
mod tests {
    use super::KNOWN;

    #[test]
    fn every_known_attack_is_a_program_under_a_lease() {
        for known in KNOWN {
            let directory = tempfile::tempdir().expect("a directory");
            let attackers = known.attackers(directory.path()).expect(known.name);
            assert!(!attackers.program.is_empty() && attackers.tenants > 0);
        }
    }
}
