//! What a job may do and take, and what is left when one ends. A server of jobs asks for a process of one thread: each
//! case is a process of its own, this program started again with the name of the case.

use leasehold_confine::{Ended, ForkServer, JobError, Limits, Mode, Packet, Thread, narrow};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Names the case in a child.
const CASE: &str = "LEASEHOLD_JOBS_CASE";

const LIMITS: Limits = Limits {
    memory: 256 << 20,
    processor: 1,
};

type Case = (&'static str, fn(&ForkServer));

const CASES: &[Case] = &[
    (
        "a_job_reads_the_file_that_it_is_given_and_returns_another",
        |server| {
            for text in ["first", "second"] {
                let mut file = tempfile::tempfile().expect("a file");
                file.write_all(text.as_bytes()).expect("written");
                file.rewind().expect("at its start");
                let request = packet("reverse", Some(file.into()));
                let result = server.run(&request).expect("done");
                let mut reversed = String::new();
                let mut file = fs::File::from(result.file.expect("a file"));
                file.rewind().expect("at its start");
                file.read_to_string(&mut reversed).expect("read");
                assert_eq!(reversed, text.chars().rev().collect::<String>());
            }
        },
    ),
    (
        "a_job_that_takes_more_memory_than_it_may_ends_and_the_next_one_is_done",
        |server| {
            let ended = server.run(&packet("memory", None)).expect_err("too much");
            let JobError::Ended { ended, limits } = &ended else {
                panic!("{ended}");
            };
            assert!(matches!(ended, Ended::Signal(_)), "{ended}");
            assert_eq!(*limits, LIMITS);
            assert_eq!(said(server, "echo"), "echo");
        },
    ),
    ("a_job_that_takes_more_time_than_it_may_ends", |server| {
        let ended = server.run(&packet("time", None)).expect_err("too much");
        assert!(matches!(ended, JobError::Time(LIMITS)), "{ended}");
        assert_eq!(said(server, "echo"), "echo");
    }),
    (
        "a_job_that_panics_or_crashes_is_no_more_than_an_error",
        |server| {
            for (what, how) in [
                ("panic", Ended::Code(101)),
                ("crash", Ended::Signal(libc::SIGSEGV)),
            ] {
                let ended = server.run(&packet(what, None)).expect_err("it ended");
                assert!(
                    matches!(ended, JobError::Ended { ended, .. } if ended == how),
                    "{ended}"
                );
                assert_eq!(said(server, "echo"), "echo");
            }
        },
    ),
    (
        "a_job_opens_no_file_makes_no_process_and_no_code_and_connects_to_no_host",
        |server| {
            assert_eq!(said(server, "open"), libc::EACCES.to_string());
            assert_eq!(said(server, "fork"), libc::EPERM.to_string());
            assert_eq!(said(server, "code"), libc::EPERM.to_string());
            assert_eq!(said(server, "socket"), libc::EPERM.to_string());
        },
    ),
    (
        "a_job_has_the_descriptors_that_it_was_given_and_no_other",
        |server| {
            let _others = [(); 20].map(|()| fs::File::open("/dev/null").expect("open"));
            // The standard ones, and its connection.
            assert_eq!(said(server, "descriptors"), "4");
        },
    ),
    (
        "whatever_a_job_says_it_is_not_taken_for_the_result_of_another",
        |server| {
            let _ = server.run(&packet("forge", None));
            for word in ["echo", "other"] {
                assert_eq!(said(server, word), word);
            }
        },
    ),
    ("a_request_that_is_too_long_is_refused", |server| {
        let request = Packet {
            bytes: vec![0; 1 << 20],
            file: None,
        };
        assert!(matches!(server.run(&request), Err(JobError::System(_))));
        assert_eq!(said(server, "echo"), "echo");
    }),
    ("is_ended_from_outside", |server| {
        println!("{}", children().join(" "));
        let ended = server.run(&packet("sleep", None));
        panic!("{ended:?}");
    }),
];

/// The case that the test starts by itself.
const OUTSIDE: &str = "is_ended_from_outside";

fn packet(what: &str, file: Option<OwnedFd>) -> Packet {
    Packet {
        bytes: what.as_bytes().to_vec(),
        file,
    }
}

fn said(server: &ForkServer, what: &str) -> String {
    let result = server.run(&packet(what, None)).expect("done");
    String::from_utf8(result.bytes).expect("text")
}

fn job(request: Packet) -> Packet {
    narrow(Thread::Job).expect("narrowed");
    let what = String::from_utf8(request.bytes).expect("text");
    let said = match &what[..] {
        "reverse" => return reverse(request.file.expect("a file")),
        "memory" => {
            let block = vec![1_u8; 1 << 30];
            block
                .iter()
                .map(|byte| u64::from(*byte))
                .sum::<u64>()
                .to_string()
        }
        "time" => loop {
            std::hint::spin_loop();
        },
        "sleep" => loop {
            thread::sleep(Duration::from_secs(1));
        },
        "panic" => panic!("as asked"),
        // SAFETY: none: it is to crash.
        "crash" => unsafe { std::ptr::without_provenance::<u8>(8).read_volatile() }.to_string(),
        "open" => errno(fs::File::open("/etc/passwd").map(drop)),
        "socket" => errno(std::net::UdpSocket::bind("127.0.0.1:0").map(std::mem::forget)),
        // SAFETY: a copy, if there were one, would end at once.
        "fork" => errno(match unsafe { libc::fork() } {
            0 => std::process::exit(0),
            pid if pid > 0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }),
        "code" => {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let code = libc::PROT_READ | libc::PROT_EXEC;
            // SAFETY: a new mapping, which nothing uses.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, code, flags, -1, 0) };
            errno(match at {
                libc::MAP_FAILED => Err(io::Error::last_os_error()),
                _ => Ok(()),
            })
        }
        "descriptors" => descriptors().count().to_string(),
        "forge" => {
            let connection = descriptors().last().expect("a connection");
            // A result, an end with exit code 0, and a result of the next job.
            for message in [&b"\0forged"[..], &[2, 0, 0, 0, 0], b"\0forged"] {
                send(connection, message);
            }
            what
        }
        _ => what,
    };
    packet(&said, None)
}

/// The numbers of all that is open.
fn descriptors() -> impl Iterator<Item = i32> {
    // SAFETY: the call says whether there is one.
    (0..256).filter(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0)
}

/// Sends a message as it is.
fn send(connection: i32, message: &[u8]) {
    let mut part = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    // SAFETY: all zeros is a value of this type.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    // SAFETY: the header describes one slice, which is read during the call only.
    let sent = unsafe { libc::sendmsg(connection, &raw const header, libc::MSG_NOSIGNAL) };
    assert_eq!(sent, message.len() as isize);
}

fn errno(result: io::Result<()>) -> String {
    let number = result.err().and_then(|error| error.raw_os_error());
    number.unwrap_or(0).to_string()
}

fn reverse(file: OwnedFd) -> Packet {
    let mut text = String::new();
    fs::File::from(file)
        .take(1 << 10)
        .read_to_string(&mut text)
        .expect("read");
    // SAFETY: the name is a string of C.
    let made = unsafe { libc::memfd_create(c"reversed".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(made >= 0);
    // SAFETY: the number is that of the file just made.
    let mut made = unsafe { <fs::File as std::os::fd::FromRawFd>::from_raw_fd(made) };
    made.write_all(text.chars().rev().collect::<String>().as_bytes())
        .expect("written");
    packet("", Some(made.into()))
}

/// The processes that this one has started.
fn children() -> Vec<String> {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let children = fs::read_to_string(path).expect("the kernel says so");
    children.split_whitespace().map(str::to_owned).collect()
}

fn child(name: &str) -> ExitCode {
    let server = ForkServer::start(Mode::Enforce, LIMITS, job).expect("started");
    let Some((_, case)) = CASES.iter().find(|(case, _)| *case == name) else {
        return ExitCode::FAILURE;
    };
    case(&server);
    ExitCode::SUCCESS
}

fn command(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.env(CASE, name).stdin(Stdio::null());
    command
}

/// A process that is killed in the middle of a job leaves neither its server nor the job.
fn nothing_is_left_of_a_process_that_was_killed() -> bool {
    let mut owner = command(OUTSIDE)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut line = String::new();
    let output = owner.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("read");
    let server = line.trim().to_owned();
    let jobs = || fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let by = Instant::now() + Duration::from_secs(20);
    let job = loop {
        let job = jobs().unwrap_or_default().trim().to_owned();
        if !job.is_empty() || Instant::now() > by {
            break job;
        }
        thread::sleep(Duration::from_millis(5));
    };
    owner.kill().expect("killed");
    owner.wait().expect("waited");
    let is_there = |process: &str| fs::exists(format!("/proc/{process}")).unwrap_or(true);
    while (is_there(&server) || is_there(&job)) && Instant::now() < by {
        thread::sleep(Duration::from_millis(5));
    }
    !job.is_empty() && !is_there(&server) && !is_there(&job)
}

fn main() -> ExitCode {
    if let Ok(name) = env::var(CASE) {
        return child(&name);
    }
    let filter = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let is_asked = |name: &str| filter.as_deref().is_none_or(|filter| name.contains(filter));
    let mut all_hold = true;
    let mut say = |name: &str, holds: bool| {
        println!("test {name} ... {}", if holds { "ok" } else { "FAILED" });
        all_hold &= holds;
    };
    for (name, _) in CASES
        .iter()
        .filter(|(name, _)| *name != OUTSIDE && is_asked(name))
    {
        let output = command(name).output().expect("started");
        say(name, output.status.success());
        if !output.status.success() {
            println!("{output:?}");
        }
    }
    let name = "nothing_is_left_of_a_process_that_was_killed";
    if is_asked(name) {
        say(name, nothing_is_left_of_a_process_that_was_killed());
    }
    match all_hold {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
