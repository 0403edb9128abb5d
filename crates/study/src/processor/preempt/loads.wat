;; Adds up a mebibyte, word by word, 300 times.
(module
  (memory (export "memory") 17)
  (func (export "_start")
    (local $at i32) (local $n i32) (local $sum i64)
    (loop $again
      (local.set $at (i32.const 0))
      (loop $words
        (local.set $sum (i64.add (local.get $sum) (i64.load (local.get $at))))
        (br_if $words (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 1048576))))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 300))))
    (i64.store offset=1048576 (i32.const 0) (local.get $sum))))
