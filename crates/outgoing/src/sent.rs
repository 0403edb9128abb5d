//! What became of a request that a guest sent: the record of its span, for a node that has a collector.

use http::HeaderValue;
use leasehold_exchange::{CallError, RequestHead, TRACEPARENT, TraceParent};
use std::sync::Arc;
use std::time::Duration;

/// Gets the record of each request that is over and whose trace is recorded. It must not wait: the thread calls it.
pub type Observer = Arc<dyn Fn(&Sent) + Send + Sync>;

/// A request that a guest sent, when it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The tenant.
    pub tenant: String,
    /// The trace, and the request's own span in it.
    pub span: TraceParent,
    /// The span within which it was sent.
    pub parent: u64,
    /// The method.
    pub method: String,
    /// Where to: scheme, authority and path with the query, as the guest stated them.
    pub url: String,
    /// The host.
    pub host: String,
    /// The port, if the guest stated one.
    pub port: Option<u16>,
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    /// How long it took until the end of the response, or until it failed.
    pub elapsed: Duration,
    /// Why it failed, if it did.
    pub failure: Option<CallError>,
}

/// The span of a request that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// What the host that gets the request sees as its parent: the request's own span if it is recorded, and otherwise what
    /// it would have seen.
    pub(crate) own: TraceParent,
    /// The span within which it was sent.
    pub(crate) parent: u64,
}

impl Span {
    /// The span of a request: within the one that the guest names, or else within that of the request that it `answers`.
    pub(crate) fn of(head: &RequestHead, answers: Option<TraceParent>) -> Option<Self> {
        let named = head.fields.get(TRACEPARENT);
        let parent = match named {
            Some(named) => TraceParent::parse(named)?,
            None => answers?,
        };
        let span_id = match parent.is_sampled {
            true => fastrand::u64(1..),
            false => parent.span_id,
        };
        Some(Self {
            own: TraceParent { span_id, ..parent },
            parent: parent.span_id,
        })
    }

    /// The value of the field that tells the host.
    pub(crate) fn value(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.own.to_string()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Span;
    use leasehold_exchange::{Fields, RequestHead, TRACEPARENT, TraceParent};

    #[test]
    fn a_request_is_within_the_span_that_the_guest_names_or_that_of_what_it_answers() {
        let answered = TraceParent {
            trace_id: 1,
            span_id: 2,
            is_sampled: true,
        };
        let named = TraceParent {
            span_id: 3,
            ..answered
        };
        let mut head = RequestHead::empty();
        assert_eq!(Span::of(&head, None), None);
        let span = Span::of(&head, Some(answered)).expect("traced");
        assert!(span.parent == 2 && span.own.span_id != 2 && span.own.trace_id == 1);
        let unsampled = TraceParent {
            is_sampled: false,
            ..answered
        };
        let span = Span::of(&head, Some(unsampled)).expect("told on");
        assert_eq!(span.own, unsampled);
        head.fields = Fields::new(1024);
        let value = named.to_string();
        head.fields
            .push(TRACEPARENT, value.as_bytes())
            .expect("room");
        assert_eq!(Span::of(&head, Some(answered)).expect("traced").parent, 3);
        // What a guest says and is none is sent as it is.
        head.fields = Fields::new(1024);
        head.fields.push(TRACEPARENT, b"none").expect("room");
        assert_eq!(Span::of(&head, Some(answered)), None);
    }
}
