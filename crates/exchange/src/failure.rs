//! Why an exchange has no response, or not all of it.

use crate::call_error::CallError;

/// Why an exchange failed on the guest's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The tenant ended, or was killed, before it had finished the response.
    #[error("the tenant ended")]
    Ended,
    /// The guest trapped.
    #[error("the guest trapped")]
    Trap,
    /// The guest's time for the request was over.
    #[error("the deadline of the request has passed")]
    Deadline,
    /// The lease could not pay for what the request needs.
    #[error("refused by the lease")]
    Refused,
    /// The guest returned without a response.
    #[error("the guest gave no response")]
    NoResponse,
    /// The guest gave an error in place of a response.
    #[error("the guest answered with an error")]
    GuestError,
    /// The guest gave up a body of which it had written a part.
    #[error("the guest gave up the response's body")]
    Incomplete,
    /// A request that a guest sent has failed.
    #[error(transparent)]
    Call(CallError),
}

impl Failure {
    /// All of them; the first is what a ring reports when its writer is dropped.
    const ALL: [Failure; 7] = [
        Failure::Ended,
        Failure::Trap,
        Failure::Deadline,
        Failure::Refused,
        Failure::NoResponse,
        Failure::GuestError,
        Failure::Incomplete,
    ];

    /// The reason of the first [`CallError`].
    const CALL: u8 = 64;

    /// The reason that crosses in a ring.
    pub(crate) const fn reason(self) -> u8 {
        match self {
            Failure::Ended => 0,
            Failure::Trap => 1,
            Failure::Deadline => 2,
            Failure::Refused => 3,
            Failure::NoResponse => 4,
            Failure::GuestError => 5,
            Failure::Incomplete => 6,
            Failure::Call(error) => Self::CALL + error as u8,
        }
    }

    /// The failure of a reason; [`Failure::Ended`] for one that is not known.
    pub(crate) fn of_reason(reason: u8) -> Self {
        let known = match reason.checked_sub(Self::CALL) {
            Some(error) => CallError::ALL
                .get(usize::from(error))
                .copied()
                .map(Failure::Call),
            None => Self::ALL.get(usize::from(reason)).copied(),
        };
        known.unwrap_or(Failure::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::{CallError, Failure};

    #[test]
    fn every_failure_crosses_unchanged_and_a_dropped_writer_is_one_that_ended() {
        let calls = CallError::ALL.map(Failure::Call);
        for failure in Failure::ALL.into_iter().chain(calls) {
            assert_eq!(Failure::of_reason(failure.reason()), failure);
        }
        assert_eq!(
            Failure::of_reason(leasehold_crossing::DROPPED),
            Failure::Ended
        );
    }
}
