//! A host that restarts crashed tenants. One of three tenants traps in each of its first two lives,
//! and one uses up its lease and is given up after some lives.
//!
//! `cargo run --release -p leasehold --example restart`

use leasehold::{Command, Costs, Error, Exit, Host, Lease, Start, Tenant};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Works, and ends.
const STEADY: &str = r#"(module (func (export "_start")))"#;

/// Traps unless it has two arguments or more: one for each life before.
const CRASHES: &str = r#"(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 4)))
    (if (i32.lt_u (i32.load (i32.const 0)) (i32.const 3)) (then unreachable))))"#;

/// Traps whatever it is given.
const HOPELESS: &str = r#"(module (func (export "_start") unreachable))"#;

/// Lives of a tenant that is given up.
const LIVES: u32 = 4;

/// A tenant, and what is known of its lives.
struct Supervised {
    name: &'static str,
    command: Command,
    running: Option<Tenant>,
    lives: u32,
    /// When it may start again: later after each crash.
    not_before: Instant,
}

impl Supervised {
    fn new(host: &Host, name: &'static str, text: &str) -> Result<Self, Error> {
        Ok(Self {
            name,
            command: host.compile(text.as_bytes(), &Lease::default())?,
            running: None,
            lives: 0,
            not_before: Instant::now(),
        })
    }

    /// Looks at it, and starts it if it is time; says how it ended for good.
    fn supervise(&mut self, host: &Host) -> Result<Option<Exit>, Error> {
        let Some(tenant) = &self.running else {
            if Instant::now() < self.not_before {
                return Ok(None);
            }
            let mut start = Start::new();
            for life in 0..self.lives {
                start = start.arg(format!("life {life}"));
            }
            self.running = Some(host.run(&self.command, start)?);
            self.lives += 1;
            return Ok(None);
        };
        // All that it had is back when this tells its outcome: the next life takes nothing more.
        let Some(outcome) = tenant.wait_for(Duration::from_millis(1))? else {
            return Ok(None);
        };
        self.running = None;
        println!(
            "{}: life {} ended: {:?}",
            self.name, self.lives, outcome.exit
        );
        if outcome.is_success() || self.lives == LIVES {
            return Ok(Some(outcome.exit));
        }
        self.not_before = Instant::now() + Duration::from_millis(5) * (1 << self.lives);
        Ok(None)
    }
}

fn main() -> Result<(), Error> {
    let host = Host::new(Costs::none())?;
    let programs = [
        ("steady", STEADY),
        ("crashes", CRASHES),
        ("hopeless", HOPELESS),
    ];
    let supervised = programs.map(|(name, text)| Supervised::new(&host, name, text));
    let mut supervised: VecDeque<Supervised> = supervised.into_iter().collect::<Result<_, _>>()?;
    while let Some(mut next) = supervised.pop_front() {
        match next.supervise(&host)? {
            None => supervised.push_back(next),
            Some(exit) => println!("{}: over after {} lives: {exit:?}", next.name, next.lives),
        }
    }
    Ok(())
}
