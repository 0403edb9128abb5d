//! The body of a request, as it comes from the guest.

use bytes::Bytes;
use http::header::TE;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use leasehold_exchange::{Fields, GuestHalf, Read};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Bytes of a part.
const PART: usize = 16 << 10;

/// The guest gave up the body of its request.
#[derive(Debug, thiserror::Error)]
#[error("the guest gave up the request's body")]
pub(crate) struct GivenUp;

/// The thread's half of a call, which its task and the request's body share.
#[derive(Debug)]
pub(crate) struct Half {
    pub(crate) half: RefCell<GuestHalf>,
    /// Nothing of the request's body is left to be sent.
    pub(crate) is_sent: Cell<bool>,
    /// The guest gave it up.
    pub(crate) is_given_up: Cell<bool>,
    /// The status of the response, once there is one.
    pub(crate) status: Cell<Option<u16>>,
}

impl Half {
    /// Waits until the guest gives up the call.
    pub(crate) async fn abandoned(&self) {
        poll_fn(|context| {
            let half = self.half.borrow();
            half.set_abandon_waker(context.waker());
            match half.is_abandoned() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// The body of a request.
pub(crate) struct RequestBody(pub(crate) Rc<Half>);

impl Drop for RequestBody {
    fn drop(&mut self) {
        // What the guest still writes goes nowhere.
        self.0.half.borrow_mut().close_request();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = GivenUp;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GivenUp>>> {
        if self.0.is_sent.get() {
            return Poll::Ready(None);
        }
        let mut half = self.0.half.borrow_mut();
        if !half.poll_readable(context.waker()) {
            return Poll::Pending;
        }
        let mut part = vec![0; half.readable().clamp(1, PART)];
        match half.read(&mut part) {
            Read::Bytes(read) => {
                part.truncate(read);
                Poll::Ready(Some(Ok(Frame::data(part.into()))))
            }
            Read::Nothing => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Read::End => {
                self.0.is_sent.set(true);
                let trailers = half.request_trailers().map(headers);
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Read::Failed => {
                self.0.is_given_up.set(true);
                Poll::Ready(Some(Err(GivenUp)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_sent.get()
    }

    fn size_hint(&self) -> SizeHint {
        match self.0.is_sent.get() {
            true => SizeHint::with_exact(0),
            false => SizeHint::default(),
        }
    }
}

/// Fields as the HTTP library has them; those that it does not take are left out. So is `TE`, which is of one
/// connection and needs an option of `Connection` (RFC 9110 §10.1.4).
pub(crate) fn headers(fields: &Fields) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields.iter() {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_bytes(value),
        ) && name != TE
        {
            headers.append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::headers;
    use leasehold_exchange::Fields;

    #[test]
    fn what_a_guest_says_of_the_connection_is_not_sent() {
        let mut fields = Fields::new(1024);
        for (name, value) in [("TE", "trailers"), ("te", "gzip"), ("accept", "a")] {
            fields.push(name, value.as_bytes()).expect("it fits");
        }
        let sent = headers(&fields);
        let sent: Vec<_> = sent.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(sent, ["accept"]);
    }
}
