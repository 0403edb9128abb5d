;; Copies 1 GiB onto itself, a byte further and back, again and again, each time by one
;; instruction.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 16386) ;; 1 GiB, a page before it for the message, and one after it
  (data (i32.const 0) "\10\00\00\00\06\00\00\00") ;; one range: 6 bytes at 16
  (data (i32.const 16) "ready\n")
  (func (export "_start")
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (loop $again
      (memory.copy (i32.const 65537) (i32.const 65536) (i32.const 1073741824))
      (memory.copy (i32.const 65536) (i32.const 65537) (i32.const 1073741824))
      (br $again))))
