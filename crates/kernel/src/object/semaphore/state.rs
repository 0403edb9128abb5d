//! A semaphore.

use crate::queue::Queue;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Semaphore {
    pub(crate) value: u32,
    pub(crate) waiters: Queue,
}
