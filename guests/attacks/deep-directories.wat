;; Makes directories in each other until one is refused, 2,000 at the most, and opens a file in the last but one by its name,
;; again and again. Exits with the errno of what fails.
(module
  (import "wasi_snapshot_preview1" "path_create_directory" (func $make (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "df")
  (func $must (param $errno i32)
    (if (local.get $errno) (then (call $exit (local.get $errno)))))
  ;; A descriptor of what has this name of one letter.
  (func $opened (param $fd i32) (param $name i32) (param $how i32) (result i32)
    (call $must (call $open (local.get $fd) (i32.const 0) (local.get $name) (i32.const 1) (local.get $how)
      (i64.const 0) (i64.const 0x1fffffff) (i32.const 0) (i32.const 16)))
    (i32.load (i32.const 16)))
  (func (export "_start") (local $fd i32) (local $next i32) (local $n i32)
    (local.set $fd (i32.const 3))
    (block $refused (loop $down
      (br_if $refused (call $make (local.get $fd) (i32.const 0) (i32.const 1)))
      (local.set $next (call $opened (local.get $fd) (i32.const 0) (i32.const 2)))
      (if (i32.ne (local.get $fd) (i32.const 3)) (then (call $must (call $close (local.get $fd)))))
      (local.set $fd (local.get $next))
      (br_if $down (i32.lt_u
        (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 2000)))))
    (drop (call $open (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 1)
      (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 16)))
    (loop $again
      (if (i32.eqz (call $open (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 0)
            (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 16)))
        (then (call $must (call $close (i32.load (i32.const 16))))))
      (br $again))))
