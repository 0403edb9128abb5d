//! W3C trace context: the trace that something belongs to, and the span that caused it, as the field `traceparent` says.

use std::fmt;

/// The field that names a trace and the span in it.
pub const TRACEPARENT: &str = "traceparent";

/// The length of a `traceparent` of version 0, which later versions begin with.
const LENGTH: usize = 55;
const SAMPLED: u8 = 1;

/// What a `traceparent` says. Its text is that of version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The number of the trace, never 0.
    pub trace_id: u128,
    /// The number of the span that is the parent of what has this, never 0.
    pub span_id: u64,
    /// Whether the parent is recorded.
    pub is_sampled: bool,
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(
            f,
            "00-{:032x}-{:016x}-{flags:02x}",
            self.trace_id, self.span_id
        )
    }
}

impl TraceParent {
    /// What the value of the field says; `None` if it is malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
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
        let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self {
            trace_id,
            span_id,
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::TraceParent;

    const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn what_is_read_of_a_traceparent_is_what_it_says() {
        let read = TraceParent::parse(SENT.as_bytes()).expect("it is one");
        assert_eq!(read.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(read.span_id, 0x00f0_67aa_0ba9_02b7);
        assert!(read.is_sampled && read.to_string() == SENT);
        let unsampled = format!("{}00", &SENT[..53]);
        let read = TraceParent::parse(unsampled.as_bytes()).expect("it is one");
        assert!(!read.is_sampled && read.to_string() == unsampled);
        let later = SENT.replacen("00", "01", 1);
        for sent in [&later, &format!("{later}-more")] {
            assert!(TraceParent::parse(sent.as_bytes()).is_some(), "{sent}");
        }
    }

    #[test]
    fn what_is_no_traceparent_says_nothing() {
        let later = SENT.replacen("00", "01", 1);
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
            assert_eq!(TraceParent::parse(sent.as_bytes()), None, "{sent}");
        }
    }
}
