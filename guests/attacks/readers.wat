;; Three tasks wait for standard input at once. One gets the bytes; preview 1 has no signals, so that
;; nothing interrupts the others, which wait on.
(module
  (import "leasehold_kernel" "task_start" (func $task_start (param i32 i32) (result i64)))
  (import "leasehold_kernel" "task_wait" (func $task_wait (param i32) (result i64)))
  (import "leasehold_kernel" "semaphore_create" (func $semaphore_create (param i32) (result i64)))
  (import "leasehold_kernel" "semaphore_try_down" (func $semaphore_try_down (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "x\00")
  (data (i32.const 16) "no bytes\n")
  (data (i32.const 32) "waiting\n")
  ;; A buffer of 4 bytes at 128.
  (data (i32.const 64) "\80\00\00\00\04\00\00\00")
  (func $say (param $at i32) (param $length i32)
    (i32.store (i32.const 80) (local.get $at))
    (i32.store (i32.const 84) (local.get $length))
    (drop (call $fd_write (i32.const 1) (i32.const 80) (i32.const 1) (i32.const 88))))
  (func (export "_start") (local $first i64) (local $second i64) (local $third i64)
    ;; Tasks share the table of capabilities: a program that finds a semaphore at 1 is a task.
    (if (i64.eq (call $semaphore_try_down (i32.const 1)) (i64.const -9))
      (then
        (call $say (i32.const 32) (i32.const 8))
        (if (call $fd_read (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 72))
          (then (call $say (i32.const 16) (i32.const 9))))
        (return)))
    (drop (call $semaphore_create (i32.const 0)))
    (local.set $first (call $task_start (i32.const 0) (i32.const 2)))
    (local.set $second (call $task_start (i32.const 0) (i32.const 2)))
    (local.set $third (call $task_start (i32.const 0) (i32.const 2)))
    (drop (call $task_wait (i32.wrap_i64 (local.get $first))))
    (drop (call $task_wait (i32.wrap_i64 (local.get $second))))
    (drop (call $task_wait (i32.wrap_i64 (local.get $third))))))
