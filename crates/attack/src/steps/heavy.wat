;; Grows its memory, writes to all of it, grows its table, opens files, and traps in the depth of its stack.
(module $a_module_with_a_long_name
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "leasehold_kernel" "timer_create" (func $timer (result i64)))
  (import "leasehold_kernel" "timer_set" (func $set (param i32 i64 i64) (result i64)))
  (import "leasehold_kernel" "timer_wait" (func $wait (param i32) (result i64)))
  (memory (export "memory") 2 512)
  (table $table 16384 funcref)
  (elem (table $table) (i32.const 0) func $deep $deep $deep $deep)
  (data (i32.const 4096) "DATA")
  (data (i32.const 0) ".")
  (func $deep (param $n i32)
    (if (i32.eqz (local.get $n)) (then unreachable))
    (call $deep (i32.sub (local.get $n) (i32.const 1))))
  (func (export "_start") (local $n i32) (local $at i32)
    (loop $grow
      (drop (memory.grow (i32.const 1)))
      (drop (table.grow $table (ref.func $deep) (i32.const 4096)))
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_if $grow (i32.lt_u (local.get $n) (i32.const 48))))
    (local.set $at (i32.const 4096))
    (loop $touch
      (i32.store8 (local.get $at) (i32.const 1))
      (br_if $touch (i32.lt_u
        (local.tee $at (i32.add (local.get $at) (i32.const 4096)))
        (i32.const 3145728))))
    (local.set $n (i32.const 0))
    (loop $files
      (drop (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 2)
        (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 8)))
      (br_if $files (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1)))
        (i32.const 120))))
    ;; 4,000 timers that fire together: many more than the caches of a processor have.
    (local.set $n (i32.const 0))
    (loop $timers
      (local.set $at (i32.wrap_i64 (call $timer)))
      (drop (call $set (local.get $at) (i64.const 1000000) (i64.const 0)))
      (br_if $timers (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1)))
        (i32.const 4000))))
    (drop (call $wait (local.get $at)))
    (call $deep (i32.const 200))))
