//! The permitted and denied calls of a confined process. Each case is a process of its own: this
//! program, started again with the name of the case.

use leasehold_confine::{Locking, Mode, Place, Places, Thread, enter, narrow};
use std::ffi::CString;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs, io};

/// Names the case in a child.
const CASE: &str = "LEASEHOLD_CONFINED_CASE";

/// The directory that a child works in: `write` and `read` are places of a tenant, `code` of the
/// controller, `outside` of none.
const DIRECTORY: &str = "LEASEHOLD_CONFINED_DIRECTORY";

/// `enforce` or `trap`.
const MODE: &str = "LEASEHOLD_CONFINED_MODE";

/// The port of other hosts that a child may connect to. Nothing listens there.
const PORT: u16 = 9;

/// What a case does in the child, after confinement: `Ok` if it could.
type Deed = fn(&Path) -> io::Result<()>;

/// What is to become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Allowed,
    /// Refused with this error.
    Refused(i32),
    /// The process ends at once.
    Fatal,
}

const ALLOWED: Fate = Fate::Allowed;
const PERM: Fate = Fate::Refused(libc::EPERM);
const ACCESS: Fate = Fate::Refused(libc::EACCES);

struct Case {
    name: &'static str,
    kind: Thread,
    fate: Fate,
    deed: Deed,
    /// The ports that it may connect to.
    ports: &'static [u16],
    /// Whether it listens for guests.
    listens: bool,
}

impl Case {
    /// The same in a process that listens for guests, and connects to these ports.
    const fn listening(self, ports: &'static [u16]) -> Self {
        Self {
            ports,
            listens: true,
            ..self
        }
    }
}

const fn case(name: &'static str, kind: Thread, fate: Fate, deed: Deed) -> Case {
    Case {
        name,
        kind,
        fate,
        deed,
        ports: &[PORT],
        listens: false,
    }
}

