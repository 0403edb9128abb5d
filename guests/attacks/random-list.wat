;; Asks for 64 MiB of random bytes in one call.
(component
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (core module $memory
    (memory (export "memory") 1)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (i32.const 1024)))
  (core instance $memory (instantiate $memory))
  (core func $bytes (canon lower (func $random "get-random-bytes")
    (memory (core memory $memory "memory")) (realloc (core func $memory "cabi_realloc"))))
  (core module $main
    (import "random" "bytes" (func $bytes (param i64 i32)))
    (func (export "run") (result i32)
      (call $bytes (i64.const 0x4000000) (i32.const 0))
      (i32.const 0)))
  (core instance $main (instantiate $main
    (with "random" (instance (export "bytes" (func $bytes))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
