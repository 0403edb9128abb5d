//! The spans of a request, as OpenTelemetry has them.

use leasehold_front::{Outcome, Record};
use leasehold_outgoing::Sent;
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
    let own = SpanData {
        parent_span_is_remote: trace.parent.is_some(),
        name: method(&record.method).into(),
        attributes: attributes(record),
        status: status(record),
        ..span(
            SpanKind::Server,
            (trace.trace_id, trace.span_id, trace.parent.unwrap_or(0)),
            (began, ended),
        )
    };
    let child = |name: &'static str, from: Duration, to: Duration| SpanData {
        span_context: context(trace.trace_id, fastrand::u64(1..)),
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

/// Returns the span of a request that a guest sent, which ended now.
pub(super) fn sent(sent: &Sent, ended: SystemTime) -> SpanData {
    let began = ended.checked_sub(sent.elapsed).unwrap_or(ended);
    let mut attributes = vec![
        KeyValue::new("http.request.method", sent.method.clone()),
        KeyValue::new("url.full", sent.url.clone()),
        KeyValue::new("server.address", sent.host.clone()),
        KeyValue::new("leasehold.tenant", sent.tenant.clone()),
    ];
    if let Some(port) = sent.port {
        attributes.push(KeyValue::new("server.port", i64::from(port)));
    }
    if let Some(status) = sent.status {
        let status = i64::from(status);
        attributes.push(KeyValue::new("http.response.status_code", status));
    }
    // Of a client's span, a status from 400 on is an error, too (OpenTelemetry's conventions for HTTP).
    let error = match (sent.failure, sent.status) {
        (Some(failure), _) => Some(failure.to_string()),
        (None, Some(status @ 400..)) => Some(status.to_string()),
        (None, _) => None,
    };
    let status = error.map_or(Status::Unset, |error| {
        attributes.push(KeyValue::new("error.type", error.clone()));
        match sent.failure {
            Some(_) => Status::error(error),
            None => Status::error(""),
        }
    });
    let of = (sent.span.trace_id, sent.span.span_id, sent.parent);
    SpanData {
        name: method(&sent.method).into(),
        attributes,
        status,
        ..span(SpanKind::Client, of, (began, ended))
    }
}

/// A span with these numbers of its trace, itself and its parent, from one instant to another.
fn span(
    kind: SpanKind,
    (trace_id, span_id, parent): (u128, u64, u64),
    (start_time, end_time): (SystemTime, SystemTime),
) -> SpanData {
    SpanData {
        span_context: context(trace_id, span_id),
        parent_span_id: SpanId::from_bytes(parent.to_be_bytes()),
        parent_span_is_remote: false,
        span_kind: kind,
        name: "".into(),
        start_time,
        end_time,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("leasehold")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

fn context(trace_id: u128, span_id: u64) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(trace_id.to_be_bytes()),
        SpanId::from_bytes(span_id.to_be_bytes()),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    )
}

/// Returns the name of a request's span.
fn method(method: &str) -> &'static str {
    let known = METHODS.iter().find(|known| **known == method);
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
