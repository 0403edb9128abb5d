//! A call of preview 1, from its first try to its answer.

use crate::guest::Guest;
use crate::host::answer::{Answer, to_guest};
use crate::host::fs::attempt::Try;
use crate::host::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use wasmtime::{Caller, Result};

/// The rest of a call on the cell's thread, after its job is done.
pub(super) type Finish = Box<dyn FnOnce(&mut Caller<'_, Guest>) -> Answer + Send>;

/// The work of a thread that may block.
pub(super) type Work = Box<dyn FnOnce() -> Finish + Send>;

/// The result of a first try.
pub(super) enum Attempt {
    /// The call was done.
    Done,
    /// The call might wait: another thread makes it.
    Elsewhere(Work),
}

/// Delivers an answer to the guest, now or when the job is done.
pub(super) fn respond<T: Send + 'static>(
    caller: &mut Caller<'_, Guest>,
    tried: Try<T>,
    finish: impl FnOnce(&mut Caller<'_, Guest>, T) -> Answer + Send + 'static,
) -> Answer<Attempt> {
    match tried {
        Try::Done(result) => {
            finish(caller, result?)?;
            Ok(Attempt::Done)
        }
        Try::Elsewhere(work) => Ok(Attempt::Elsewhere(Box::new(move || {
            let result = work();
            Box::new(move |caller| finish(caller, result?))
        }))),
    }
}

/// Responds as [`respond`], for calls whose answer has no value.
pub(super) fn respond_plainly(caller: &mut Caller<'_, Guest>, tried: Try<()>) -> Answer<Attempt> {
    respond(caller, tried, |_, ()| Ok(()))
}

/// The future of a call.
pub(super) type Call<'a> = Box<dyn Future<Output = Result<i32>> + Send + 'a>;

/// The future of a call that was done: it has no size, so that it takes no memory.
struct Success;

impl Future for Success {
    type Output = Result<i32>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<i32>> {
        Poll::Ready(Ok(0))
    }
}

/// Returns the future of a call that was answered.
pub(super) fn answered<'a>(answer: Answer) -> Call<'a> {
    match answer {
        Ok(()) => Box::new(Success),
        Err(fail) => Box::new(std::future::ready(to_guest(Err(fail)))),
    }
}

/// Returns the future of the rest of a call, after its first try.
pub(super) fn after<'a>(mut caller: Caller<'a, Guest>, attempt: Answer<Attempt>) -> Call<'a> {
    match attempt {
        Ok(Attempt::Done) => answered(Ok(())),
        Err(fail) => answered(Err(fail)),
        Ok(Attempt::Elsewhere(work)) => {
            Box::new(async move { to_guest(elsewhere(&mut caller, work).await) })
        }
    }
}

pub(super) async fn elsewhere(caller: &mut Caller<'_, Guest>, work: Work) -> Answer {
    let account = caller.data_mut().preview1()?.account().clone();
    let finish = io::run(&account, work).await;
    finish(caller)
}
