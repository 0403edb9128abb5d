;; Makes directories until one is refused, removes one and makes two. Exits with the errno of the first
;; refusal, which the last call has to have, too; with 100 otherwise. Writes how many there were.
(module
  (import "wasi_snapshot_preview1" "path_create_directory"
    (func $make (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory"
    (func $remove (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 32) "\00\00\00\00\08\00\00\00") ;; 8 bytes at 0
  ;; A name of four letters.
  (func $name (param $number i32)
    (local $at i32)
    (loop $letter
      (i32.store8 (i32.add (i32.const 16) (local.get $at))
        (i32.add (i32.const 97) (i32.and (local.get $number) (i32.const 15))))
      (local.set $number (i32.shr_u (local.get $number) (i32.const 4)))
      (br_if $letter
        (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 4)))))
  (func $add (param $number i32) (result i32)
    (call $name (local.get $number))
    (call $make (i32.const 3) (i32.const 16) (i32.const 4)))
  (func (export "_start") (local $count i32) (local $errno i32)
    (loop $more
      (if (i32.eqz (local.tee $errno (call $add (local.get $count))))
        (then
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (br $more))))
    (i32.store (i32.const 0) (local.get $count))
    (i32.store (i32.const 4) (local.get $errno))
    (drop (call $write (i32.const 1) (i32.const 32) (i32.const 1) (i32.const 56)))
    (call $name (i32.const 0))
    (if (call $remove (i32.const 3) (i32.const 16) (i32.const 4))
      (then (call $exit (i32.const 100))))
    (if (call $add (i32.const 0)) (then (call $exit (i32.const 100))))
    (if (i32.ne (call $add (local.get $count)) (local.get $errno))
      (then (call $exit (i32.const 100))))
    (call $exit (local.get $errno))))
