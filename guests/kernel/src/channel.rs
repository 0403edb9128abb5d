//! Bounded channels that carry bytes and capabilities.

use leasehold_abi::{Errno, Received};

use crate::Selector;
use crate::abi;
use crate::answer::{done, result, selector};
use crate::capability::object;

object! {
    /// A bounded channel of messages; a message is bytes and capabilities.
    Channel
}

/// The call that sends: with waiting or without.
type Send = unsafe extern "C" fn(u32, *const u8, usize, *const u32, usize) -> i64;

/// The call that receives: with waiting or without.
type Receive = unsafe extern "C" fn(u32, *mut u8, usize, *mut u32, usize) -> i64;

impl Channel {
    /// A channel that holds `capacity` bytes, message headers included.
    ///
    /// # Errors
    /// What the lease does not cover.
    pub fn create(capacity: u32) -> Result<Channel, Errno> {
        selector(abi::channel_create(capacity)).map(Channel)
    }

    /// Sends a message, waiting for room as long as necessary. The capabilities stay the
    /// sender's; the receiver gets capabilities derived from them.
    ///
    /// # Errors
    /// [`Errno::TooLarge`] if the channel could never hold it; [`Errno::Gone`];
    /// [`Errno::Rights`]; what the leases of sender and receiver do not cover.
    pub fn send(self, bytes: &[u8], capabilities: &[Selector]) -> Result<(), Errno> {
        self.give(abi::channel_send, bytes, capabilities)
    }

    /// Sends a message if there is room for it now.
    ///
    /// # Errors
    /// [`Errno::Full`] if there is none; otherwise as [`send`](Self::send).
    pub fn try_send(self, bytes: &[u8], capabilities: &[Selector]) -> Result<(), Errno> {
        self.give(abi::channel_try_send, bytes, capabilities)
    }

    /// Receives a message, waiting for one as long as necessary.
    ///
    /// # Errors
    /// [`Errno::TooLarge`] if the next message does not fit the buffers (it stays);
    /// [`Errno::Gone`]; [`Errno::Rights`]; what the lease does not cover.
    pub fn receive(
        self,
        bytes: &mut [u8],
        capabilities: &mut [Selector],
    ) -> Result<Received, Errno> {
        self.take(abi::channel_receive, bytes, capabilities)
    }

    /// Receives a message if there is one now.
    ///
    /// # Errors
    /// [`Errno::Empty`] if there is none; otherwise as [`receive`](Self::receive).
    pub fn try_receive(
        self,
        bytes: &mut [u8],
        capabilities: &mut [Selector],
    ) -> Result<Received, Errno> {
        self.take(abi::channel_try_receive, bytes, capabilities)
    }

    fn give(self, send: Send, bytes: &[u8], capabilities: &[Selector]) -> Result<(), Errno> {
        // SAFETY: both ranges are borrowed for the whole call, which only reads them;
        // `Selector` is a transparent `u32`.
        done(unsafe {
            send(
                self.0.number(),
                bytes.as_ptr(),
                bytes.len(),
                capabilities.as_ptr().cast(),
                capabilities.len(),
            )
        })
    }

    fn take(
        self,
        receive: Receive,
        bytes: &mut [u8],
        capabilities: &mut [Selector],
    ) -> Result<Received, Errno> {
        // SAFETY: both ranges are borrowed mutably for the whole call, which writes inside them;
        // `Selector` is a transparent `u32`, for which every value is valid.
        result(unsafe {
            receive(
                self.0.number(),
                bytes.as_mut_ptr(),
                bytes.len(),
                capabilities.as_mut_ptr().cast(),
                capabilities.len(),
            )
        })
        .map(Received::unpack)
    }
}
