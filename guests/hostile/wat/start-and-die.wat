;; Traps at once: a host that starts it again and again pays for starts and ends alone.
(module
  (memory (export "memory") 1)
  (func (export "_start") unreachable))
