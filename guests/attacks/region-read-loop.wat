;; Reads a region; the function that is to make room for its bytes never returns.
(component
  (import "leasehold:kernel/region@0.1.0" (instance $region
    (type $e (enum "bad-selector" "bad-class" "rights" "gone" "budget" "memory" "table-full" "full" "empty" "too-large"
      "depth" "allowance" "invalid" "busy" "limit"))
    (export "errno" (type $errno (eq $e)))
    (export "create" (func (param "length" u64) (result (result u32 (error $errno)))))
    (export "read" (func (param "region" u32) (param "offset" u64) (param "length" u32)
      (result (result (list u8) (error $errno)))))))
  (core module $memory
    (memory (export "memory") 1)
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (loop $again (br $again))
      (unreachable)))
  (core instance $memory (instantiate $memory))
  (core func $create (canon lower (func $region "create") (memory (core memory $memory "memory"))))
  (core func $read (canon lower (func $region "read")
    (memory (core memory $memory "memory")) (realloc (core func $memory "cabi_realloc"))))
  (core module $main
    (import "memory" "memory" (memory 1))
    (import "region" "create" (func $create (param i64 i32)))
    (import "region" "read" (func $read (param i32 i64 i32 i32)))
    (func (export "run") (result i32)
      (call $create (i64.const 65536) (i32.const 0))
      (call $read (i32.load (i32.const 4)) (i64.const 0) (i32.const 4096) (i32.const 16))
      (i32.const 0)))
  (core instance $main (instantiate $main
    (with "memory" (instance $memory))
    (with "region" (instance (export "create" (func $create)) (export "read" (func $read))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
