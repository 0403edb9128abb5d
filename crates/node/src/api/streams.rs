//! Answers without an end: events, and log lines. Each is written as fast as its reader reads, and says how
//! much the reader missed.

use super::Api;
use super::long_places::LongPlace;
use crate::events::Events;
use crate::logs::Log;
use crate::problem::Problem;
use crate::view::{ErrorBody, Event, LogLine};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::stream::unfold;
use leasehold_lease::decimal;
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::watch;
use utoipa::IntoParams;

/// Events that are taken out of the ring at once.
const BATCH: usize = 64;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    /// Only events with a greater number; those that are still kept. As well: the header `Last-Event-ID`. A number
    /// that this node has not given yet is of a node before it, and all events that are kept are sent.
    since: Option<u64>,
}

struct Following {
    events: Arc<Events>,
    changed: watch::Receiver<u64>,
    since: u64,
    taken: VecDeque<Event>,
    _place: LongPlace,
}

/// What happens, as server-sent events: `id` is the number, `event` the kind, `data` the event as JSON.
/// Without a number it begins with what happens next.
#[utoipa::path(get, path = "/v1/events", params(Since),
    responses((status = 200, body = Event, content_type = "text/event-stream"), (status = 503, body = ErrorBody)))]
pub(super) async fn events(
    State(api): State<Api>,
    Query(Since { since }): Query<Since>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Problem> {
    let last = headers
        .get("last-event-id")
        .and_then(|id| decimal(id.to_str().ok()?));
    let following = Following {
        since: since.or(last).unwrap_or_else(|| api.events.newest()),
        changed: api.events.subscribe(),
        events: api.events,
        taken: VecDeque::new(),
        _place: api.long.take()?,
    };
    let stream = unfold(following, |mut following| async {
        loop {
            if let Some(event) = following.taken.pop_front() {
                following.since = event.seq;
                let sent = sse::Event::default()
                    .id(event.seq.to_string())
                    .event(event.kind.name())
                    .json_data(&event);
                return Some((Ok(sent.unwrap_or_default()), following));
            }
            following.changed.borrow_and_update();
            following.taken = following.events.after(following.since, BATCH).into();
            if following.taken.is_empty() && following.changed.changed().await.is_err() {
                return None;
            }
        }
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct Lines {
    /// Whether the answer goes on with what is written later.
    follow: Option<bool>,
    /// With how many of the last lines it begins.
    lines: Option<usize>,
}

/// What a tenant writes, and what is said about it: an object of JSON for each line.
#[utoipa::path(get, path = "/v1/tenants/{name}/logs", params(("name" = String, Path), Lines),
    responses((status = 200, body = LogLine, content_type = "application/x-ndjson"), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody)))]
pub(super) async fn logs(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(Lines { follow, lines }): Query<Lines>,
) -> Result<Response, Problem> {
    let log = api
        .logs
        .get(&name)
        .ok_or_else(|| Problem::no_tenant(&name))?;
    log.collect();
    let (newest, first) = log.after(0, lines.unwrap_or(100));
    let body = match follow {
        Some(true) => {
            let reading = Reading {
                changed: log.subscribe(),
                log,
                newest,
                first: Some(text(&first)),
                _place: api.long.take()?,
            };
            Body::from_stream(unfold(reading, next))
        }
        _ => Body::from(text(&first)),
    };
    Ok(([("content-type", "application/x-ndjson")], body).into_response())
}

/// The lines of a tenant, as far as they were read.
struct Reading {
    log: Arc<Log>,
    changed: watch::Receiver<u64>,
    newest: u64,
    first: Option<String>,
    _place: LongPlace,
}

async fn next(mut reading: Reading) -> Option<(Result<String, Infallible>, Reading)> {
    if let Some(first) = reading.first.take().filter(|first| !first.is_empty()) {
        return Some((Ok(first), reading));
    }
    loop {
        reading.changed.borrow_and_update();
        let (now, lines) = reading.log.after(reading.newest, usize::MAX);
        reading.newest = now;
        if !lines.is_empty() {
            return Some((Ok(text(&lines)), reading));
        }
        reading.changed.changed().await.ok()?;
    }
}

fn text(lines: &[LogLine]) -> String {
    let line = |line: &LogLine| serde_json::to_string(line).unwrap_or_default() + "\n";
    lines.iter().map(line).collect()
}
