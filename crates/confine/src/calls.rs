//! The system calls of each kind of thread.
//!
//! The lists are short groups, named after what they are for. A kind is a union of groups. Where
//! an argument decides, the call has a [`Condition`].

use libc::c_long;

/// A kind of thread, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    /// Any thread before it has narrowed itself: all calls of start-up.
    Start,
    /// Loads and compiles programs, starts tenants, reports.
    Controller,
    /// Runs guests, and what the host does for them without waiting.
    Cell,
    /// Does for guests what may wait for a disk.
    Io,
    /// Speaks HTTP with clients, on sockets that were made before.
    Front,
    /// Answers operators, on a local socket that was made before.
    Control,
    /// Sends requests of guests to other hosts.
    Outgoing,
    /// Helps to compile.
    Compiler,
    /// Gives a cell's thread its own priority while that kills tenants.
    Donor,
    /// Makes a process for each job: the only thread of a process of its own.
    ForkServer,
    /// Does a job, in a process of its own.
    Job,
}

impl Thread {
    /// All kinds.
    pub const ALL: [Thread; 11] = [
        Thread::Start,
        Thread::Controller,
        Thread::Cell,
        Thread::Io,
        Thread::Front,
        Thread::Control,
        Thread::Outgoing,
        Thread::Compiler,
        Thread::Donor,
        Thread::ForkServer,
        Thread::Job,
    ];

    fn groups(self) -> &'static [&'static [Call]] {
        match self {
            Thread::Start => &[
                COMMON,
                MEMORY,
                CODE,
                PAGING,
                WAITING,
                FILES,
                DESCRIPTORS,
                THREADS,
                TIMERS,
                STREAMS,
                TCP,
                ACCEPTED,
                RESETS,
                PACKETS,
                PLACE,
                PRIVILEGES,
            ],
            Thread::Controller => &[
                COMMON,
                MEMORY,
                CODE,
                PAGING,
                WAITING,
                FILES,
                DESCRIPTORS,
                THREADS,
                PACKETS,
            ],
            Thread::Cell => &[
                COMMON,
                MEMORY,
                PAGING,
                WAITING,
                FILES,
                DESCRIPTORS,
                THREADS,
                TIMERS,
            ],
            Thread::Io => &[COMMON, MEMORY, PAGING, WAITING, FILES, DESCRIPTORS, THREADS],
            Thread::Front => &[COMMON, MEMORY, WAITING, STREAMS, TCP, ACCEPTED, RESETS],
            Thread::Outgoing => &[
                COMMON, MEMORY, WAITING, STREAMS, TCP, RESETS, OPTIONS, REQUESTS,
            ],
            Thread::Control => &[COMMON, MEMORY, WAITING, STREAMS, ACCEPTED, POLICY],
            Thread::Compiler => &[COMMON, MEMORY, THREADS, POLICY, URGENCY],
            Thread::Donor => &[COMMON, MEMORY],
            Thread::ForkServer => &[
                COMMON, MEMORY, THREADS, POLICY, URGENCY, PACKETS, RESULTS, PROCESSES, PRIVILEGES,
            ],
            Thread::Job => &[COMMON, MEMORY, THREADS, POLICY, PACKETS, RESULTS],
        }
    }

    /// The calls of this kind of thread in a process that has such a part in the network: those of the start are as many as one
    /// of its threads needs.
    pub(crate) fn calls(self, network: Network) -> impl Iterator<Item = &'static Call> + Clone {
        let more: &[&[Call]] = match (self, network.connects, network.listens) {
            (Thread::Start, true, _) => &[OPTIONS, REQUESTS],
            (Thread::Start, false, true) => &[OPTIONS],
            (Thread::Outgoing, _, true) => &[ACCEPTED, LISTENING],
            _ => &[],
        };
        self.groups()
            .iter()
            .chain(more)
            .flat_map(|group| group.iter())
    }
}

/// The part of a process in the network, beside its listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Network {
    /// A thread of it connects to other hosts.
    pub(crate) connects: bool,
    /// A thread of it listens for guests, on sockets that were bound before.
    pub(crate) listens: bool,
}

/// A system call, and when it is allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) number: c_long,
    pub(crate) condition: Condition,
}

/// The condition on a call's arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Condition {
    /// Nothing.
    Always,
    /// `argument & mask == value`, of the lower 32 bits.
    Masked { argument: u8, mask: u32, value: u32 },
    /// The argument is zero, all 64 bits.
    Zero { argument: u8 },
    /// The argument is the identity of this process.
    ThisProcess { argument: u8 },
    /// The first two arguments, a kind of thing and which of it, name the calling thread.
    ThisThread,
}

