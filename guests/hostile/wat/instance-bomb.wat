;; A command of 92 core instances, 90 with a table of their own: they are made in many steps and end
;; with the tenant in one. Prints `ready`, then spins.
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

  ;; Nine instances in each of ten components.
  (core module $unit (table 8 funcref))
  (component $nine
    (alias outer 1 $unit (core module $unit))
    (core instance (instantiate $unit)) (core instance (instantiate $unit)) (core instance (instantiate $unit))
    (core instance (instantiate $unit)) (core instance (instantiate $unit)) (core instance (instantiate $unit))
    (core instance (instantiate $unit)) (core instance (instantiate $unit)) (core instance (instantiate $unit)))
  (component $ninety
    (alias outer 1 $nine (component $below))
    (instance (instantiate $below)) (instance (instantiate $below))
    (instance (instantiate $below)) (instance (instantiate $below))
    (instance (instantiate $below)) (instance (instantiate $below))
    (instance (instantiate $below)) (instance (instantiate $below))
    (instance (instantiate $below)) (instance (instantiate $below)))
  (instance (instantiate $ninety))

  (core module $memory
    (memory (export "memory") 1)
    (data (i32.const 0) "ready\n"))
  (core instance $memory (instantiate $memory))
  (core func $get_stdout (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush")
    (memory (core memory $memory "memory"))))
  (core module $main
    (import "wasi" "get-stdout" (func $get_stdout (result i32)))
    (import "wasi" "write" (func $write (param i32 i32 i32 i32)))
    (func (export "run") (result i32)
      (call $write (call $get_stdout) (i32.const 0) (i32.const 6) (i32.const 16))
      (loop $spin (br $spin))
      unreachable))
  (core instance $main (instantiate $main (with "wasi" (instance
    (export "get-stdout" (func $get_stdout))
    (export "write" (func $write))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $run_interface (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $run_interface)))
