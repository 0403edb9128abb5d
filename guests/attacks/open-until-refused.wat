;; Opens its directory until that is refused, closes one and opens another, and writes how many are open
;; and the errno to standard output, 4 bytes each. With a name that does not exist it would do nothing.
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) ".")
  (data (i32.const 16) "\20\00\00\00\08\00\00\00") ;; 8 bytes at 32
  (func $again (result i32)
    (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 2)
      (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 8)))
  (func (export "_start") (local $n i32) (local $errno i32)
    (block $refused
      (loop $next
        (br_if $refused (local.tee $errno (call $again)))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br $next)))
    ;; What was closed can be opened again, a thousand times.
    (i32.store (i32.const 40) (i32.const 1000))
    (loop $more
      (if (call $close (i32.load (i32.const 8))) (then unreachable))
      (if (call $again) (then unreachable))
      (i32.store (i32.const 40) (i32.sub (i32.load (i32.const 40)) (i32.const 1)))
      (br_if $more (i32.load (i32.const 40))))
    (i32.store (i32.const 32) (local.get $n))
    (i32.store (i32.const 36) (local.get $errno))
    (if (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24))
      (then unreachable))))
