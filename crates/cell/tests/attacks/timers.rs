use super::common::cell;
use leasehold_cell::{Exit, Lease, StartRequest, Surroundings};
use std::time::Duration;

/// Sets 1,000 timers that are due every 50 µs, more often than they can be fired, and then waits 20 times for
/// a millisecond.
const TIMERS: &str = r#"(module
  (import "leasehold_kernel" "timer_create" (func $create (result i64)))
  (import "leasehold_kernel" "timer_set" (func $set (param i32 i64 i64) (result i64)))
  (import "leasehold_kernel" "timer_wait" (func $wait (param i32) (result i64)))
  (memory (export "memory") 1)
  (func (export "_start") (local $left i32) (local $timer i32)
    (local.set $left (i32.const 1000))
    (loop $next
      (local.set $timer (i32.wrap_i64 (call $create)))
      (drop (call $set (local.get $timer) (i64.const 50000) (i64.const 50000)))
      (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (local.set $timer (i32.wrap_i64 (call $create)))
    (local.set $left (i32.const 20))
    (loop $next
      (drop (call $set (local.get $timer) (i64.const 1000000) (i64.const 0)))
      (drop (call $wait (local.get $timer)))
      (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#;

#[test]
fn timers_leave_half_of_the_time_to_the_programs_of_their_tenant() {
    let cell = cell();
    let program = cell.compile(TIMERS.as_bytes()).expect("a program");
    let tenant = cell.start_tenant(StartRequest {
        program,
        lease: Lease::default(),
        surroundings: Surroundings::default(),
    });
    let tenant = tenant.expect("a tenant");
    let ended = tenant.wait_for(Duration::from_secs(30)).expect("a cell");
    assert_eq!(ended.map(|ended| ended.exit), Some(Exit::Code(0)));
}
