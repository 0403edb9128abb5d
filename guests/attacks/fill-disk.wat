;; Writes to the first of two files until it is refused, removes its name and tries the other one;
;; then closes the first, and tries again until it is not refused. Exits with the errno of the first
;; refusal, or with 100 and more if a call that must be refused is not, or the reverse.
(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file"
    (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 2)
  (data (i32.const 0) "ab")
  (data (i32.const 32) "\00\00\01\00\00\00\01\00") ;; 64 KiB at 64 KiB
  (func $must (param $errno i32) (param $code i32)
    (if (local.get $errno) (then (call $exit (local.get $code)))))
  (func $create (param $name i32) (result i32)
    (call $must
      (call $open (i32.const 3) (i32.const 0) (local.get $name) (i32.const 1) (i32.const 1)
        (i64.const 66) (i64.const 0) (i32.const 0) (i32.const 48))
      (i32.const 100))
    (i32.load (i32.const 48)))
  (func $fill (param $fd i32) (result i32)
    (call $write (local.get $fd) (i32.const 32) (i32.const 1) (i32.const 56)))
  (func (export "_start") (local $first i32) (local $second i32) (local $errno i32) (local $tries i32)
    (local.set $first (call $create (i32.const 0)))
    ;; A budget that the first has used up does not pay for opening another one.
    (local.set $second (call $create (i32.const 1)))
    (loop $more
      (br_if $more (i32.eqz (local.tee $errno (call $fill (local.get $first))))))
    (call $must (call $unlink (i32.const 3) (i32.const 0) (i32.const 1)) (i32.const 101))
    ;; The first file exists as long as it is open.
    (if (i32.eqz (call $fill (local.get $second))) (then (call $exit (i32.const 102))))
    (call $must (call $close (local.get $first)) (i32.const 103))
    (loop $again
      (if (call $fill (local.get $second))
        (then
          (drop (call $yield))
          (local.set $tries (i32.add (local.get $tries) (i32.const 1)))
          (br_if $again (i32.lt_u (local.get $tries) (i32.const 10000000)))
          (call $exit (i32.const 104)))))
    (call $exit (local.get $errno))))
