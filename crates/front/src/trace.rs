//! W3C trace context: the trace that a request belongs to, and its span in it.
//!
//! The field `traceparent` that a client sends is continued; a request without one, or with one that
//! is malformed, begins a trace. The guest gets the request's own span as its parent.

use http::HeaderMap;
use leasehold_exchange::{TRACEPARENT, TraceParent};
use std::fmt;

/// What others say about the trace, for a `traceparent` that is continued.
pub(crate) const TRACESTATE: &str = "tracestate";

/// Which part of the traces that begin here are recorded. A trace that is continued is recorded if
/// its parent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// A trace is recorded if half of the lower half of its number is below this.
    below: u64,
}

impl Sampling {
    /// Records this part of the traces, from 0 to 1; what is outside is 0 or 1.
    pub fn of_ratio(ratio: f64) -> Self {
        Self {
            below: (ratio.clamp(0.0, 1.0) * (1u64 << 63) as f64) as u64,
        }
    }

    const fn takes(self, trace_id: u128) -> bool {
        (trace_id as u64) >> 1 < self.below
    }
}

/// The span of a request in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// The number of the trace, never 0.
    pub trace_id: u128,
    /// The number of the request's own span, never 0.
    pub span_id: u64,
    /// The span that the client named; `None` if the trace begins here.
    pub parent: Option<u64>,
    /// Whether it is recorded.
    pub is_sampled: bool,
}

impl Trace {
    /// Continues the trace that the fields of a request name, or begins one.
    pub(crate) fn of(fields: &HeaderMap, sampling: Sampling) -> Self {
        let mut parents = fields.get_all(TRACEPARENT).iter();
        let parent = match (parents.next(), parents.next()) {
            (Some(parent), None) => TraceParent::parse(parent.as_bytes()),
            _ => None,
        };
        let span_id = fastrand::u64(1..);
        match parent {
            Some(parent) => Self {
                trace_id: parent.trace_id,
                span_id,
                parent: Some(parent.span_id),
                is_sampled: parent.is_sampled,
            },
            None => {
                let trace_id = fastrand::u128(1..);
                Self {
                    trace_id,
                    span_id,
                    parent: None,
                    is_sampled: sampling.takes(trace_id),
                }
            }
        }
    }
}

/// The value of `traceparent` for what the request causes.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = TraceParent {
            trace_id: self.trace_id,
            span_id: self.span_id,
            is_sampled: self.is_sampled,
        };
        own.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Sampling, Trace};
    use http::{HeaderMap, HeaderValue};
    use leasehold_exchange::{TRACEPARENT, TraceParent};

    const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn fields(values: &[&str]) -> HeaderMap {
        let value = |value: &&str| {
            let value = HeaderValue::from_str(value).expect("a value");
            (http::HeaderName::from_static(TRACEPARENT), value)
        };
        values.iter().map(value).collect()
    }

    #[test]
    fn a_trace_is_continued_with_a_span_of_its_own() {
        for (sent, is_sampled) in [(SENT, true), (&format!("{}00", &SENT[..53]), false)] {
            let trace = Trace::of(&fields(&[sent]), Sampling::of_ratio(0.0));
            assert_eq!(trace.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
            assert_eq!(trace.parent, Some(0x00f0_67aa_0ba9_02b7));
            assert_eq!(trace.is_sampled, is_sampled);
            let given = trace.to_string();
            let read = TraceParent::parse(given.as_bytes()).expect("it is one");
            assert_eq!(
                (read.trace_id, read.span_id),
                (trace.trace_id, trace.span_id)
            );
            assert!(read.is_sampled == is_sampled && Some(trace.span_id) != trace.parent);
        }
    }

    #[test]
    fn what_is_no_traceparent_begins_a_trace_and_so_do_two() {
        for sent in [&[&SENT[..54]][..], &[SENT, SENT]] {
            let trace = Trace::of(&fields(sent), Sampling::of_ratio(1.0));
            assert!(trace.parent.is_none() && trace.is_sampled, "{sent:?}");
        }
    }

    #[test]
    fn the_part_of_the_traces_that_was_asked_for_is_recorded() {
        for ratio in [0.0, 0.25, 1.0] {
            let sampling = Sampling::of_ratio(ratio);
            let taken = (0..20_000).filter(|_| Trace::of(&HeaderMap::new(), sampling).is_sampled);
            let part = taken.count() as f64 / 20_000.0;
            assert!((part - ratio).abs() < 0.02, "{ratio}: {part}");
        }
    }
}
