;; Grows a memory by a page, 20,000 times, and writes a byte to each: nearly all of it in the host.
(module
  (memory (export "memory") 1)
  (func (export "_start")
    (local $n i32)
    (loop $again
      (i32.store8 (i32.shl (memory.grow (i32.const 1)) (i32.const 16)) (i32.const 1))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 20000))))))
