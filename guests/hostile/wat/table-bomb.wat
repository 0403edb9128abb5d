;; Grows a table until refused, writing every element, then spins.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\10\00\00\00\06\00\00\00") ;; one range: 6 bytes at 16
  (data (i32.const 16) "ready\n")
  (table $table 1 funcref)
  (elem declare func $element)
  (func $element)
  (func (export "_start")
    (loop $more
      (br_if $more
        (i32.ne (i32.const -1) (table.grow $table (ref.func $element) (i32.const 1024)))))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (loop $spin (br $spin))))
