;; Never finishes its start: the loop is in the start section, before there is an instance to call.
(module
  (memory (export "memory") 1)
  (func $loop (loop $again (br $again)))
  (func (export "_start"))
  (start $loop))
