;; Opens the FIFO `fifo`, whose other end nothing opens, and reads it for ever.
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read"
    (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "fifo")
  (data (i32.const 16) "\40\00\00\00\10\00\00\00") ;; 16 bytes at 64
  (func (export "_start")
    (drop (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 0)
      (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 8)))
    (loop $next
      (drop (call $read (i32.load (i32.const 8)) (i32.const 16) (i32.const 1) (i32.const 24)))
      (br $next))))
