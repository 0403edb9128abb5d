//! Components whose `cabi_realloc`, which the host calls while a host call returns, is slow or
//! never returns. A kill takes effect at any instant.

use super::common::{cell, lease, read_only};
use leasehold_cell::{
    Cell, Exit, Input, Output, Program, StartRequest, Surroundings, TenantHandle,
};
use leasehold_reserve::simulate::SplitMix;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An import that returns a list or a string, and how a component says so and calls it.
struct Import {
    name: &'static str,
    /// The imported instance, called `$from`, and what it needs.
    types: &'static str,
    function: &'static str,
    /// Parameters of the lowered function, and the call.
    parameters: &'static str,
    arguments: &'static str,
}

const IMPORTS: [Import; 6] = [
    Import {
        name: "random bytes",
        types: r#"(import "wasi:random/random@0.2.0" (instance $from
            (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))"#,
        function: "get-random-bytes",
        parameters: "i64 i32",
        arguments: "(i64.const 60000)",
    },
    Import {
        name: "insecure random bytes",
        types: r#"(import "wasi:random/insecure@0.2.0" (instance $from
            (export "get-insecure-random-bytes" (func (param "len" u64) (result (list u8))))))"#,
        function: "get-insecure-random-bytes",
        parameters: "i64 i32",
        arguments: "(i64.const 60000)",
    },
    Import {
        name: "environment",
        types: r#"(import "wasi:cli/environment@0.2.0" (instance $from
            (export "get-environment" (func (result (list (tuple string string)))))))"#,
        function: "get-environment",
        parameters: "i32",
        arguments: "",
    },
    Import {
        name: "arguments",
        types: r#"(import "wasi:cli/environment@0.2.0" (instance $from
            (export "get-arguments" (func (result (list string))))))"#,
        function: "get-arguments",
        parameters: "i32",
        arguments: "",
    },
    Import {
        name: "preopened directories",
        types: r#"(import "wasi:filesystem/types@0.2.0" (instance $types
            (export "descriptor" (type (sub resource)))))
          (alias export $types "descriptor" (type $descriptor))
          (import "wasi:filesystem/preopens@0.2.0" (instance $from
            (alias outer 1 $descriptor (type $outer))
            (export "descriptor" (type $d (eq $outer)))
            (export "get-directories" (func (result (list (tuple (own $d) string)))))))"#,
        function: "get-directories",
        parameters: "i32",
        arguments: "",
    },
    Import {
        name: "region",
        types: r#"(import "leasehold:kernel/region@0.1.0" (instance $from
            (type $e (enum "bad-selector" "bad-class" "rights" "gone" "budget" "memory" "table-full" "full"
              "empty" "too-large" "depth" "allowance" "invalid" "busy" "limit"))
            (export "errno" (type $errno (eq $e)))
            (export "create" (func (param "length" u64) (result (result u32 (error $errno)))))
            (export "read" (func (param "region" u32) (param "offset" u64) (param "length" u32)
              (result (result (list u8) (error $errno)))))))"#,
        function: "read",
        parameters: "i32 i64 i32 i32",
        // The first capability that a tenant makes is its second.
        arguments: "(i32.const 1) (i64.const 0) (i32.const 60000)",
    },
];

/// Turns of a loop in `cabi_realloc` before it returns; one of them never does.
const TURNS: [u32; 3] = [u32::MAX, 1_000, 100_000];

