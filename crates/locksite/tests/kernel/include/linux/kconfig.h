/* Read before every file, as a kernel's build does. */
#define __percpu
#define __must_hold(x)
