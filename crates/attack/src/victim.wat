;; Wakes up every 10 ms and writes how late that was, in ns, as eight bytes.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  ;; The buffer of what is written.
  (data (i32.const 512) "\00\04\00\00\08\00\00\00")
  (func (export "_start") (local $due i64) (local $now i64)
    (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 600)))
    (local.set $due (i64.load (i32.const 600)))
    ;; A clock, the monotonic one, at a time.
    (i32.store (i32.const 16) (i32.const 1))
    (i32.store16 (i32.const 40) (i32.const 1))
    (loop $again
      (local.set $due (i64.add (local.get $due) (i64.const 10000000)))
      (i64.store (i32.const 24) (local.get $due))
      (drop (call $poll (i32.const 0) (i32.const 256) (i32.const 1) (i32.const 608)))
      (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 600)))
      (local.set $now (i64.load (i32.const 600)))
      (i64.store (i32.const 1024) (i64.sub (local.get $now) (local.get $due)))
      (drop (call $write (i32.const 1) (i32.const 512) (i32.const 1) (i32.const 616)))
      (if (i64.gt_u (local.get $now) (i64.add (local.get $due) (i64.const 10000000)))
        (then (local.set $due (local.get $now))))
      (br $again))))
