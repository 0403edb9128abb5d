;; Asks for the time, 150,000 times: nearly all of it in the host.
(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (local $n i32)
    (loop $again
      (drop (call $time (i32.const 1) (i64.const 0) (i32.const 8)))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 150000))))))