const CASES: &[Case] = &[
    case(
        "writes_below_a_place_to_write",
        Thread::Cell,
        ALLOWED,
        |at| {
            fs::create_dir(at.join("write/new"))?;
            fs::write(at.join("write/new/file"), "x")?;
            fs::rename(at.join("write/new/file"), at.join("write/moved"))?;
            std::os::unix::fs::symlink("moved", at.join("write/link"))?;
            fs::hard_link(at.join("write/moved"), at.join("write/hard"))?;
            fs::read(at.join("write/link"))?;
            fs::remove_file(at.join("write/moved"))
        },
    ),
    case("reads_below_a_place_to_read", Thread::Io, ALLOWED, |at| {
        fs::read_dir(at.join("read"))?.count();
        fs::read(at.join("read/file")).map(drop)
    }),
    case(
        "does_not_write_below_a_place_to_read",
        Thread::Cell,
        ACCESS,
        |at| fs::write(at.join("read/file"), "x"),
    ),
    case(
        "makes_nothing_below_a_place_to_read",
        Thread::Cell,
        ACCESS,
        |at| fs::create_dir(at.join("read/new")),
    ),
    case("does_not_read_outside", Thread::Cell, ACCESS, |at| {
        fs::read(at.join("outside/file")).map(drop)
    }),
    case(
        "does_not_reach_outside_by_a_link",
        Thread::Cell,
        ACCESS,
        |at| {
            std::os::unix::fs::symlink("../outside/file", at.join("write/link"))?;
            fs::read(at.join("write/link")).map(drop)
        },
    ),
    case(
        "does_not_read_the_password_file",
        Thread::Controller,
        ACCESS,
        |_| fs::read("/etc/passwd").map(drop),
    ),
    case(
        "does_not_read_the_kernels_view_of_it",
        Thread::Cell,
        ACCESS,
        |_| fs::read("/proc/self/maps").map(drop),
    ),
    case("makes_no_named_pipe", Thread::Cell, PERM, |at| {
        let path = std::ffi::CString::new(at.join("write/pipe").to_str().unwrap_or_default())?;
        // SAFETY: the path is a string of C.
        done(unsafe { libc::mkfifo(path.as_ptr(), 0o600) })
    }),
    case("renames_a_named_pipe", Thread::Cell, ALLOWED, |at| {
        fs::rename(at.join("write/fifo"), at.join("write/renamed"))
    }),
    case(
        "the_cell_does_not_reach_the_cache",
        Thread::Cell,
        ACCESS,
        |at| fs::read(at.join("code/file")).map(drop),
    ),
    case(
        "the_controller_reaches_the_cache",
        Thread::Controller,
        ALLOWED,
        |at| fs::read(at.join("code/file")).map(drop),
    ),
    case(
        "a_compiler_reaches_no_file",
        Thread::Compiler,
        ACCESS,
        |at| fs::read(at.join("read/file")).map(drop),
    ),
    case(
        "the_donor_of_a_priority_gives_none_and_takes_none",
        Thread::Donor,
        PERM,
        |_| {
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: the parameters are read during the call only.
            done(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) })
        },
    ),
    case("executes_nothing", Thread::Controller, Fate::Fatal, |_| {
        let path = c"/bin/true".as_ptr();
        // SAFETY: the strings are of C, and the lists end with null.
        done(unsafe {
            libc::execve(
                path,
                [path, std::ptr::null()].as_ptr(),
                [std::ptr::null()].as_ptr(),
            )
        })
    }),
    case("traces_nothing", Thread::Cell, Fate::Fatal, |_| {
        // SAFETY: the request takes no memory.
        done(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } as i32)
    }),
    case("loads_no_bpf", Thread::Cell, Fate::Fatal, |_| {
        // SAFETY: the call is refused before it looks at memory.
        done(unsafe { libc::syscall(libc::SYS_bpf, 0, 0, 0) } as i32)
    }),
    case("mounts_nothing", Thread::Controller, Fate::Fatal, |_| {
        // SAFETY: the call is refused before it looks at memory.
        done(unsafe { libc::syscall(libc::SYS_mount, 0, 0, 0, 0, 0) } as i32)
    }),
    case(
        "makes_no_namespace",
        Thread::Controller,
        Fate::Fatal,
        |_| {
            // SAFETY: no memory is involved.
            done(unsafe { libc::unshare(libc::CLONE_NEWUSER) })
        },
    ),
    case("becomes_no_other_user", Thread::Cell, Fate::Fatal, |_| {
        // SAFETY: no memory is involved.
        done(unsafe { libc::setuid(1) })
    }),
    case("opens_no_socket", Thread::Cell, PERM, |_| {
        std::net::TcpListener::bind("127.0.0.1:0").map(drop)
    }),
    case("connects_to_no_host", Thread::Cell, PERM, |_| connect(PORT)),
    case("accepts_and_connects_to_none", Thread::Front, PERM, |_| {
        connect(PORT)
    }),
    case(
        "the_thread_of_requests_connects",
        Thread::Outgoing,
        Fate::Refused(libc::ECONNREFUSED),
        |_| connect(PORT),
    ),
    case(
        "the_thread_of_requests_connects_to_no_other_port",
        Thread::Outgoing,
        ACCESS,
        |_| connect(PORT + 1),
    ),
    case(
        "the_thread_of_requests_binds_nothing_of_tcp",
        Thread::Outgoing,
        ACCESS,
        |_| std::net::TcpListener::bind("127.0.0.1:0").map(drop),
    ),
    case(
        "the_thread_of_requests_binds_a_socket_for_datagrams",
        Thread::Outgoing,
        ALLOWED,
        // In a build with debug assertions its close would ask whether it is open.
        |_| std::net::UdpSocket::bind("127.0.0.1:0").map(std::mem::forget),
    ),
    case(
        "the_thread_of_requests_listens_nowhere",
        Thread::Outgoing,
        PERM,
        |_| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
            // SAFETY: no memory is involved.
            done(unsafe { libc::listen(socket.as_raw_fd(), 1) })
        },
    ),
    case(
        "a_thread_that_listens_for_guests_listens_on_what_was_bound_before",
        Thread::Outgoing,
        ALLOWED,
        |_| {
            let socket = BOUND.get().ok_or(io::ErrorKind::NotFound)?;
            // SAFETY: no memory is involved.
            done(unsafe { libc::listen(socket.as_raw_fd(), 1) })?;
            let nowhere = std::ptr::null_mut();
            // SAFETY: no address is asked for.
            let accepted = unsafe { libc::accept4(socket.as_raw_fd(), nowhere, nowhere.cast(), 0) };
            match done(accepted) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                other => other,
            }
        },
    )
    .listening(&[]),
    case(
        "a_process_that_only_listens_for_guests_connects_to_no_host",
        Thread::Outgoing,
        PERM,
        |_| connect(PORT),
    )
    .listening(&[]),
    case(
        "a_thread_that_listens_for_guests_binds_nothing_of_tcp",
        Thread::Outgoing,
        ACCESS,
        |_| std::net::TcpListener::bind("127.0.0.1:0").map(drop),
    )
    .listening(&[PORT]),
    case(
        "the_thread_of_requests_opens_no_file",
        Thread::Outgoing,
        PERM,
        |at| fs::read(at.join("read/file")).map(drop),
    ),
    case("makes_no_process", Thread::Controller, PERM, |_| {
        // SAFETY: a child, if there were one, ends at once.
        match unsafe { libc::fork() } {
            0 => std::process::exit(0),
            result => done(result),
        }
    }),
    case("starts_threads", Thread::Controller, ALLOWED, |_| {
        std::thread::Builder::new()
            .spawn(|| ())?
            .join()
            .map_err(|_| io::ErrorKind::Other.into())
    }),
    case(
        "a_thread_that_it_starts_is_confined",
        Thread::Cell,
        ACCESS,
        |_| {
            let thread = std::thread::Builder::new().spawn(|| fs::read("/etc/passwd").map(drop))?;
            thread.join().map_err(|_| io::ErrorKind::Other)?
        },
    ),
    case("signals_no_other_process", Thread::Cell, PERM, |_| {
        // SAFETY: no memory is involved.
        let parent = unsafe { libc::getppid() };
        // SAFETY: no memory is involved.
        done(unsafe { libc::syscall(libc::SYS_tgkill, parent, parent, 0) } as i32)
    }),
    case("a_cell_makes_no_code", Thread::Cell, PERM, |_| {
        map(libc::PROT_READ | libc::PROT_EXEC)
    }),
    case("a_cell_makes_memory", Thread::Cell, ALLOWED, |_| {
        map(libc::PROT_READ | libc::PROT_WRITE)
    }),
    case(
        "the_controller_makes_code",
        Thread::Controller,
        ALLOWED,
        |_| map(libc::PROT_READ | libc::PROT_EXEC),
    ),
    case("raises_no_limit", Thread::Cell, PERM, |_| {
        let limit = libc::rlimit {
            rlim_cur: 1,
            rlim_max: 1,
        };
        // SAFETY: the limit is read during the call only.
        done(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) })
    }),
    case("takes_no_real_time_priority", Thread::Cell, PERM, |_| {
        let parameters = libc::sched_param { sched_priority: 1 };
        // SAFETY: the parameters are read during the call only.
        done(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) })
    }),
    case("types_into_no_terminal", Thread::Controller, PERM, |_| {
        // SAFETY: the call is refused before it looks at memory.
        done(unsafe { libc::ioctl(0, libc::TIOCSTI, std::ptr::null::<u8>()) })
    }),
    case("lifts_no_filter", Thread::Cell, PERM, |_| {
        // SAFETY: the call is refused before it looks at memory.
        done(unsafe { libc::syscall(libc::SYS_seccomp, 0, 0, 0) } as i32)
    }),
    case("is_what_proc_says", Thread::Start, ALLOWED, |_| {
        narrow_and_look().map_err(io::Error::other)
    }),
];

