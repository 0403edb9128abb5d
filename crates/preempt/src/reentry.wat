;; A component whose host calls call it back: `cabi_realloc` runs while the host returns a list.
;;
;; `run(mode, seed)` asks the host for bytes eight times and folds them. The mode says what happens when the host calls
;; the guest: 0 works and makes room, 1 loops for ever, 2 traps, 3 overflows the stack, 4 overflows it when the call came
;; from so deep a recursion as the seed says; 5 loops for ever in the function that runs after the return, 6 in a
;; destructor; 7 throws what `run` catches outside of the call of the host.
(component
  (import "bytes" (func $bytes (param "length" u32) (result (list u8))))
  (core module $memory
    (memory (export "memory") 16)
    (tag $away (export "away") (param i64))
    (global $mode (export "mode") (mut i32) (i32.const 0))
    (global $next (export "next") (mut i32) (i32.const 65536))
    (global $folded (export "folded") (mut i64) (i64.const 0))
    (func $deeper (export "deeper") (param $n i64) (result i64)
      (i64.add (call $deeper (i64.add (local.get $n) (i64.const 1))) (local.get $n)))
    ;; Bulk operations, which are host calls of their own, and registers that must survive.
    (func $work (export "work") (param $seed i64) (result i64)
      (local $i i32) (local $x i64) (local $y i64) (local $z f64)
      (local.set $x (local.get $seed))
      (local.set $y (i64.const 1))
      (local.set $z (f64.const 0.5))
      (loop $again
        (local.set $x (i64.add (i64.mul (local.get $x) (i64.const 6364136223846793005)) (local.get $y)))
        (local.set $y (i64.rotl (i64.xor (local.get $y) (local.get $x)) (i64.const 7)))
        (local.set $z (f64.add (f64.mul (local.get $z) (f64.const 0.25)) (f64.const 3)))
        (if (i32.eqz (i32.and (local.get $i) (i32.const 255)))
          (then (memory.fill (i32.const 524288) (i32.and (local.get $i) (i32.const 127)) (i32.const 16384))))
        (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1024))))
      (i64.add
        (i64.xor (local.get $x) (local.get $y))
        (i64.add (i64.trunc_f64_s (local.get $z)) (i64.load8_u (i32.const 530000)))))
    (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
      (if (i32.eq (global.get $mode) (i32.const 1)) (then (loop $again (br $again))))
      (if (i32.eq (global.get $mode) (i32.const 2)) (then (unreachable)))
      (if (i32.eq (global.get $mode) (i32.const 7)) (then (throw $away (i64.const 11))))
      (if (i32.or (i32.eq (global.get $mode) (i32.const 3)) (i32.eq (global.get $mode) (i32.const 4)))
        (then (drop (call $deeper (i64.const 0)))))
      (global.set $folded (i64.add (global.get $folded) (call $work (i64.extend_i32_u (global.get $next)))))
      (global.get $next)
      (global.set $next (i32.add (global.get $next) (i32.const 1024))))
    (func (export "done") (param i64)
      (if (i32.eq (global.get $mode) (i32.const 5)) (then (loop $again (br $again)))))
    (func (export "destroy") (param i32)
      (if (i32.eq (global.get $mode) (i32.const 6)) (then (loop $again (br $again))))))
  (core instance $memory (instantiate $memory))
  (type $thing (resource (rep i32) (dtor (core func $memory "destroy"))))
  (core func $new (canon resource.new $thing))
  (core func $drop (canon resource.drop $thing))
  (core func $ask (canon lower (func $bytes)
    (memory (core memory $memory "memory")) (realloc (core func $memory "cabi_realloc"))))
  (core module $main
    (import "guest" "memory" (memory 16))
    (import "guest" "mode" (global $mode (mut i32)))
    (import "guest" "next" (global $next (mut i32)))
    (import "guest" "folded" (global $folded (mut i64)))
    (import "guest" "away" (tag $away (param i64)))
    (import "guest" "work" (func $work (param i64) (result i64)))
    (import "host" "bytes" (func $bytes (param i32 i32)))
    (import "host" "new" (func $new (param i32) (result i32)))
    (import "host" "drop" (func $drop (param i32)))
    ;; Calls the host from the depths of a recursion.
    (func $descend (param $n i32) (result i32)
      (if (i32.eqz (local.get $n)) (then (call $bytes (i32.const 8) (i32.const 16)) (return (i32.const 0))))
      (i32.add (call $descend (i32.sub (local.get $n) (i32.const 1))) (local.get $n)))
    (func (export "run") (param $mode i32) (param $seed i64) (result i64)
      (local $i i32) (local $k i32) (local $at i32) (local $sum i64)
      (global.set $mode (local.get $mode))
      (global.set $next (i32.const 65536))
      (global.set $folded (i64.const 0))
      (local.set $sum (call $work (local.get $seed)))
      (call $drop (call $new (i32.const 7)))
      (if (i32.eq (local.get $mode) (i32.const 4)) (then (drop (call $descend (i32.wrap_i64 (local.get $seed))))))
      (if (i32.eq (local.get $mode) (i32.const 7)) (then
        (block $caught (result i64)
          (try_table (catch $away $caught) (call $bytes (i32.const 64) (i32.const 16)))
          (unreachable))
        (return)))
      (loop $calls
        (call $bytes (i32.const 64) (i32.const 16))
        (local.set $at (i32.load (i32.const 16)))
        (local.set $k (i32.const 0))
        (loop $fold
          (local.set $sum (i64.add (i64.rotl (local.get $sum) (i64.const 5))
            (i64.load8_u (i32.add (local.get $at) (local.get $k)))))
          (br_if $fold (i32.lt_u (local.tee $k (i32.add (local.get $k) (i32.const 1))) (i32.load (i32.const 20)))))
        (br_if $calls (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 8))))
      (i64.add (local.get $sum) (global.get $folded))))
  (core instance $main (instantiate $main
    (with "guest" (instance $memory))
    (with "host" (instance
      (export "bytes" (func $ask)) (export "new" (func $new)) (export "drop" (func $drop))))))
  (func (export "run") (param "mode" s32) (param "seed" s64) (result s64)
    (canon lift (core func $main "run") (post-return (core func $memory "done")))))
