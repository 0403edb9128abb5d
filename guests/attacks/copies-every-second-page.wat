;; Writes to every second page of its initial memory, 2 MiB of it, and goes on reading all of it. Under
;; a lease that pages, each such page is a copy between two pages that are shared: mappings of the
;; process. A test puts the initial memory in place of the marker.
(module
  (memory (export "memory") 34)
  (;data;)
  (func (export "_start") (local $at i32)
    (loop $next
      (i32.store (local.get $at) (i32.const 7))
      (local.set $at (i32.add (local.get $at) (i32.const 8192)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 0x200000))))
    (i32.store (i32.const 0x200000) (i32.const 1))
    (loop $round
      (local.set $at (i32.const 0))
      (loop $next
        (if (i32.ne (i32.load (local.get $at)) (i32.const 7)) (then unreachable))
        (if (i32.ne (i32.load (i32.add (local.get $at) (i32.const 4096)))
                    (i32.const 0x78787878))
          (then unreachable))
        (local.set $at (i32.add (local.get $at) (i32.const 8192)))
        (br_if $next (i32.lt_u (local.get $at) (i32.const 0x200000))))
      (br $round))))