const fn always(number: c_long) -> Call {
    Call {
        number,
        condition: Condition::Always,
    }
}

const fn equal(number: c_long, argument: u8, value: u32) -> Call {
    masked(number, argument, u32::MAX, value)
}

const fn masked(number: c_long, argument: u8, mask: u32, value: u32) -> Call {
    Call {
        number,
        condition: Condition::Masked {
            argument,
            mask,
            value,
        },
    }
}

const fn this_process(number: c_long, argument: u8) -> Call {
    Call {
        number,
        condition: Condition::ThisProcess { argument },
    }
}

/// Asks for the auxiliary vector (Linux 6.4).
const PR_GET_AUXV: u32 = 0x4155_5856;

/// Calls of the language's run-time and the C library in any thread.
const COMMON: &[Call] = &[
    always(libc::SYS_read),
    always(libc::SYS_readv),
    always(libc::SYS_write),
    always(libc::SYS_writev),
    always(libc::SYS_close),
    always(libc::SYS_futex),
    always(libc::SYS_sched_yield),
    always(libc::SYS_clock_gettime),
    always(libc::SYS_clock_getres),
    // The time that a thread itself has run.
    equal(libc::SYS_getrusage, 0, libc::RUSAGE_THREAD as u32),
    always(libc::SYS_clock_nanosleep),
    always(libc::SYS_nanosleep),
    always(libc::SYS_gettimeofday),
    always(libc::SYS_restart_syscall),
    always(libc::SYS_getrandom),
    always(libc::SYS_gettid),
    always(libc::SYS_getpid),
    always(libc::SYS_getuid),
    always(libc::SYS_geteuid),
    always(libc::SYS_getcpu),
    always(libc::SYS_sched_getaffinity),
    always(libc::SYS_sysinfo),
    always(libc::SYS_uname),
    always(libc::SYS_rt_sigreturn),
    always(libc::SYS_rt_sigaction),
    always(libc::SYS_rt_sigprocmask),
    always(libc::SYS_sigaltstack),
    // Both interrupt a cell: now, and at the end of a region.
    this_process(libc::SYS_tgkill, 0),
    always(libc::SYS_timer_settime),
    always(libc::SYS_exit),
    always(libc::SYS_exit_group),
    // Reading a limit of its own; setting one is for the start.
    Call {
        number: libc::SYS_prlimit64,
        condition: Condition::Zero { argument: 2 },
    },
    equal(libc::SYS_prctl, 0, libc::PR_SET_NAME as u32),
    equal(libc::SYS_prctl, 0, libc::PR_GET_NAME as u32),
    equal(libc::SYS_prctl, 0, libc::PR_SET_VMA as u32),
    // The vector that the kernel started it with: where the vDSO is, the size of a page.
    equal(libc::SYS_prctl, 0, PR_GET_AUXV),
];

/// Memory that is not code.
const MEMORY: &[Call] = &[
    masked(libc::SYS_mmap, 2, libc::PROT_EXEC as u32, 0),
    masked(libc::SYS_mprotect, 2, libc::PROT_EXEC as u32, 0),
    always(libc::SYS_munmap),
    always(libc::SYS_mremap),
    always(libc::SYS_madvise),
    always(libc::SYS_mincore),
    always(libc::SYS_brk),
];

/// Memory that is code: what a compiler makes, locked if that is not limited.
const CODE: &[Call] = &[
    always(libc::SYS_capget),
    always(libc::SYS_mmap),
    always(libc::SYS_mprotect),
    always(libc::SYS_membarrier),
];

/// Frames of tenants: their files in memory, faults, locking.
const PAGING: &[Call] = &[
    always(libc::SYS_memfd_create),
    always(libc::SYS_ftruncate),
    always(libc::SYS_fallocate),
    always(libc::SYS_mlock),
    always(libc::SYS_mlock2),
    always(libc::SYS_munlock),
    // Requests of userfaultfd.
    masked(libc::SYS_ioctl, 1, 0xff00, 0xaa00),
];

/// Waiting for several things at once.
const WAITING: &[Call] = &[
    always(libc::SYS_ppoll),
    always(libc::SYS_epoll_create1),
    always(libc::SYS_epoll_ctl),
    always(libc::SYS_epoll_pwait),
    always(libc::SYS_eventfd2),
    always(libc::SYS_pipe2),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_poll),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_epoll_wait),
];