fn done(result: i32) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket that is bound before confinement, and listens no more.
static BOUND: OnceLock<std::net::TcpListener> = OnceLock::new();

fn bound() -> io::Result<std::net::TcpListener> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let socket = std::net::TcpListener::bind(free)?;
    socket.set_nonblocking(true)?;
    // SAFETY: no memory is involved.
    done(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) })?;
    Ok(socket)
}

fn connect(port: u16) -> io::Result<()> {
    std::net::TcpStream::connect(("127.0.0.1", port)).map(drop)
}

fn map(protection: i32) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which nothing uses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    match at {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Of the calling thread: what the kernel says before it is narrowed and after.
fn narrow_and_look() -> Result<(), String> {
    let status = fs::File::open("/proc/thread-self/status").map_err(|error| error.to_string())?;
    let limits = fs::read_to_string("/proc/self/limits").map_err(|error| error.to_string())?;
    // SAFETY: no memory is involved.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
    narrow(Thread::Cell).map_err(|error| error.to_string())?;
    let text = io::read_to_string(status).map_err(|error| error.to_string())?;
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().trim_start_matches(':').trim()
    };
    // SAFETY: no memory is involved.
    let root = unsafe { libc::geteuid() } == 0;
    let none = "0000000000000000";
    let mut expected = vec![
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("Seccomp_filters", "4"),
        ("CapInh", none),
        ("CapPrm", none),
        ("CapEff", none),
        ("CapAmb", none),
    ];
    if root {
        expected.push(("CapBnd", none));
    }
    for (key, expected) in expected {
        if value(key) != expected {
            return Err(format!("{key}: {:?}, expected {expected}", value(key)));
        }
    }
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let zero =
        core.is_some_and(|line| line.split_whitespace().filter(|word| *word == "0").count() == 2);
    match (zero, dumpable) {
        (true, 0) => Ok(()),
        found => Err(format!("core limit, dumpable: {found:?}")),
    }
}

