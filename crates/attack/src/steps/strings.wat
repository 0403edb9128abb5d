;; Times strings that one component passes to another, at the most that one may have, by the clock that it may
;; read; writes pairs of an index and of nanoseconds. Two readings of the clock are in each.
(component
  (import "wasi:io/error@0.2.0" (instance $error
    (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error_type))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $error_type (type $outer_error))
    (export "error" (type $error (eq $outer_error)))
    (type $stream_error (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $named_stream_error (eq $stream_error)))
    (export "output-stream" (type $output_stream (sub resource)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $output_stream)) (param "contents" (list u8))
        (result (result (error $named_stream_error)))))))
  (alias export $streams "output-stream" (type $output_stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output_stream (type $outer_output_stream))
    (export "output-stream" (type $output_stream (eq $outer_output_stream)))
    (export "get-stdout" (func (result (own $output_stream))))))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (export "now" (func (result u64)))))

  (component $receiver
    (core module $m
      (memory (export "memory") 4)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536))
      (func (export "take") (param i32 i32)))
    (core instance $i (instantiate $m))
    (func (export "take") (param "it" string)
      (canon lift (core func $i "take") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))
        string-encoding=RECEIVED)))
  (component $sender
    (import "wasi:io/error@0.2.0" (instance $error
      (export "error" (type (sub resource)))))
    (alias export $error "error" (type $error_type))
    (import "wasi:io/streams@0.2.0" (instance $streams
      (alias outer 1 $error_type (type $outer_error))
      (export "error" (type $error (eq $outer_error)))
      (type $stream_error (variant (case "last-operation-failed" (own $error)) (case "closed")))
      (export "stream-error" (type $named_stream_error (eq $stream_error)))
      (export "output-stream" (type $output_stream (sub resource)))
      (export "[method]output-stream.blocking-write-and-flush"
        (func (param "self" (borrow $output_stream)) (param "contents" (list u8))
          (result (result (error $named_stream_error)))))))
    (alias export $streams "output-stream" (type $output_stream))
    (import "wasi:cli/stdout@0.2.0" (instance $stdout
      (alias outer 1 $output_stream (type $outer_output_stream))
      (export "output-stream" (type $output_stream (eq $outer_output_stream)))
      (export "get-stdout" (func (result (own $output_stream))))))
    (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
      (export "now" (func (result u64)))))
    (import "take" (func $take (param "it" string)))
    (core module $memory (memory (export "memory") 4))
    (core instance $memory (instantiate $memory))
    (core func $get_stdout (canon lower (func $stdout "get-stdout")))
    (core func $now (canon lower (func $clock "now")))
    (core func $write (canon lower
      (func $streams "[method]output-stream.blocking-write-and-flush")
      (memory (core memory $memory "memory"))))
    (core func $take (canon lower (func $take)
      (memory (core memory $memory "memory")) string-encoding=SENT))
    (core module $main
      (import "host" "memory" (memory 4))
      (import "host" "get-stdout" (func $get_stdout (result i32)))
      (import "host" "write" (func $write (param i32 i32 i32 i32)))
      (import "host" "now" (func $now (result i64)))
      (import "host" "take" (func $take (param i32 i32)))
      (func (export "run") (result i32) (local $at i32) (local $began i64)
        (loop $fill
          (i32.store offset=65536 (local.get $at) (i32.const CHARACTERS))
          (br_if $fill (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 4))) (i32.const 65536))))
        (i32.store offset=65536 (i32.const END) (i32.const LAST))
        (local.set $at (i32.const 0))
        (loop $again
          (local.set $began (call $now))
          (call $take (i32.const 65536) (i32.const UNITS))
          (i32.store (local.get $at) (i32.const 4))
          (i32.store offset=4 (local.get $at) (i32.wrap_i64 (i64.sub (call $now) (local.get $began))))
          (br_if $again (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 8))) (i32.const 480))))
        (call $write (call $get_stdout) (i32.const 0) (i32.const 480) (i32.const 1024))
        (i32.const 0)))
    (core instance $main (instantiate $main (with "host" (instance
      (export "memory" (memory $memory "memory"))
      (export "get-stdout" (func $get_stdout))
      (export "write" (func $write))
      (export "now" (func $now))
      (export "take" (func $take))))))
    (func (export "run") (result (result)) (canon lift (core func $main "run"))))

  (instance $receiver (instantiate $receiver))
  (instance $sender (instantiate $sender
    (with "wasi:io/error@0.2.0" (instance $error))
    (with "wasi:io/streams@0.2.0" (instance $streams))
    (with "wasi:cli/stdout@0.2.0" (instance $stdout))
    (with "wasi:clocks/monotonic-clock@0.2.0" (instance $clock))
    (with "take" (func $receiver "take"))))
  (instance $run_interface (export "run" (func $sender "run")))
  (export "wasi:cli/run@0.2.0" (instance $run_interface)))
