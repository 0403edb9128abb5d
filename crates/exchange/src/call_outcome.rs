//! How the requests that a tenant sends end.

use crate::call_error::CallError;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a request ended that a guest sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallOutcome {
    /// Its response was handed over whole.
    Answered,
    /// Its destination is not allowed.
    Denied,
    /// It is none that can be sent.
    Malformed,
    /// The name of its host was not found.
    LookUp,
    /// There was no connection.
    Connect,
    /// TLS failed, or the certificate is not trusted.
    Tls,
    /// The response did not begin, or was not over, in time.
    Timeout,
    /// What came was no response, or not all of one.
    Broken,
    /// The guest gave it up, or ended.
    Abandoned,
}

impl CallOutcome {
    /// How many there are.
    pub const COUNT: usize = 9;

    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Answered,
        Self::Denied,
        Self::Malformed,
        Self::LookUp,
        Self::Connect,
        Self::Tls,
        Self::Timeout,
        Self::Broken,
        Self::Abandoned,
    ];

    /// Its name in metrics and in the control interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Denied => "denied",
            Self::Malformed => "malformed",
            Self::LookUp => "look-up",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Abandoned => "abandoned",
        }
    }
}

impl From<CallError> for CallOutcome {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Denied | CallError::Prohibited => Self::Denied,
            CallError::Malformed => Self::Malformed,
            CallError::LookupTimeout | CallError::Lookup => Self::LookUp,
            CallError::Refused
            | CallError::Unreachable
            | CallError::NoPort
            | CallError::ConnectTimeout => Self::Connect,
            CallError::Certificate | CallError::Tls => Self::Tls,
            CallError::ResponseTimeout | CallError::ReadTimeout => Self::Timeout,
            CallError::Terminated
            | CallError::Protocol
            | CallError::HeadSize
            | CallError::Coding
            | CallError::Incomplete => Self::Broken,
            CallError::Abandoned => Self::Abandoned,
        }
    }
}

/// How many requests ended in each way.
#[derive(Debug, Default)]
pub(crate) struct CallCounts([AtomicU64; CallOutcome::COUNT]);

impl CallCounts {
    pub(crate) fn count(&self, outcome: CallOutcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, outcome: CallOutcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{CallCounts, CallOutcome};
    use crate::CallError;

    #[test]
    fn outcomes_are_counted_apart_and_have_names_of_their_own() {
        let counts = CallCounts::default();
        for outcome in CallOutcome::ALL {
            (0..=outcome as usize).for_each(|_| counts.count(outcome));
        }
        for (at, outcome) in CallOutcome::ALL.into_iter().enumerate() {
            assert_eq!(counts.of(outcome), at as u64 + 1);
            let same = |other: &&CallOutcome| other.name() == outcome.name();
            assert_eq!(CallOutcome::ALL.iter().filter(same).count(), 1);
        }
        let answered = |error: &CallError| CallOutcome::from(*error) == CallOutcome::Answered;
        assert!(!CallError::ALL.iter().any(answered));
    }
}
