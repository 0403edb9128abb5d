;; Grows to 4 MiB, 64 KiB at a time, and writes to all of it: it must get what its lease allows.
(module
  (memory (export "memory") 1)
  (func (export "_start") (local $at i32)
    (loop $grow
      (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
      (br_if $grow (i32.lt_u (memory.size) (i32.const 64))))
    (if (i32.ne (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
    (loop $next
      (i32.store (local.get $at) (local.get $at))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 0x400000))))
    (local.set $at (i32.const 0))
    (loop $next
      (if (i32.ne (i32.load (local.get $at)) (local.get $at)) (then unreachable))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 0x400000))))))
