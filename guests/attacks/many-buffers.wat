;; Writes and reads lists of half a million buffers, and of 4 billion; exits with the errno of the last.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read"
    (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 64)
  (func (export "_start") (local $n i32)
    (loop $next
      (drop (call $write (i32.const 1) (i32.const 8) (i32.const 500000) (i32.const 0)))
      (drop (call $read (i32.const 0) (i32.const 8) (i32.const 500000) (i32.const 0)))
      (drop (call $write (i32.const 1) (i32.const 8) (i32.const -1) (i32.const 0)))
      (br_if $next (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))
    (call $exit (call $read (i32.const 0) (i32.const 8) (i32.const -1) (i32.const 0)))))
