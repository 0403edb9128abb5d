;; Fills and copies a table of 100,000 elements, 400 times: nearly all of it in the host.
(module
  (memory (export "memory") 1)
  (table $t 100000 funcref)
  (elem declare func $f)
  (func $f)
  (func (export "_start")
    (local $n i32)
    (loop $again
      (table.fill $t (i32.const 0) (ref.func $f) (i32.const 50000))
      (table.copy $t $t (i32.const 50000) (i32.const 0) (i32.const 50000))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 400))))))
