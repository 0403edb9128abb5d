//! The spans of a request, as OpenTelemetry has them.

use leasehold_front::{Outcome, Record};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::time::{Duration, SystemTime};

/// The methods that a span may be named for; others are `HTTP`.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT",
];

/// Returns the span of a request that ended now, and those of its parts; none if it is not recorded.
pub(super) fn spans(record: &Record, ended: SystemTime) -> Vec<SpanData> {
    let Some(trace) = record.trace.filter(|trace| trace.is_sampled) else {
        return Vec::new();
    };
    let began = ended.checked_sub(record.elapsed).unwrap_or(ended);
    let context = |span_id: u64| {
        SpanContext::new(
            TraceId::from_bytes(trace.trace_id.to_be_bytes()),
            SpanId::from_bytes(span_id.to_be_bytes()),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        )
    };
    let own = SpanData {
        span_context: context(trace.span_id),
        parent_span_id: SpanId::from_bytes(trace.parent.unwrap_or(0).to_be_bytes()),
        parent_span_is_remote: trace.parent.is_some(),
        span_kind: SpanKind::Server,
        name: method(record).to_owned().into(),
        start_time: began,
        end_time: ended,
        attributes: attributes(record),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: status(record),
        instrumentation_scope: InstrumentationScope::builder("leasehold")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    };
    let child = |name: &'static str, from: Duration, to: Duration| SpanData {
        span_context: context(fastrand::u64(1..)),
        parent_span_id: own.span_context.span_id(),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time: began + from,
        end_time: began + to,
        attributes: Vec::new(),
        status: Status::Unset,
        ..own.clone()
    };
    let mut spans = Vec::with_capacity(3);
    if let Some(timing) = record.timing {
        // A request that no tenant took waited until its end.
        let queued = timing.queued.unwrap_or(record.elapsed).min(record.elapsed);
        spans.push(child("queue", Duration::ZERO, queued));
        if timing.queued.is_some() {
            let guest = i64::try_from(timing.guest.as_nanos()).unwrap_or(i64::MAX);
            let mut run = child("run", queued, record.elapsed);
            run.attributes = vec![KeyValue::new("leasehold.guest.time_ns", guest)];
            spans.push(run);
        }
    }
    spans.insert(0, own);
    spans
}

fn method(record: &Record) -> &'static str {
    let known = METHODS.iter().find(|method| **method == record.method);
    known.unwrap_or(&"HTTP")
}

fn attributes(record: &Record) -> Vec<KeyValue> {
    let (path, query) = record.path.split_once('?').unwrap_or((&record.path, ""));
    let integer = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new("http.request.method", record.method.clone()),
        KeyValue::new("url.path", path.to_owned()),
        KeyValue::new("server.address", record.authority.clone()),
        KeyValue::new("client.address", record.remote.ip().to_string()),
        KeyValue::new("client.port", i64::from(record.remote.port())),
        KeyValue::new("http.response.body.size", integer(record.bytes)),
        KeyValue::new("leasehold.listener", record.listener.to_string()),
        KeyValue::new("leasehold.outcome", record.outcome.name()),
        KeyValue::new("leasehold.request", integer(record.id)),
    ];
    if !query.is_empty() {
        attributes.push(KeyValue::new("url.query", query.to_owned()));
    }
    if let Some(tenant) = &record.tenant {
        attributes.push(KeyValue::new("leasehold.tenant", tenant.clone()));
    }
    if let Some(status) = record.status {
        let status = i64::from(status);
        attributes.push(KeyValue::new("http.response.status_code", status));
    }
    if record.outcome != Outcome::Answered {
        attributes.push(KeyValue::new("error.type", record.outcome.name()));
    }
    attributes
}

/// Returns the status of a span: an error if the server caused the outcome.
fn status(record: &Record) -> Status {
    let is_failure = record.status.is_some_and(|status| status >= 500)
        || matches!(record.outcome, Outcome::Failed | Outcome::Timeout);
    match (is_failure, record.failure) {
        (true, Some(failure)) => Status::error(failure.to_string()),
        (true, None) => Status::error(record.outcome.name()),
        (false, _) => Status::Unset,
    }
}
