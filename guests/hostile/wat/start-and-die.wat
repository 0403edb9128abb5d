;; Traps at once: a host that starts it again and again pays only for starts and ends.
(module
  (memory (export "memory") 1)
  (func (export "_start") unreachable))
