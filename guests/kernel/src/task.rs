//! Tasks: more instances of the program in the same tenant.

use leasehold_abi::Errno;

use crate::abi;
use crate::answer::{done, result, selector};
use crate::capability::object;
use crate::start::encoded;

object! {
    /// The program once more, in the same tenant: same lease, same capability table, a memory of
    /// its own.
    Task
}

impl Task {
    /// Starts the program with `arguments` after the program's name.
    ///
    /// # Errors
    /// [`Errno::TooLarge`] beyond [`ARGUMENT_BYTES`](crate::ARGUMENT_BYTES);
    /// [`Errno::Invalid`] for an argument with a 0 byte; what the lease does not cover.
    pub fn start(arguments: &[&str]) -> Result<Task, Errno> {
        encoded(arguments, |bytes| {
            // SAFETY: the range is borrowed for the whole call, which only reads it.
            selector(unsafe { abi::task_start(bytes.as_ptr(), bytes.len()) }).map(Task)
        })
    }

    /// Waits until the task has exited; returns its exit code.
    ///
    /// # Errors
    /// [`Errno::Gone`]; [`Errno::Rights`]; [`Errno::Budget`] if no budget pays for the wait.
    pub fn wait(self) -> Result<i32, Errno> {
        result(abi::task_wait(self.0.number())).map(|code| code as i32)
    }

    /// Ends the task.
    ///
    /// # Errors
    /// [`Errno::Rights`] without [`Rights::END`](crate::Rights::END); [`Errno::Gone`].
    pub fn stop(self) -> Result<(), Errno> {
        done(abi::task_stop(self.0.number()))
    }
}
