//! Where random numbers come from, before the process is confined.

/// Opens the source of this process' random numbers, if it is a file.
///
/// A program that is linked with the C library statically does not find the system call by its name, and reads
/// `/dev/urandom` instead: a file that a confined process cannot open. Once open, it stays so, for all threads.
///
/// # Panics
/// When the host has no random numbers.
pub fn open_entropy() {
    let _: u64 = rand::random();
}
