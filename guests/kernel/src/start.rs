//! The argument vector of a task or child tenant to be started.

use leasehold_abi::{ARGUMENT_BYTES, Errno};

/// Calls `start` with `arguments` as the kernel takes them: each ended by a 0 byte.
pub(crate) fn encoded<T>(
    arguments: &[&str],
    start: impl FnOnce(&[u8]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut buffer = [0; ARGUMENT_BYTES];
    let mut used = 0;
    for argument in arguments {
        let bytes = argument.as_bytes();
        if bytes.contains(&0) {
            return Err(Errno::Invalid);
        }
        let room = buffer
            .get_mut(used..used + bytes.len() + 1)
            .ok_or(Errno::TooLarge)?;
        room[..bytes.len()].copy_from_slice(bytes);
        used += bytes.len() + 1;
    }
    start(&buffer[..used])
}
