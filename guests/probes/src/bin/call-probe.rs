//! Makes a call of WASI preview 1 COUNT times and prints how long that took: `took NS`. Its files are
//! in the first directory that it is given. `call-probe CALL COUNT`
#![no_std]
#![no_main]

use leasehold_hostile::{Arguments, Line, exit, now, program};
use leasehold_probes::calls::{DIRECTORY, Refused, Room, create};

program!(main);

/// A file that is there.
const FILE: &str = "file";
/// A name that is not.
const NAME: &str = "name";

fn main(arguments: &Arguments<'_>) {
    let call = arguments.text(0).unwrap_or("");
    let count = arguments.number(1, 1);
    let took = measure(call, count).unwrap_or_else(|Refused(errno)| {
        Line::print(format_args!("{call}: refused with {errno}"));
        exit(1)
    });
    Line::print(format_args!("took {took}"));
}

fn measure(call: &str, count: u64) -> Result<u64, Refused> {
    let mut room = Room::new();
    let file = match call {
        "fd_write" | "fd_pread" | "fd_pwrite" | "fd_filestat_get" | "path_filestat_get"
        | "path_open" => {
            let file = create(FILE)?;
            room.fd_pwrite(file)?;
            file
        }
        _ => 0,
    };
    let mut once = || match call {
        "clock_time_get" => room.clock_time_get(),
        "sched_yield" => room.sched_yield(),
        "random_get" => room.random_get(),
        "poll_oneoff" => room.poll_oneoff(),
        "fd_write" => room.fd_write(file),
        "fd_pread" => room.fd_pread(file),
        "fd_pwrite" => room.fd_pwrite(file),
        "fd_filestat_get" => room.fd_filestat_get(file),
        "fd_readdir" => room.fd_readdir(DIRECTORY),
        "path_filestat_get" => room.path_filestat_get(FILE),
        "path_open" => room.path_open_and_close(FILE),
        "path_unlink_file" => room.create_and_unlink(NAME),
        "path_create_directory" => room.mkdir_and_rmdir(NAME),
        _ => Err(Refused(0)),
    };
    // The allocations of the first call are not measured.
    once()?;
    let began = now();
    for _ in 0..count {
        once()?;
    }
    Ok(now() - began)
}
