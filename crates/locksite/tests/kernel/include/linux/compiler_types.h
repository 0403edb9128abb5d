#define __always_inline inline __attribute__((always_inline))
#define noinline __attribute__((noinline))
