//! The errors of `wasi:http` for requests that a guest sends ([`OutgoingCall`](crate::wasi::outgoing::OutgoingCall)).

use super::bindings::types::{DnsErrorPayload, ErrorCode};
use crate::wasi::outgoing::Refused;
use leasehold_exchange::{CallError, Failure};

/// The interface's error of a request that was not made or sent.
pub(super) fn refused(why: Refused) -> ErrorCode {
    match why {
        Refused::Places => ErrorCode::ConnectionLimitReached,
        Refused::Memory => {
            let reason = "the lease does not pay for the memory of the request";
            ErrorCode::InternalError(Some(reason.to_owned()))
        }
        Refused::Over => ErrorCode::ConnectionTerminated,
    }
}

/// The interface's error of a failure.
pub(super) fn error_of(failure: Failure) -> ErrorCode {
    let Failure::Call(error) = failure else {
        return ErrorCode::ConnectionTerminated;
    };
    match error {
        CallError::Denied => ErrorCode::HttpRequestDenied,
        CallError::Prohibited => ErrorCode::DestinationIpProhibited,
        CallError::Malformed => ErrorCode::HttpRequestUriInvalid,
        CallError::LookupTimeout => ErrorCode::DnsTimeout,
        CallError::Lookup => ErrorCode::DnsError(DnsErrorPayload {
            rcode: None,
            info_code: None,
        }),
        CallError::Refused => ErrorCode::ConnectionRefused,
        CallError::Unreachable => ErrorCode::DestinationUnavailable,
        CallError::NoPort => ErrorCode::ConnectionLimitReached,
        CallError::ConnectTimeout => ErrorCode::ConnectionTimeout,
        CallError::Terminated => ErrorCode::ConnectionTerminated,
        CallError::Certificate => ErrorCode::TlsCertificateError,
        CallError::Tls => ErrorCode::TlsProtocolError,
        CallError::ResponseTimeout => ErrorCode::HttpResponseTimeout,
        CallError::ReadTimeout => ErrorCode::ConnectionReadTimeout,
        CallError::Protocol => ErrorCode::HttpProtocolError,
        CallError::HeadSize => ErrorCode::HttpResponseHeaderSectionSize(None),
        CallError::Coding => ErrorCode::HttpResponseTransferCoding(None),
        CallError::Incomplete => ErrorCode::HttpResponseIncomplete,
        CallError::Abandoned => ErrorCode::HttpRequestBodySize(None),
    }
}
