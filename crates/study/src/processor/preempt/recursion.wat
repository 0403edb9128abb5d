;; The 32nd Fibonacci number, the long way.
(module
  (memory (export "memory") 1)
  (func $fibonacci (param $n i64) (result i64)
    (if (result i64) (i64.lt_s (local.get $n) (i64.const 2))
      (then (local.get $n))
      (else (i64.add
        (call $fibonacci (i64.sub (local.get $n) (i64.const 1)))
        (call $fibonacci (i64.sub (local.get $n) (i64.const 2)))))))
  (func (export "_start")
    (i64.store (i32.const 0) (call $fibonacci (i64.const 32)))))
