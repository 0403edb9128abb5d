//! Calls with extreme arguments, and what the canonical ABI does around them.

use super::common::{cell, lease, run};
use leasehold_cell::steps::caps;
use leasehold_cell::{Ended, Exit, Surroundings};
use std::path::Path;

/// Runs an attack of `guests/attacks/` with a budget of 50 ms and 64 MiB.
fn attack(name: &str) -> Ended {
    let cell = cell();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/attacks");
    let program = cell.load(&path.join(name)).expect("a program");
    run(
        &cell,
        program,
        lease(50_000, 64 << 10),
        Surroundings::default(),
    )
    .0
}

/// Runs a module whose `_start` has this body, with one memory of 32 MiB, the channel that it creates in
/// the local `$channel`.
fn with_channel(body: &str) -> Exit {
    let text = format!(
        "(module
           (import \"leasehold_kernel\" \"channel_create\" (func $create (param i32) (result i64)))
           (import \"leasehold_kernel\" \"channel_try_send\"
             (func $send (param i32 i32 i32 i32 i32) (result i64)))
           (import \"wasi_snapshot_preview1\" \"proc_exit\" (func $exit (param i32)))
           (memory (export \"memory\") 512)
           (func (export \"_start\") (local $channel i32)
             (local.set $channel (i32.wrap_i64 (call $create (i32.const 131072))))
             {body}))"
    );
    let cell = cell();
    let program = cell.compile(text.as_bytes()).expect("a program");
    run(
        &cell,
        program,
        lease(50_000, 64 << 10),
        Surroundings::default(),
    )
    .0
    .exit
}

/// The negated error number of a message of so many bytes; 0 if it was sent.
fn sent(bytes: u64) -> Exit {
    with_channel(&format!(
        "(call $exit (i32.sub (i32.const 0) (i32.wrap_i64
           (call $send (local.get $channel) (i32.const 0) (i32.const {bytes}) (i32.const 0) (i32.const 0)))))"
    ))
}

#[test]
fn a_message_above_the_cap_is_refused_before_it_is_copied() {
    assert_eq!(sent(caps::MESSAGE.most), Exit::Code(0));
    let too_large = leasehold_kernel::Errno::TooLarge.number().cast_signed();
    assert_eq!(sent(caps::MESSAGE.most + 1), Exit::Code(too_large));
    assert_eq!(sent(16 << 20), Exit::Code(too_large));
}

#[test]
fn a_poll_list_of_120_000_borrows_traps_in_the_call() {
    let Exit::Trap(message) = attack("poll-borrows.wat").exit else {
        panic!("not a trap")
    };
    assert!(
        message.contains("fuel") || message.contains("at most 512"),
        "{message}"
    );
}

#[test]
fn a_call_of_a_component_returns_no_more_random_bytes_than_the_cap() {
    let Exit::Trap(message) = attack("random-list.wat").exit else {
        panic!("not a trap")
    };
    assert!(message.contains("exceeds limit 65536"), "{message}");
}

/// How a component ends that takes a pollable of its standard output, and then does this.
fn with_pollable(body: &str) -> Exit {
    let text = format!(
        r#"(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "pollable" (type $shared (eq $pollable)))
    (export "output-stream" (type $output (sub resource)))
    (export "[method]output-stream.subscribe"
      (func (param "self" (borrow $output)) (result (own $shared))))))
  (alias export $streams "output-stream" (type $stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (export "output-stream" (type $output (eq $stream)))
    (export "get-stdout" (func (result (own $output))))))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core func $subscribe (canon lower (func $streams "[method]output-stream.subscribe")))
  (core func $drop-stream (canon resource.drop $stream))
  (core func $drop-pollable (canon resource.drop $pollable))
  (core module $main
    (import "host" "get" (func $get (result i32)))
    (import "host" "subscribe" (func $subscribe (param i32) (result i32)))
    (import "host" "drop-stream" (func $drop-stream (param i32)))
    (import "host" "drop-pollable" (func $drop-pollable (param i32)))
    (func (export "run") (result i32) (local $stream i32) (local $pollable i32)
      (local.set $stream (call $get))
      (local.set $pollable (call $subscribe (local.get $stream)))
      {body}
      (i32.const 0)))
  (core instance $main (instantiate $main
    (with "host" (instance
      (export "get" (func $get))
      (export "subscribe" (func $subscribe))
      (export "drop-stream" (func $drop-stream))
      (export "drop-pollable" (func $drop-pollable))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))"#
    );
    let cell = cell();
    let program = cell.compile(text.as_bytes()).expect("a program");
    let terms = lease(50_000, 64 << 10);
    run(&cell, program, terms, Surroundings::default()).0.exit
}

#[test]
fn a_stream_that_is_dropped_before_a_pollable_of_it_is_a_trap() {
    let pollable = "(call $drop-pollable (local.get $pollable))";
    let stream = "(call $drop-stream (local.get $stream))";
    let Exit::Trap(message) = with_pollable(stream) else {
        panic!("not a trap");
    };
    assert!(message.contains("has children"), "{message}");
    assert_eq!(
        with_pollable(&format!("{pollable} {stream}")),
        Exit::Code(0)
    );
}
