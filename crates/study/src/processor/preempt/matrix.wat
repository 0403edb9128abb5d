;; A naive product of two matrices, 192 by 192, f64, four times.
(module
  (memory (export "memory") 16)
  (func (export "_start")
    (local $i i32) (local $j i32) (local $k i32) (local $n i32) (local $dot f64)
    (loop $fill
      (f64.store (i32.shl (local.get $i) (i32.const 3)) (f64.convert_i32_u (i32.rem_u (local.get $i) (i32.const 17))))
      (f64.store offset=294912 (i32.shl (local.get $i) (i32.const 3)) (f64.convert_i32_u (i32.rem_u (local.get $i) (i32.const 13))))
      (br_if $fill (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 36864))))
    (loop $again
      (local.set $i (i32.const 0))
      (loop $rows
        (local.set $j (i32.const 0))
        (loop $columns
          (local.set $k (i32.const 0))
          (local.set $dot (f64.const 0))
          (loop $terms
            (local.set $dot (f64.add (local.get $dot) (f64.mul
              (f64.load (i32.shl (i32.add (i32.mul (local.get $i) (i32.const 192)) (local.get $k)) (i32.const 3)))
              (f64.load offset=294912 (i32.shl (i32.add (i32.mul (local.get $k) (i32.const 192)) (local.get $j)) (i32.const 3))))))
            (br_if $terms (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.const 192))))
          (f64.store offset=589824 (i32.shl (i32.add (i32.mul (local.get $i) (i32.const 192)) (local.get $j)) (i32.const 3)) (local.get $dot))
          (br_if $columns (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 1))) (i32.const 192))))
        (br_if $rows (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 192))))
      (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 4))))))
