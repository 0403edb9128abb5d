;; Fills and copies four mebibytes, 200 times: nearly all of it in the host.
(module
  (memory (export "memory") 160)
  (func (export "_start")
    (local $n i32)
    (loop $again
      (memory.fill (i32.const 0) (local.get $n) (i32.const 4194304))
      (memory.copy (i32.const 5000000) (i32.const 0) (i32.const 4194304))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 200))))))