impl Import {
    /// A component that calls the import for ever, and takes `turns` to make room.
    fn program(&self, cell: &Cell, turns: u32) -> Arc<Program> {
        let Import {
            types,
            function,
            parameters,
            arguments,
            ..
        } = self;
        let (create, import, with, call) = match *function {
            "read" => (
                r#"(core func $create (canon lower (func $from "create") (memory (core memory $memory "memory"))))"#,
                r#"(import "host" "create" (func $create (param i64 i32)))"#,
                r#"(export "create" (func $create))"#,
                "(call $create (i64.const 65536) (i32.const 0))",
            ),
            _ => ("", "", "", ""),
        };
        let text = format!(
            r#"(component
              {types}
              (core module $memory
                (memory (export "memory") 4)
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                  (local $i i32)
                  (loop $again
                    (local.set $i (i32.add (local.get $i) (i32.const 1)))
                    (br_if $again (i32.eq (i32.const {turns}) (i32.const -1)))
                    (br_if $again (i32.lt_u (local.get $i) (i32.const {turns}))))
                  (i32.const 65536)))
              (core instance $memory (instantiate $memory))
              (core func $call (canon lower (func $from "{function}") string-encoding=utf8
                (memory (core memory $memory "memory")) (realloc (core func $memory "cabi_realloc"))))
              {create}
              (core module $main
                (import "memory" "memory" (memory 4))
                (import "host" "call" (func $call (param {parameters})))
                {import}
                (func (export "run") (result i32)
                  {call}
                  (loop $again
                    (call $call {arguments} (i32.const 16))
                    (br $again))
                  (unreachable)))
              (core instance $main (instantiate $main
                (with "memory" (instance $memory))
                (with "host" (instance (export "call" (func $call)) {with}))))
              (func $run (result (result)) (canon lift (core func $main "run")))
              (instance $command (export "run" (func $run)))
              (export "wasi:cli/run@0.2.0" (instance $command)))"#,
            turns = turns as i32,
        );
        let program = cell.compile(text.as_bytes());
        program.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

fn start(cell: &Cell, program: Arc<Program>) -> TenantHandle {
    let request = StartRequest {
        program,
        lease: lease(50_000, 16 << 10),
        surroundings: Surroundings {
            args: Vec::from_iter((0..20).map(|n| format!("argument-{n}"))),
            env: Vec::from_iter((0..20).map(|n| (format!("NAME_{n}"), format!("value-{n}")))),
            dirs: vec![read_only(Path::new(env!("CARGO_MANIFEST_DIR")))],
            stdin: Input::Empty,
            stdout: Output::Discard,
            ..Surroundings::default()
        },
    };
    cell.start_tenant(request).expect("a tenant starts")
}

/// Kills it, and fails if that has no effect.
fn kill(tenant: &TenantHandle, what: &str) {
    tenant.kill();
    let ended = tenant.wait_for(Duration::from_secs(60));
    let ended = ended.expect("the cell is there");
    let ended = ended.unwrap_or_else(|| panic!("{what}: a kill was lost"));
    // The lease may have ended it before: of descriptors there are as many as it pays for.
    assert!(
        matches!(ended.exit, Exit::Killed | Exit::Lease(_)),
        "{what}: {:?}",
        ended.exit
    );
}

/// Waits without giving the processor away: for some microseconds, a sleep is too coarse.
fn pass(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn no_kill_is_lost_whatever_the_host_call_and_the_instant() {
    let kills = std::env::var("LEASEHOLD_KILLS").ok();
    let kills = kills
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(360_u64);
    let cell = cell();
    // Beside one that never gives the processor away, so that the alarm rings all the time.
    let spin = br#"(module (memory (export "memory") 1) (func (export "_start") (loop $again (br $again))))"#;
    let neighbour = start(&cell, cell.compile(spin).expect("it compiles"));
    let programs: Vec<_> = IMPORTS
        .iter()
        .flat_map(|import| TURNS.map(|turns| (import, turns)))
        .map(|(import, turns)| (import.name, turns, import.program(&cell, turns)))
        .collect();
    let mut random = SplitMix::new(1);
    for n in 0..kills {
        let (name, turns, program) = &programs[(n % programs.len() as u64) as usize];
        let tenant = start(&cell, program.clone());
        pass(Duration::from_nanos(random.below(2_000_000)));
        kill(&tenant, &format!("{name}, {turns} turns, kill {n}"));
    }
    let got = neighbour.processor().expect("it runs");
    assert!(got.supply.used > 0);
    kill(&neighbour, "the neighbour");
}

#[test]
fn the_attacks_that_never_return_from_realloc_are_killed() {
    let cell = cell();
    for attack in ["realloc-loop.wat", "region-read-loop.wat"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks");
        let program = cell.load(&path.join(attack)).expect("it loads");
        for _ in 0..20 {
            let tenant = start(&cell, program.clone());
            std::thread::sleep(Duration::from_millis(5));
            kill(&tenant, attack);
        }
    }
}