/// Exit code of a child that was refused something: and this error is on standard output.
const REFUSED: u8 = 10;

fn child(name: &str) -> ExitCode {
    let directory = PathBuf::from(env::var_os(DIRECTORY).unwrap_or_default());
    let mode: Mode = env::var(MODE)
        .unwrap_or_default()
        .parse()
        .unwrap_or(Mode::Enforce);
    let Some(case) = CASES.iter().find(|case| case.name == name) else {
        return ExitCode::FAILURE;
    };
    let places = Places {
        tenants: vec![
            Place::write(directory.join("write")),
            Place::read(directory.join("read")),
        ],
        controller: vec![Place::write(directory.join("code"))],
        start: vec![Place::read("/proc")],
        ports: case.ports.to_vec(),
        listens: case.listens,
    };
    match bound() {
        Ok(socket) => drop(BOUND.set(socket)),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    if let Err(error) = enter(mode, places, Locking::Never).and_then(|_| narrow(case.kind)) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    match (case.deed)(&directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            println!("{}", error.raw_os_error().unwrap_or(0));
            ExitCode::from(REFUSED)
        }
    }
}

fn start(name: &str, mode: &str) -> io::Result<Output> {
    let directory = tempfile::tempdir()?;
    for part in ["write", "read", "code", "outside"] {
        fs::create_dir(directory.path().join(part))?;
        fs::write(directory.path().join(part).join("file"), "x")?;
    }
    let fifo = CString::new(directory.path().join("write/fifo").as_os_str().as_bytes())?;
    // SAFETY: the path is a string of C.
    done(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) })?;
    Command::new(env::current_exe()?)
        .env(CASE, name)
        .env(DIRECTORY, directory.path())
        .env(MODE, mode)
        .stdin(Stdio::null())
        .output()
}

fn fate(output: &Output) -> Option<Fate> {
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Some(Fate::Allowed),
        (None, Some(libc::SIGSYS)) => Some(Fate::Fatal),
        (Some(code), _) if code == i32::from(REFUSED) => {
            let errno = String::from_utf8_lossy(&output.stdout).trim().parse();
            errno.ok().map(Fate::Refused)
        }
        _ => None,
    }
}

/// With [`Mode::Trap`], what is on no list is named and ends the process.
fn is_trapped(output: &Output) -> bool {
    let error = String::from_utf8_lossy(&output.stderr);
    output.status.code() == Some(128 + libc::SIGSYS)
        && error.contains("leasehold: denied system call ")
}

fn main() -> ExitCode {
    if let Ok(name) = env::var(CASE) {
        return child(&name);
    }
    let filter = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let mut failed = 0;
    for case in CASES {
        if filter
            .as_deref()
            .is_some_and(|filter| !case.name.contains(filter))
        {
            continue;
        }
        for mode in ["enforce", "trap"] {
            let output = match start(case.name, mode) {
                Ok(output) => output,
                Err(error) => {
                    println!("{error}");
                    return ExitCode::FAILURE;
                }
            };
            let holds = match (mode, case.fate) {
                // Landlock's refusals are not trapped.
                ("trap", Fate::Refused(libc::EPERM) | Fate::Fatal) => is_trapped(&output),
                (_, expected) => fate(&output) == Some(expected),
            };
            println!(
                "test {} ({mode}) ... {}",
                case.name,
                if holds { "ok" } else { "FAILED" }
            );
            if !holds {
                failed += 1;
                println!("{output:?}");
            }
        }
    }
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
