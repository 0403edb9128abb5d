//! What the front answers by itself, and the head of a guest's response as HTTP.

use crate::access::Outcome;
use crate::request::Rejection;
use crate::upload::UploadFault;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use leasehold_exchange::{
    ClientHalf, Failure, Fields, ResponseHead, Timing, is_hop_by_hop, may_be_trailer,
};
use leasehold_lease::decimal;

/// An answer of the front itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) text: &'static str,
    pub(crate) outcome: Outcome,
}

const fn reply(status: StatusCode, text: &'static str, outcome: Outcome) -> Reply {
    Reply {
        status,
        text,
        outcome,
    }
}

pub(crate) const NO_ROUTE: Reply = reply(StatusCode::NOT_FOUND, "no route\n", Outcome::NoRoute);
pub(crate) const FULL: Reply = reply(
    StatusCode::SERVICE_UNAVAILABLE,
    "too many requests are waiting\n",
    Outcome::Full,
);
pub(crate) const NOT_RUNNING: Reply = reply(
    StatusCode::SERVICE_UNAVAILABLE,
    "not running\n",
    Outcome::NotRunning,
);
pub(crate) const TIMEOUT: Reply = reply(
    StatusCode::GATEWAY_TIMEOUT,
    "the time of the request is over\n",
    Outcome::Timeout,
);
pub(crate) const BAD_RESPONSE: Reply = reply(
    StatusCode::BAD_GATEWAY,
    "the response is no HTTP\n",
    Outcome::Failed,
);

pub(crate) const fn rejected(rejection: Rejection) -> Reply {
    match rejection {
        Rejection::Malformed(text) => reply(StatusCode::BAD_REQUEST, text, Outcome::Malformed),
        Rejection::TooLarge => reply(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "the head is too large\n",
            Outcome::TooLarge,
        ),
        Rejection::Coding => reply(
            StatusCode::NOT_IMPLEMENTED,
            "no transfer coding but chunked\n",
            Outcome::Malformed,
        ),
        Rejection::Tunnel => reply(
            StatusCode::NOT_IMPLEMENTED,
            "no tunnels\n",
            Outcome::Malformed,
        ),
    }
}

pub(crate) const fn faulty(fault: UploadFault) -> Reply {
    match fault {
        UploadFault::Malformed => rejected(Rejection::Malformed("the body is no HTTP\n")),
        UploadFault::TooLarge => rejected(Rejection::TooLarge),
        UploadFault::Gone => reply(
            StatusCode::BAD_REQUEST,
            "the body is not whole\n",
            Outcome::ClientGone,
        ),
    }
}

pub(crate) const fn failed(failure: Failure) -> Reply {
    match failure {
        Failure::Deadline => TIMEOUT,
        Failure::Refused => reply(
            StatusCode::SERVICE_UNAVAILABLE,
            "the lease does not pay for an instance, or a directory of it is missing\n",
            Outcome::Refused,
        ),
        _ => reply(StatusCode::BAD_GATEWAY, "no response\n", Outcome::Failed),
    }
}

impl Reply {
    /// The answer. What may be otherwise soon says when to ask again.
    pub(crate) fn response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from_static(self.text.as_bytes()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The bytes that the head of a response states, if it does.
pub(crate) fn stated(headers: &HeaderMap) -> Option<u64> {
    decimal(headers.get(CONTENT_LENGTH)?.to_str().ok()?)
}

/// Whether the body may still have the length that the head states, as far as it is there.
pub(crate) fn keeps_promise(headers: &HeaderMap, body: &ClientHalf) -> bool {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return true;
    };
    let Some(stated) = stated(headers).filter(|_| lengths.all(|other| other == length)) else {
        return false;
    };
    match body.remaining() {
        Some(whole) => whole as u64 == stated,
        None => body.readable() as u64 <= stated,
    }
}

/// The head of a guest's response without the fields of a connection; `None` if it is no HTTP.
pub(crate) fn head(head: &ResponseHead) -> Option<(StatusCode, HeaderMap)> {
    // A guest has one response, and nothing before it.
    let status = StatusCode::from_u16(head.status)
        .ok()
        .filter(|status| status.as_u16() >= 200)?;
    let mut headers = headers(&head.fields)?;
    // RFC 9110 §8.6: there is nothing whose length it could be.
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
        headers.remove(CONTENT_LENGTH);
    }
    Some((status, headers))
}

/// Fields of a head as HTTP's, without those of a connection.
fn headers(fields: &Fields) -> Option<HeaderMap> {
    map(fields, |name| !is_hop_by_hop(name))
}

/// Trailers of a response as HTTP's, without fields that may be none; `None` if they are no HTTP.
pub(crate) fn trailers(fields: &Fields) -> Option<HeaderMap> {
    map(fields, may_be_trailer)
}

/// Those fields whose name is allowed; `None` if one of them is no HTTP.
fn map(fields: &Fields, is_allowed: impl Fn(&str) -> bool) -> Option<HeaderMap> {
    let mut headers = HeaderMap::try_with_capacity(fields.len()).ok()?;
    for (name, value) in fields {
        // A guest may write names in any case.
        if !is_allowed(&name.to_ascii_lowercase()) {
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(value).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

/// What the request took, for `Server-Timing`, in milliseconds.
pub(crate) fn server_timing(timing: Timing) -> Option<HeaderValue> {
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let queued = ms(timing.queued?);
    let guest = ms(timing.guest);
    HeaderValue::try_from(format!("queue;dur={queued:.3}, guest;dur={guest:.3}")).ok()
}