/// Reading a file by name. The C library asks for the host's policy of overcommitment when it gives
/// memory back, and does without the answer where Landlock refuses it.
const POLICY: &[Call] = &[masked(
    libc::SYS_openat,
    2,
    (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32,
    libc::O_RDONLY as u32,
)];

/// Files by name: Landlock says which.
const FILES: &[Call] = &[
    always(libc::SYS_openat),
    always(libc::SYS_openat2),
    always(libc::SYS_newfstatat),
    always(libc::SYS_statx),
    always(libc::SYS_statfs),
    always(libc::SYS_faccessat),
    always(libc::SYS_faccessat2),
    always(libc::SYS_readlinkat),
    always(libc::SYS_mkdirat),
    always(libc::SYS_unlinkat),
    always(libc::SYS_renameat),
    always(libc::SYS_renameat2),
    always(libc::SYS_linkat),
    always(libc::SYS_symlinkat),
    always(libc::SYS_utimensat),
    always(libc::SYS_getcwd),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_open),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_stat),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_lstat),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_access),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_readlink),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_rename),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_link),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_symlink),
];

/// Files by descriptor, and terminals.
const DESCRIPTORS: &[Call] = &[
    always(libc::SYS_fstat),
    always(libc::SYS_fstatfs),
    always(libc::SYS_lseek),
    always(libc::SYS_pread64),
    always(libc::SYS_pwrite64),
    always(libc::SYS_preadv),
    always(libc::SYS_pwritev),
    always(libc::SYS_preadv2),
    always(libc::SYS_pwritev2),
    always(libc::SYS_getdents64),
    always(libc::SYS_fsync),
    always(libc::SYS_fdatasync),
    always(libc::SYS_sync_file_range),
    always(libc::SYS_fadvise64),
    always(libc::SYS_copy_file_range),
    always(libc::SYS_fcntl),
    always(libc::SYS_flock),
    always(libc::SYS_dup),
    always(libc::SYS_dup3),
    always(libc::SYS_ftruncate),
    always(libc::SYS_fallocate),
    // Not TIOCSTI, which types into a terminal.
    equal(libc::SYS_ioctl, 1, libc::TCGETS as u32),
    equal(libc::SYS_ioctl, 1, libc::TIOCGWINSZ as u32),
    equal(libc::SYS_ioctl, 1, libc::FIONREAD as u32),
    equal(libc::SYS_ioctl, 1, libc::FIONBIO as u32),
    equal(libc::SYS_ioctl, 1, libc::FIOCLEX as u32),
];

/// Bytes of a connection, and its end.
const STREAMS: &[Call] = &[
    always(libc::SYS_recvfrom),
    always(libc::SYS_sendto),
    always(libc::SYS_shutdown),
    equal(libc::SYS_getsockopt, 1, libc::SOL_SOCKET as u32),
];

/// The addresses of a connection to another host, and that small segments are sent at once.
const TCP: &[Call] = &[
    always(libc::SYS_getsockname),
    always(libc::SYS_getpeername),
    equal(libc::SYS_setsockopt, 1, libc::IPPROTO_TCP as u32),
];

/// Connections that clients open: a thread that has them connects to none.
const ACCEPTED: &[Call] = &[always(libc::SYS_accept4)];

/// A connection that is given up is reset.
const RESETS: &[Call] = &[equal(libc::SYS_setsockopt, 2, libc::SO_LINGER as u32)];

/// Listening on a socket that was bound before.
const LISTENING: &[Call] = &[always(libc::SYS_listen)];

/// Connections to other hosts, look-ups of their names, and datagrams: a socket for them is bound. Of
/// TCP nothing can be bound where Landlock sees it.
const REQUESTS: &[Call] = &[
    equal(libc::SYS_socket, 0, libc::AF_INET as u32),
    equal(libc::SYS_socket, 0, libc::AF_INET6 as u32),
    always(libc::SYS_connect),
    always(libc::SYS_bind),
];

/// What a guest may want of a connection, and what datagrams and connections may take.
const OPTIONS: &[Call] = &[
    equal(libc::SYS_setsockopt, 2, libc::SO_RCVBUF as u32),
    equal(libc::SYS_setsockopt, 2, libc::SO_SNDBUF as u32),
    equal(libc::SYS_setsockopt, 2, libc::IPV6_V6ONLY as u32),
    equal(libc::SYS_setsockopt, 2, libc::SO_KEEPALIVE as u32),
    equal(libc::SYS_setsockopt, 2, libc::IP_TTL as u32),
    equal(libc::SYS_setsockopt, 2, libc::IPV6_UNICAST_HOPS as u32),
];

