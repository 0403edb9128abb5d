;; Wakes many tasks at once, again and again: they wait for a semaphore, which is raised by as many as there are.
;; In the end they wait for one that is dropped. A task finds the letter of the selector in its arguments.
(module
  (import "leasehold_kernel" "task_start" (func $task (param i32 i32) (result i64)))
  (import "leasehold_kernel" "semaphore_create" (func $create (param i32) (result i64)))
  (import "leasehold_kernel" "semaphore_up" (func $up (param i32 i32) (result i64)))
  (import "leasehold_kernel" "semaphore_down" (func $down (param i32) (result i64)))
  (import "leasehold_kernel" "capability_drop" (func $drop (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $sleep
    (i32.store (i32.const 80) (i32.const 1))
    (i64.store (i32.const 88) (i64.const 8000000))
    (drop (call $poll (i32.const 64) (i32.const 256) (i32.const 1) (i32.const 512))))
  (func (export "_start") (local $n i32) (local $all i32) (local $it i32)
    (drop (call $sizes (i32.const 16) (i32.const 20)))
    (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1))
      (then
        (drop (call $args (i32.const 1024) (i32.const 2048)))
        (local.set $it (i32.sub (i32.load8_u (i32.load (i32.const 1028))) (i32.const 65)))
        (loop $wait
          (br_if $wait (i64.ge_s (call $down (local.get $it)) (i64.const 0))))
        (return)))
    (local.set $it (i32.wrap_i64 (call $create (i32.const 0))))
    (i32.store8 (i32.const 0) (i32.add (local.get $it) (i32.const 65)))
    (block $full (loop $more
      (br_if $full (i64.lt_s (call $task (i32.const 0) (i32.const 2)) (i64.const 0)))
      (local.set $all (i32.add (local.get $all) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $all) (i32.const 250)))))
    (call $sleep)
    (loop $again
      (drop (call $up (local.get $it) (local.get $all)))
      (call $sleep)
      (br_if $again (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1)))
        (i32.const 20))))
    (drop (call $drop (local.get $it)))
    (call $sleep)))
