;; Polls a list of 120,000 borrows of one pollable, again and again.
(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "poll" (func (param "in" (list (borrow $pollable))) (result (list u32))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (export "pollable" (type $shared (eq $pollable)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $shared))))))
  (core module $memory
    (memory (export "memory") 32)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (i32.const 0x100000)))
  (core instance $memory (instantiate $memory))
  (core func $poll (canon lower (func $poll "poll")
    (memory (core memory $memory "memory")) (realloc (core func $memory "cabi_realloc"))))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core module $main
    (import "host" "memory" (memory 32))
    (import "host" "poll" (func $poll (param i32 i32 i32)))
    (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
    (func (export "run") (result i32) (local $pollable i32) (local $at i32)
      (local.set $pollable (call $subscribe (i64.const 0)))
      (loop $fill
        (i32.store (i32.add (i32.const 1024) (i32.mul (local.get $at) (i32.const 4))) (local.get $pollable))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if $fill (i32.lt_u (local.get $at) (i32.const 120000))))
      (loop $again
        (call $poll (i32.const 1024) (i32.const 120000) (i32.const 0))
        (br $again))
      (unreachable)))
  (core instance $main (instantiate $main
    (with "host" (instance
      (export "memory" (memory $memory "memory"))
      (export "poll" (func $poll))
      (export "subscribe" (func $subscribe))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