/// Bytes and open files between a process and those that do its jobs.
const PACKETS: &[Call] = &[always(libc::SYS_sendmsg), always(libc::SYS_recvmsg)];

/// A file in memory that is sealed.
const RESULTS: &[Call] = &[
    always(libc::SYS_memfd_create),
    always(libc::SYS_ftruncate),
    always(libc::SYS_fcntl),
    always(libc::SYS_lseek),
    always(libc::SYS_pread64),
    always(libc::SYS_pwrite64),
];

/// Flags of `clone` that make new namespaces.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Flags of `clone` that make a thread and not a process.
const THREAD: u32 = (libc::CLONE_THREAD | libc::CLONE_VM) as u32;

/// Threads, never processes. The filter cannot see the flags of `clone3`, which is reported as
/// missing ([`MISSING`]): the C library then uses `clone`.
const THREADS: &[Call] = &[
    masked(libc::SYS_clone, 0, THREAD | NAMESPACES, THREAD),
    always(libc::SYS_clone3),
    always(libc::SYS_set_robust_list),
    always(libc::SYS_rseq),
];

/// Processes that are copies of this one: the parent of a new one is this process, and it shares nothing with it.
const PROCESSES: &[Call] = &[
    masked(
        libc::SYS_clone,
        0,
        THREAD | NAMESPACES | (libc::CLONE_PARENT | libc::CLONE_FILES | libc::CLONE_FS) as u32,
        0,
    ),
    always(libc::SYS_wait4),
    always(libc::SYS_getppid),
    // The connection of a job, and its end.
    always(libc::SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_poll),
    equal(libc::SYS_socketpair, 0, libc::AF_UNIX as u32),
    always(libc::SYS_fstat),
    // A thread that is new asks once which nodes of memory there are.
    always(libc::SYS_faccessat),
    #[cfg(target_arch = "x86_64")]
    always(libc::SYS_access),
];

/// Its own urgency, which it can lower: no thread has the privilege to raise it.
const URGENCY: &[Call] = &[Call {
    number: libc::SYS_setpriority,
    condition: Condition::ThisThread,
}];

/// The one-shot timer of a cell.
const TIMERS: &[Call] = &[
    always(libc::SYS_timer_gettime),
    always(libc::SYS_timer_delete),
];

/// What a cell is started with: its timer, its place on a processor, faults that it answers itself.
const PLACE: &[Call] = &[
    always(libc::SYS_timer_create),
    // The claim on a core is the name of a local socket, which nothing connects to.
    equal(libc::SYS_socket, 0, libc::AF_UNIX as u32),
    always(libc::SYS_bind),
    always(libc::SYS_listen),
    always(libc::SYS_sched_setscheduler),
    always(libc::SYS_sched_getscheduler),
    always(libc::SYS_sched_setaffinity),
    always(libc::SYS_sched_setattr),
    always(libc::SYS_sched_getattr),
    always(libc::SYS_setpriority),
    always(libc::SYS_userfaultfd),
];

/// What a thread gives up its privileges with.
const PRIVILEGES: &[Call] = &[
    always(libc::SYS_prlimit64),
    always(libc::SYS_prctl),
    always(libc::SYS_capget),
    always(libc::SYS_capset),
    always(libc::SYS_seccomp),
    always(libc::SYS_landlock_create_ruleset),
    always(libc::SYS_landlock_add_rule),
    always(libc::SYS_landlock_restrict_self),
];

/// Calls that are reported as missing (`ENOSYS`), so that the C library uses an older one, whose
/// arguments a filter can see.
pub(crate) const MISSING: &[Call] = &[always(libc::SYS_clone3)];

/// Calls that end the process: neither Leasehold nor the engine nor the libraries make them in a
/// confined process, on any path that a guest could choose. Such a call proves an intruder.
pub const FATAL: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

#[cfg(test)]
mod tests {
    use super::{FATAL, Network, Thread};

    /// A process that does both.
    const BOTH: Network = Network {
        connects: true,
        listens: true,
    };

    const CONNECTS: Network = Network {
        connects: true,
        listens: false,
    };

    const LISTENS: Network = Network {
        connects: false,
        listens: true,
    };

