//! The functions that take and release locks (LockScope table 3), and how the kernel's contention
//! tracepoint names what it waits for.

use crate::trace::{Access, Class, Primitive};

/// A function that takes a lock whose address is its first argument.
pub(crate) struct LockFunction {
    pub(crate) name: &'static str,
    class: Class,
    access: Access,
    tries: bool,
}

const fn takes(name: &'static str, class: Class, access: Access) -> LockFunction {
    LockFunction {
        name,
        class,
        access,
        tries: false,
    }
}

const fn tries(name: &'static str, class: Class, access: Access) -> LockFunction {
    LockFunction {
        name,
        class,
        access,
        tries: true,
    }
}

impl LockFunction {
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn tries(&self) -> bool {
        self.tries
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn primitive(&self) -> Primitive {
        Primitive {
            name: self.name.into(),
            class: self.class,
            access: self.access,
            tries: self.tries,
        }
    }
}

use Access::{Exclusive, Shared};
use Class::{Mutex, RtMutex, Rw, Rwsem, Spin};

/// Table 3, with the variants that kernels without lock debugging have and the table leaves out
/// (`…_killable`, `ww_mutex_lock`). The `…_nested` ones exist only with lock debugging. A kernel
/// has some of them; none calls another one.
pub(crate) const LOCK_FUNCTIONS: &[LockFunction] = &[
    takes("_raw_spin_lock", Spin, Exclusive),
    takes("_raw_spin_lock_irqsave", Spin, Exclusive),
    takes("_raw_spin_lock_irq", Spin, Exclusive),
    takes("_raw_spin_lock_bh", Spin, Exclusive),
    takes("_raw_spin_lock_nested", Spin, Exclusive),
    takes("_raw_spin_lock_irqsave_nested", Spin, Exclusive),
    takes("_raw_spin_lock_nest_lock", Spin, Exclusive),
    tries("_raw_spin_trylock", Spin, Exclusive),
    tries("_raw_spin_trylock_bh", Spin, Exclusive),
    takes("_raw_read_lock", Rw, Shared),
    takes("_raw_read_lock_bh", Rw, Shared),
    takes("_raw_read_lock_irq", Rw, Shared),
    takes("_raw_read_lock_irqsave", Rw, Shared),
    tries("_raw_read_trylock", Rw, Shared),
    takes("_raw_write_lock", Rw, Exclusive),
    takes("_raw_write_lock_bh", Rw, Exclusive),
    takes("_raw_write_lock_irq", Rw, Exclusive),
    takes("_raw_write_lock_irqsave", Rw, Exclusive),
    takes("_raw_write_lock_nested", Rw, Exclusive),
    tries("_raw_write_trylock", Rw, Exclusive),
    takes("mutex_lock", Mutex, Exclusive),
    takes("mutex_lock_nested", Mutex, Exclusive),
    takes("mutex_lock_interruptible", Mutex, Exclusive),
    takes("mutex_lock_interruptible_nested", Mutex, Exclusive),
    takes("mutex_lock_killable", Mutex, Exclusive),
    takes("mutex_lock_killable_nested", Mutex, Exclusive),
    takes("mutex_lock_io", Mutex, Exclusive),
    takes("mutex_lock_io_nested", Mutex, Exclusive),
    takes("ww_mutex_lock", Mutex, Exclusive),
    takes("ww_mutex_lock_interruptible", Mutex, Exclusive),
    tries("mutex_trylock", Mutex, Exclusive),
    takes("rt_mutex_lock", RtMutex, Exclusive),
    takes("rt_mutex_lock_nested", RtMutex, Exclusive),
    takes("rt_mutex_lock_interruptible", RtMutex, Exclusive),
    takes("rt_mutex_lock_killable", RtMutex, Exclusive),
    tries("rt_mutex_trylock", RtMutex, Exclusive),
    takes("down_read", Rwsem, Shared),
    takes("down_read_nested", Rwsem, Shared),
    takes("down_read_interruptible", Rwsem, Shared),
    takes("down_read_killable", Rwsem, Shared),
    takes("down_read_killable_nested", Rwsem, Shared),
    tries("down_read_trylock", Rwsem, Shared),
    takes("down_write", Rwsem, Exclusive),
    takes("down_write_nested", Rwsem, Exclusive),
    takes("down_write_killable", Rwsem, Exclusive),
    takes("down_write_killable_nested", Rwsem, Exclusive),
    tries("down_write_trylock", Rwsem, Exclusive),
];

/// The functions that release them.
pub(crate) const UNLOCK_FUNCTIONS: &[(&str, Class)] = &[
    ("_raw_spin_unlock", Spin),
    ("_raw_spin_unlock_irqrestore", Spin),
    ("_raw_spin_unlock_irq", Spin),
    ("_raw_spin_unlock_bh", Spin),
    ("_raw_read_unlock", Rw),
    ("_raw_read_unlock_bh", Rw),
    ("_raw_read_unlock_irq", Rw),
    ("_raw_read_unlock_irqrestore", Rw),
    ("_raw_write_unlock", Rw),
    ("_raw_write_unlock_bh", Rw),
    ("_raw_write_unlock_irq", Rw),
    ("_raw_write_unlock_irqrestore", Rw),
    ("mutex_unlock", Mutex),
    ("rt_mutex_unlock", RtMutex),
    ("up_read", Rwsem),
    ("up_write", Rwsem),
];

/// The functions that initialise them, where that is a function. Of spin locks it is one only with
/// `CONFIG_DEBUG_SPINLOCK`.
pub(crate) const INIT_FUNCTIONS: &[(&str, Class)] = &[
    ("__mutex_init", Mutex),
    ("mutex_init_generic", Mutex),
    ("__init_rwsem", Rwsem),
    ("__rt_mutex_init", RtMutex),
    ("__raw_spin_lock_init", Spin),
    ("__rwlock_init", Rw),
];

/// Bits of the contention tracepoint's flags, `LCB_F_…` in the kernel's `trace/events/lock.h`.
const READ: u16 = 1 << 1;
const WRITE: u16 = 1 << 2;
const RT: u16 = 1 << 3;
const PERCPU: u16 = 1 << 4;
const MUTEX: u16 = 1 << 5;
const SPIN: u16 = 1 << 0;

/// What the numbers of the contended mode mean: 64 combinations of flags, then `mmap_lock` for
/// reading and for writing.
pub(crate) fn contended_primitives() -> Vec<Primitive> {
    let mut all: Vec<_> = (0..64).map(of_flags).collect();
    for (name, access) in [("mmap_lock, read", Shared), ("mmap_lock, write", Exclusive)] {
        all.push(Primitive {
            name: name.into(),
            class: Rwsem,
            access,
            tries: false,
        });
    }
    all
}

/// Number of `mmap_lock` for reading among [`contended_primitives`].
pub(crate) const MMAP_LOCK: u16 = 64;

fn of_flags(flags: u16) -> Primitive {
    let has = |bit| flags & bit != 0;
    let (kind, class) = match () {
        () if has(MUTEX) => ("mutex", Mutex),
        () if has(RT) => ("rt-mutex", RtMutex),
        () if has(PERCPU) => ("percpu-rwsem", Class::PercpuRwsem),
        () if has(SPIN) && has(READ | WRITE) => ("rwlock", Rw),
        () if has(READ | WRITE) => ("rwsem", Rwsem),
        () => ("spinlock", Spin),
    };
    let (suffix, access) = match () {
        () if has(READ) => (", read", Shared),
        () if has(WRITE) => (", write", Exclusive),
        () => ("", Exclusive),
    };
    Primitive {
        name: format!("{kind}{suffix}"),
        class,
        access,
        tries: false,
    }
}

/// Whether a function of this name is the inside of a lock, or of the tracer: a frame that does not
/// identify the taker of the lock.
pub(crate) fn is_lock_text(name: &str) -> bool {
    const EXACT: [&str; 4] = [
        "down",
        "bpf_get_stackid",
        "kprobe_multi_link_prog_run",
        "fprobe_handler",
    ];
    const PREFIXES: [&str; 29] = [
        "_raw_spin_",
        "_raw_read_",
        "_raw_write_",
        "queued_spin_lock_slowpath",
        "native_queued_spin_lock_slowpath",
        "__pv_queued_spin_lock_slowpath",
        "__raw_callee_save___pv_queued_spin",
        "queued_read_lock_slowpath",
        "queued_write_lock_slowpath",
        "mutex_lock",
        "mutex_trylock",
        "__mutex_lock",
        "ww_mutex_lock",
        "__ww_mutex_lock",
        "rt_mutex_",
        "__rt_mutex_",
        "down_read",
        "down_write",
        "__down_read",
        "__down_write",
        "rwsem_down_",
        "rwsem_optimistic_spin",
        "percpu_down_",
        "__percpu_down_",
        "percpu_rwsem_",
        "__percpu_rwsem_",
        "bpf_trace_run",
        "bpf_trampoline_",
        "ftrace_",
    ];
    const TRACEPOINTS: [&str; 3] = ["__bpf_trace_", "__traceiter_", "trace_event_raw_event_"];
    let starts = |prefix: &&str| name.starts_with(prefix);
    EXACT.contains(&name)
        || PREFIXES.iter().any(starts)
        || TRACEPOINTS.iter().any(starts)
        || is_compiled_program(name)
}

/// Whether a function of this name in a call chain says that what it calls is done in an interrupt,
/// not on behalf of the task that happens to run (LockScope §5.2).
pub(crate) fn is_interrupt_text(name: &str) -> bool {
    const EXACT: [&str; 9] = [
        "__softirqentry_text_start",
        "__do_softirq",
        "handle_softirqs",
        "irq_exit_rcu",
        "__irq_exit_rcu",
        "hrtimer_interrupt",
        "handle_irq_event",
        "exc_nmi",
        "do_softirq",
    ];
    // `asm_sysvec_apic_timer_interrupt`, `sysvec_reschedule_ipi`, …
    const PREFIXES: [&str; 4] = [
        "asm_sysvec_",
        "sysvec_",
        "asm_common_interrupt",
        "common_interrupt",
    ];
    EXACT.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// `bpf_prog_<tag of 16 digits>_<name>`: what the kernel calls a BPF program.
fn is_compiled_program(name: &str) -> bool {
    name.strip_prefix("bpf_prog_")
        .and_then(|rest| rest.get(..16))
        .is_some_and(|tag| tag.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_is_listed_twice() {
        let mut names: Vec<_> = LOCK_FUNCTIONS
            .iter()
            .map(|function| function.name)
            .collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn every_lock_function_is_lock_text_and_its_callers_are_not() {
        for function in LOCK_FUNCTIONS {
            assert!(is_lock_text(function.name), "{}", function.name);
        }
        assert!(is_lock_text("bpf_prog_6deef7357e7b4530_wait_began"));
        for caller in [
            "bpf_prog_put",
            "pipe_write",
            "do_epoll_wait",
            "ext4_map_blocks",
        ] {
            assert!(!is_lock_text(caller), "{caller}");
        }
    }

    #[test]
    fn flags_of_the_contention_tracepoint_name_the_kind_of_lock() {
        let all = contended_primitives();
        let named = |flags: u16| all[usize::from(flags)].name.as_str();
        assert_eq!(named(0), "spinlock");
        assert_eq!(named(SPIN), "spinlock");
        assert_eq!(named(SPIN | READ), "rwlock, read");
        assert_eq!(named(WRITE), "rwsem, write");
        assert_eq!(named(MUTEX | SPIN), "mutex");
        assert_eq!(named(PERCPU | READ), "percpu-rwsem, read");
        assert_eq!(named(MMAP_LOCK), "mmap_lock, read");
        assert_eq!(all[usize::from(MMAP_LOCK) + 1].access, Exclusive);
    }
}
