;; Polls standard input together with a clock that is due, again and again, and returns when input is there; it
;; traps if a million polls do not say so.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (memory (export "memory") 1)
  ;; Two subscriptions of 48 bytes: a read of descriptor 0 with user data 7, and a clock of no time.
  (data (i32.const 0) "\07\00\00\00\00\00\00\00\01")
  (data (i32.const 48) "\08\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\01")
  (func (export "_start") (local $left i32) (local $event i32)
    (local.set $left (i32.const 1000000))
    (loop $again
      (if (call $poll (i32.const 0) (i32.const 256) (i32.const 2) (i32.const 128)) (then unreachable))
      (local.set $event (i32.const 256))
      (loop $events
        (if (i32.load (i32.const 128))
          (then
            (if (i64.eq (i64.load (local.get $event)) (i64.const 7)) (then (return)))
            (local.set $event (i32.add (local.get $event) (i32.const 32)))
            (i32.store (i32.const 128) (i32.sub (i32.load (i32.const 128)) (i32.const 1)))
            (br $events))))
      (drop (call $yield))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $again (local.get $left)))
    unreachable))
