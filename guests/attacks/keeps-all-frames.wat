;; Keeps frames for as many regions as its lease lets it, largest first, until hardly any is left; then copies
;; between pages for ever, with one instruction that needs two of them at the same time.
(module
  (import "leasehold_kernel" "region_create_mapped" (func $create (param i64) (result i64)))
  (memory (export "memory") 4)
  (func (export "_start") (local $bytes i64)
    (local.set $bytes (i64.const 8388608))
    (loop $less
      (if (i64.lt_s (call $create (local.get $bytes)) (i64.const 0))
        (then
          (local.set $bytes (i64.sub (local.get $bytes) (i64.const 4096)))
          (br_if $less (i64.gt_s (local.get $bytes) (i64.const 0))))))
    (i32.store (i32.const 4096) (i32.const 1))
    (loop $copy
      (memory.copy (i32.const 20000) (i32.const 70001) (i32.const 9000))
      (br $copy))))
