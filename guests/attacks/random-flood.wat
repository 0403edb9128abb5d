;; Asks for 64 MiB of random bytes again and again: one host call each, of any length that fits its memory.
(module
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (memory (export "memory") 1025)
  (func (export "_start")
    (loop $again
      (drop (call $random_get (i32.const 65536) (i32.const 67108864)))
      (br $again))))
