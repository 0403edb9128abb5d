;; Makes fourteen regions of one page, each behind a memory that was about to grow, so that each
;; time the places reserved for it in the swap file are left behind; then grows to its limit, and
;; spins.
(module
  (import "leasehold_kernel" "region_create_mapped" (func $create (param i64) (result i64)))
  (import "leasehold_kernel" "region_map" (func $map (param i32) (result i64)))
  (memory (export "memory") 1)
  (func (export "_start") (local $n i32) (local $it i64)
    (loop $next
      (drop (memory.grow (i32.const 1)))
      (local.set $it (call $create (i64.const 4096)))
      (if (i64.lt_s (local.get $it) (i64.const 0)) (then unreachable))
      (if (i64.lt_s (call $map (i32.wrap_i64 (local.get $it))) (i64.const 0)) (then unreachable))
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $n) (i32.const 14))))
    (loop $grow (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (loop $on (br $on))))
