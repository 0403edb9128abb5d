//! Calls of a program's exported functions, from the controller: typed arguments, typed results.
//!
//! A program that was loaded to be called ([`Cell::load_exports`](crate::Cell::load_exports)) has
//! no entry point. Its tenant makes the instance, and then answers one call after the other in its
//! own time slices. It ends when no more calls are announced
//! ([`TenantHandle::finish`](crate::TenantHandle::finish)), when it is killed, or when it traps.
//!
//! 1. **Checked before it is sent.** Names, types and sizes are checked on the controller's thread (`function`):
//!    the cell is given no call that cannot be made.
//! 2. **Capped.** Arguments are lowered in steps, between which the guest's allocator runs; results are lifted in one.
//!    The bytes of both are limited, by type (`values`), and the lease is charged for them when the tenant starts.
//! 3. **Dropped elsewhere.** What calls hold in the host's memory is freed by the caller, or by the thread that closes
//!    files: never by the cell's.

mod answer;
mod function;
pub(crate) mod lift_bytes;
mod values;

use crate::discarded::Discarded;
use crate::exit::Exit;
use crate::program::Program;
use crate::steps::caps::CALLS_WAITING;
use function::argument_size;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::Poll;
use std::time::Duration;
use thiserror::Error;
use wasmtime::component::Val;

pub(crate) use answer::Answering;
pub(crate) use answer::{Current, answer_calls, hook, make_module};
pub use function::{ExportedFunction, FunctionError};

/// Why a call was not made, or has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The arguments are not those that the function takes.
    #[error("the arguments are not those that {function} takes")]
    Arguments {
        /// The function.
        function: String,
    },
    /// The arguments are charged as more bytes than the lease allows.
    #[error("the arguments count as {bytes} bytes; `reclaim.call_bytes` allows {most}")]
    TooLarge {
        /// Bytes that the arguments are charged as.
        bytes: u64,
        /// Most bytes that arguments of this function may be charged as.
        most: u64,
    },
    /// The tenant has as many calls to answer as may wait.
    #[error("{} calls wait already", CALLS_WAITING.most)]
    Busy,
    /// The function is one of another program than the tenant's.
    #[error("the function is another program's")]
    OtherProgram,
    /// The tenant was told that there would be no more calls, has ended, or ended during the call for another reason,
    /// such as a kill.
    #[error("the tenant has ended, or answers no more calls")]
    Ended,
    /// The call ended the tenant: it trapped, called exit, or took what the lease does not pay for.
    #[error("the call ended the tenant: {}", told(.0))]
    Failed(Exit),
}

fn told(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("it exited with code {code}"),
        Exit::Trap(message) | Exit::Lease(message) | Exit::Memory(message) => message.clone(),
        Exit::Killed => "it was killed".to_owned(),
    }
}

/// A call on its way to a tenant.
pub(crate) struct Call {
    function: ExportedFunction,
    arguments: Vec<Val>,
    reply: Sender<Result<Vec<Val>, CallError>>,
}

/// A call that was sent. If it is dropped, the call is still made, and its results are discarded.
#[derive(Debug)]
pub struct PendingCall {
    answer: Receiver<Result<Vec<Val>, CallError>>,
}

impl PendingCall {
    /// Waits for the results.
    ///
    /// # Errors
    /// When the tenant ended before it had them.
    pub fn wait(self) -> Result<Vec<Val>, CallError> {
        self.answer.recv().unwrap_or(Err(CallError::Ended))
    }

    /// Waits for at most `timeout`; `None` if there are no results yet.
    ///
    /// # Errors
    /// When the tenant ended before it had them.
    pub fn wait_for(&self, timeout: Duration) -> Result<Option<Vec<Val>>, CallError> {
        match self.answer.recv_timeout(timeout) {
            Ok(answer) => answer.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(CallError::Ended),
        }
    }
}

impl Call {
    /// A call with these arguments, for a tenant that has so many bytes for its calls.
    ///
    /// # Errors
    /// When the function does not take the arguments, or they are too large.
    pub(crate) fn new(
        function: ExportedFunction,
        arguments: Vec<Val>,
        call_bytes: u64,
    ) -> Result<(Self, PendingCall), CallError> {
        if !function.takes(&arguments) {
            let function = function.name().to_owned();
            return Err(CallError::Arguments { function });
        }
        let (bytes, most) = (
            argument_size(&arguments),
            function.argument_bytes(call_bytes),
        );
        if bytes > most {
            return Err(CallError::TooLarge { bytes, most });
        }
        let (reply, answer) = channel();
        let call = Self {
            function,
            arguments,
            reply,
        };
        Ok((call, PendingCall { answer }))
    }

    /// Whether it is one of a function of `program`.
    pub(crate) fn is_of(&self, program: &Arc<Program>) -> bool {
        Arc::ptr_eq(self.function.program(), program)
    }
}

/// The calls that wait for one execution.
#[derive(Default)]
pub(crate) struct Calls {
    waiting: VecDeque<Box<Call>>,
    /// There will be no more.
    is_last: bool,
    /// The execution waits for one.
    is_awaited: bool,
}

impl Calls {
    /// Adds a call; returns whether the execution waits for one, and is to be woken.
    ///
    /// # Errors
    /// When as many wait as may, or there were to be no more. The call comes back.
    pub(crate) fn push(&mut self, call: Box<Call>) -> Result<bool, (Box<Call>, CallError)> {
        if self.is_last {
            return Err((call, CallError::Ended));
        }
        if self.waiting.len() >= CALLS_WAITING.size() {
            return Err((call, CallError::Busy));
        }
        self.waiting.push_back(call);
        Ok(self.is_awaited)
    }

    /// There will be no more than those that wait; returns whether the execution is to be woken.
    pub(crate) fn finish(&mut self) -> bool {
        self.is_last = true;
        self.is_awaited
    }

    fn poll_next(&mut self) -> Poll<Option<Discarded<Call>>> {
        self.is_awaited = self.waiting.is_empty();
        match self.waiting.pop_front() {
            Some(call) => Poll::Ready(Some(Discarded::of(call))),
            None if self.is_last => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

thread_local! {
    static WAITING: RefCell<BTreeMap<u64, Calls>> = RefCell::default();
}

/// Runs `f` on the calls that wait for executions of this thread's cell.
pub(crate) fn with_waiting<R>(f: impl FnOnce(&mut BTreeMap<u64, Calls>) -> R) -> R {
    WAITING.with(|waiting| f(&mut waiting.borrow_mut()))
}

/// Takes the calls away from this thread.
pub(crate) fn leave() {
    drop(WAITING.take());
}

impl Discarded<Vec<Val>> {
    fn values(&mut self) -> &mut [Val] {
        self.value_mut().map_or(&mut [], |values| &mut values[..])
    }
}

impl Discarded<Call> {
    /// Tells the caller.
    pub(crate) fn answer(self, answer: Result<Vec<Val>, CallError>) {
        if let Some(call) = self.value()
            && let Err(unheard) = call.reply.send(answer)
        {
            drop(Discarded::new(unheard));
        }
    }
}

/// Tells the caller that a call is not made. On the cell's thread.
pub(crate) fn refuse(call: Box<Call>, why: CallError) {
    Discarded::of(call).answer(Err(why));
}
