//! W3C trace context: the trace that a request belongs to, and its span in it.
//!
//! The field `traceparent` that a client sends is continued; a request without one, or with one that
//! is malformed, begins a trace. The guest gets the request's own span as its parent.

use http::HeaderMap;
use std::fmt;

/// The field that names a trace and the span in it.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// What others say about the trace, for a `traceparent` that is continued.
pub(crate) const TRACESTATE: &str = "tracestate";

/// The length of a `traceparent` of version 0, which later versions begin with.
const LENGTH: usize = 55;
const SAMPLED: u8 = 1;

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
            (Some(parent), None) => parse(parent.as_bytes()),
            _ => None,
        };
        let span_id = fastrand::u64(1..);
        match parent {
            Some((trace_id, parent, flags)) => Self {
                trace_id,
                span_id,
                parent: Some(parent),
                is_sampled: flags & SAMPLED != 0,
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
        let flags = u8::from(self.is_sampled);
        write!(
            f,
            "00-{:032x}-{:016x}-{flags:02x}",
            self.trace_id, self.span_id
        )
    }
}

/// The trace, the span and the flags of a `traceparent`; `None` if it is none.
fn parse(value: &[u8]) -> Option<(u128, u64, u8)> {
    let (fields, rest) = value.split_at_checked(LENGTH)?;
    let fields = str::from_utf8(fields).ok()?;
    let is_hex = |text: &str| {
        text.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut parts = fields.split('-');
    let mut part = |length: usize| {
        parts
            .next()
            .filter(|part| part.len() == length && is_hex(part))
    };
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let may_have_more = version != "00" && version != "ff" && rest.first() == Some(&b'-');
    if version == "ff" || !(rest.is_empty() || may_have_more) {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
    let span = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
    Some((trace, span, u8::from_str_radix(flags, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Sampling, TRACEPARENT, Trace, parse};
    use http::{HeaderMap, HeaderValue};

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
            let read = parse(given.as_bytes()).expect("it is one");
            assert_eq!(read, (trace.trace_id, trace.span_id, u8::from(is_sampled)));
            assert_ne!(Some(trace.span_id), trace.parent);
        }
    }

    #[test]
    fn what_is_no_traceparent_begins_a_trace() {
        let later = SENT.replacen("00", "01", 1);
        for sent in [SENT, &later, &format!("{later}-more")] {
            assert!(parse(sent.as_bytes()).is_some(), "{sent}");
        }
        let malformed = [
            "",
            "00",
            &SENT[..54],
            &format!("{SENT}-more"),
            &format!("{later}more"),
            &SENT.replacen("00", "ff", 1),
            &SENT.to_uppercase(),
            &SENT.replace('-', "_"),
            &SENT.replace("4bf9", "4-f9"),
            &SENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &SENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &SENT.replace("4bf9", "+bf9"),
        ];
        for sent in malformed {
            assert_eq!(parse(sent.as_bytes()), None, "{sent}");
            let trace = Trace::of(&fields(&[sent]), Sampling::of_ratio(1.0));
            assert!(trace.parent.is_none() && trace.is_sampled, "{sent}");
        }
        assert!(
            Trace::of(&fields(&[SENT, SENT]), Sampling::of_ratio(1.0))
                .parent
                .is_none()
        );
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
