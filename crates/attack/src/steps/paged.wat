;; One of two tenants that page. The lender makes regions of as many pages as a step takes; the borrower maps them, loses
;; each again, and maps another one in its place. Both map a data set. The first channel is the lender's to send.
(module
  (import "leasehold_kernel" "channel_send" (func $send (param i32 i32 i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "channel_receive" (func $receive (param i32 i32 i32 i32 i32) (result i64)))
  (import "leasehold_kernel" "capability_revoke" (func $revoke (param i32) (result i64)))
  (import "leasehold_kernel" "region_create_mapped" (func $create (param i64) (result i64)))
  (import "leasehold_kernel" "region_map" (func $map (param i32) (result i64)))
  (import "leasehold_kernel" "region_map_at" (func $map_at (param i32 i32) (result i64)))
  (import "leasehold_kernel" "data_length" (func $length (param i32 i32) (result i64)))
  (import "leasehold_kernel" "data_map" (func $data (param i32 i32) (result i64)))
  (memory (export "memory") 8)
  ;; Initial contents that tenants share.
  (data (i32.const 65536) "IMAGE")
  (func $check (param $result i64) (result i32)
    (if (i64.lt_s (local.get $result) (i64.const 0)) (then unreachable))
    (i32.wrap_i64 (local.get $result)))
  ;; Writes to each page of 64, or reads it.
  (func $touch (param $at i32) (param $writes i32) (local $pages i32)
    (local.set $pages (i32.const 64))
    (loop $next
      (if (local.get $writes)
        (then (i32.store (local.get $at) (i32.const 1)))
        (else (drop (i32.load (local.get $at)))))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $next (local.tee $pages (i32.sub (local.get $pages) (i32.const 1))))))
  (func $tell (param $channel i32) (param $count i32)
    (drop (call $check
      (call $send (local.get $channel) (i32.const 0) (i32.const 1) (i32.const 1024) (local.get $count)))))
  (func $hear (param $channel i32) (param $count i32)
    (drop (call $check
      (call $receive (local.get $channel) (i32.const 512) (i32.const 8) (i32.const 1024) (local.get $count)))))
  ;; Makes a region, gives it, and takes it back when it was used.
  (func $lend (local $it i32)
    (local.set $it (call $check (call $create (i64.const 262144))))
    (call $touch (call $check (call $map (local.get $it))) (i32.const 1))
    (i32.store (i32.const 1024) (local.get $it))
    (call $tell (i32.const 1) (i32.const 1))
    (call $hear (i32.const 2) (i32.const 0))
    (drop (call $check (call $revoke (local.get $it)))))
  (func $borrow (param $place i32) (result i32) (local $it i32)
    (call $hear (i32.const 1) (i32.const 1))
    (local.set $it (i32.load (i32.const 1024)))
    (if (local.get $place)
      (then (drop (call $check (call $map_at (local.get $it) (local.get $place)))))
      (else (local.set $place (call $check (call $map (local.get $it))))))
    (call $touch (local.get $place) (i32.const 1))
    (call $tell (i32.const 2) (i32.const 0))
    (local.get $place))
  (func (export "_start") (local $round i32) (local $place i32)
    ;; A name at its cap.
    (memory.fill (i32.const 0) (i32.const 120) (i32.const 256))
    (drop (call $check (call $length (i32.const 0) (i32.const 256))))
    (call $touch (call $check (call $data (i32.const 0) (i32.const 256))) (i32.const 0))
    (loop $again
      (if (i32.const LENDS)
        (then (call $lend))
        (else (local.set $place (call $borrow (local.get $place)))))
      (br_if $again (i32.lt_u (local.tee $round (i32.add (local.get $round) (i32.const 1))) (i32.const 6))))))
