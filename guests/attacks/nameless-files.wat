;; Creates a file, writes a page to it and removes its name, a thousand times, keeps all of them
;; open, and ends: each is freed by its last close. Exits with the errno of the failed call.
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file"
    (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "file")
  (data (i32.const 16) "\00\00\01\00\00\10\00\00") ;; 4 KiB at 64 KiB
  (func $must (param $errno i32)
    (if (local.get $errno) (then (call $exit (local.get $errno)))))
  (func (export "_start") (local $n i32)
    (loop $next
      (call $must (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 13)
        (i64.const 66) (i64.const 0) (i32.const 0) (i32.const 8)))
      (call $must (call $write (i32.load (i32.const 8)) (i32.const 16) (i32.const 1) (i32.const 24)))
      (call $must (call $unlink (i32.const 3) (i32.const 0) (i32.const 4)))
      (br_if $next (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))))
