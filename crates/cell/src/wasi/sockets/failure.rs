//! The errors of `wasi:sockets` for calls that were not made, or failed.

use super::bindings::network::ErrorCode;
use crate::wasi::outgoing::Refused;
use leasehold_exchange::{CallError, Failure};

/// The error of a call that was not made or sent.
pub(super) fn refused(why: Refused) -> ErrorCode {
    match why {
        Refused::Places => ErrorCode::NewSocketLimit,
        Refused::Memory => ErrorCode::OutOfMemory,
        Refused::Over => ErrorCode::ConnectionAborted,
    }
}

/// The error of a connection that was not made, or was cut off.
pub(super) fn of_connection(failure: Failure) -> ErrorCode {
    let Failure::Call(error) = failure else {
        return ErrorCode::ConnectionAborted;
    };
    match error {
        CallError::Denied | CallError::Prohibited => ErrorCode::AccessDenied,
        CallError::Refused => ErrorCode::ConnectionRefused,
        CallError::Unreachable => ErrorCode::RemoteUnreachable,
        CallError::NoPort => ErrorCode::AddressInUse,
        CallError::ConnectTimeout => ErrorCode::Timeout,
        CallError::Terminated => ErrorCode::ConnectionReset,
        _ => ErrorCode::ConnectionAborted,
    }
}

/// The error of a socket that does not listen, or of a connection that did not come.
pub(super) fn of_listening(failure: Failure) -> ErrorCode {
    match failure {
        Failure::Call(CallError::Denied) => ErrorCode::AccessDenied,
        Failure::Call(CallError::NoPort) => ErrorCode::AddressInUse,
        _ => ErrorCode::ConnectionAborted,
    }
}

/// The error of a datagram that was not sent, or of a socket for them that was not bound.
pub(super) fn of_datagrams(error: CallError) -> ErrorCode {
    match error {
        CallError::Denied | CallError::Prohibited => ErrorCode::AccessDenied,
        CallError::Refused => ErrorCode::ConnectionRefused,
        CallError::Unreachable => ErrorCode::RemoteUnreachable,
        CallError::NoPort => ErrorCode::AddressInUse,
        _ => ErrorCode::Unknown,
    }
}

/// The error of a look-up. That of a name that the lease does not know is what a name has that nobody knows.
pub(super) fn of_look_up(failure: Failure) -> ErrorCode {
    match failure {
        Failure::Call(CallError::LookupTimeout | CallError::NoPort) => {
            ErrorCode::TemporaryResolverFailure
        }
        Failure::Call(CallError::Lookup) => ErrorCode::NameUnresolvable,
        _ => ErrorCode::PermanentResolverFailure,
    }
}
