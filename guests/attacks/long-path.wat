;; Opens a path of 16 MB, again and again; exits with the errno of the last try.
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get"
    (func $stat (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename"
    (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 257)
  (func (export "_start") (local $n i32) (local $errno i32)
    (memory.fill (i32.const 64) (i32.const 97) (i32.const 16777216))
    (loop $next
      (local.set $errno (call $open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 16777216)
        (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 0)))
      (drop (call $stat (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 16777216) (i32.const 0)))
      (drop (call $rename (i32.const 3) (i32.const 64) (i32.const 16777216)
        (i32.const 3) (i32.const 64) (i32.const 16777216)))
      (br_if $next (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100))))
    (call $exit (local.get $errno))))
