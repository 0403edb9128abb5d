;; Calls a function of a request that returns a string, and answers nothing.
(module
  (import "wasi:http/types@0.2.12" "[method]incoming-request.FUNCTION" (func $call (param i32 i32)))
  (memory (export "memory") 18)
  (global $late (mut i32) (i32.const 0))
  (global $taken (mut i32) (i32.const 0))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) REALLOC)
  (func (export "wasi:http/incoming-handler@0.2.12#handle") (param $request i32) (param $outparam i32)
    (global.set $late (i32.const 1))
    (loop $again (call $call (local.get $request) (i32.const 0)) AGAIN)))