    #[test]
    fn no_list_allows_what_ends_the_process() {
        for kind in Thread::ALL {
            let allowed = kind.calls(BOTH).find(|call| FATAL.contains(&call.number));
            assert!(allowed.is_none(), "{kind:?}: {allowed:?}");
        }
    }

    #[test]
    fn every_kind_is_a_part_of_the_start() {
        for network in [CONNECTS, BOTH] {
            let start: Vec<_> = Thread::Start
                .calls(network)
                .map(|call| call.number)
                .collect();
            let others = [Thread::ForkServer, Thread::Job];
            for kind in Thread::ALL.iter().filter(|kind| !others.contains(kind)) {
                let more = kind
                    .calls(network)
                    .find(|call| !start.contains(&call.number));
                assert!(more.is_none(), "{kind:?}: {more:?}");
            }
        }
    }

    #[test]
    fn a_job_and_the_threads_that_help_it_do_nothing_that_its_server_may_not() {
        let of = |kind: Thread| kind.calls(Network::default()).map(|call| call.number);
        let server: Vec<_> = of(Thread::ForkServer).collect();
        for kind in [Thread::Job, Thread::Compiler] {
            let more = of(kind).find(|number| !server.contains(number));
            assert_eq!(more, None, "{kind:?}");
        }
    }

    #[test]
    fn only_the_server_of_jobs_makes_processes_and_no_job_runs_code_that_it_made() {
        let makes = |kind: Thread| {
            let mut calls = kind.calls(BOTH);
            calls.any(|call| call.number == libc::SYS_wait4)
        };
        for kind in Thread::ALL {
            assert_eq!(makes(kind), kind == Thread::ForkServer, "{kind:?}");
        }
        let executable = [libc::SYS_mmap, libc::SYS_mprotect];
        for kind in [Thread::ForkServer, Thread::Job] {
            let mut calls = kind.calls(BOTH);
            let free = calls.find(|call| {
                executable.contains(&call.number)
                    && matches!(call.condition, super::Condition::Always)
            });
            assert!(free.is_none(), "{kind:?}: {free:?}");
        }
    }

    #[test]
    fn the_thread_that_operators_reach_changes_no_file_and_makes_no_socket_and_no_thread() {
        let forbidden = [
            libc::SYS_openat2,
            libc::SYS_unlinkat,
            libc::SYS_renameat2,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_listen,
            libc::SYS_clone,
            libc::SYS_memfd_create,
        ];
        let mut calls = Thread::Control.calls(BOTH);
        assert!(calls.all(|call| !forbidden.contains(&call.number)));
    }

    #[test]
    fn only_the_start_changes_limits_priorities_and_filters() {
        let privileged = [
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setaffinity,
            libc::SYS_capset,
            libc::SYS_seccomp,
            libc::SYS_userfaultfd,
        ];
        let beginnings = [Thread::Start, Thread::ForkServer];
        for kind in Thread::ALL.iter().filter(|kind| !beginnings.contains(kind)) {
            let found = kind
                .calls(BOTH)
                .find(|call| privileged.contains(&call.number));
            assert!(found.is_none(), "{kind:?}: {found:?}");
        }
    }

    #[test]
    fn only_the_thread_that_sends_requests_connects_and_it_makes_no_thread_and_opens_no_file() {
        let connects = |kind: Thread| {
            kind.calls(Network::default())
                .any(|call| call.number == libc::SYS_connect)
        };
        for kind in Thread::ALL {
            assert_eq!(connects(kind), kind == Thread::Outgoing, "{kind:?}");
        }
        let forbidden = [
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_listen,
            libc::SYS_accept4,
            libc::SYS_clone,
            libc::SYS_memfd_create,
        ];
        let mut calls = Thread::Outgoing.calls(CONNECTS);
        assert!(calls.all(|call| !forbidden.contains(&call.number)));
    }

    #[test]
    fn a_process_that_only_listens_for_its_guests_makes_no_socket_of_the_network_and_connects_to_none()
     {
        let opens = |network| {
            let numbers = [libc::SYS_connect, libc::SYS_listen, libc::SYS_accept4];
            let start: Vec<_> = Thread::Start.calls(network).collect();
            numbers.map(|number| {
                // What both the thread and the start have.
                let has = |call: &&super::Call| call.number == number;
                Thread::Outgoing.calls(network).any(|call| has(&call)) && start.iter().any(has)
            })
        };
        assert_eq!(opens(LISTENS), [false, true, true]);
        assert_eq!(opens(CONNECTS), [true, false, false]);
        assert_eq!(opens(BOTH), [true, true, true]);
    }
}
