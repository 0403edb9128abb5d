//! A request, from its head to the head of its response.

use crate::access::{Outcome, Record};
use crate::body::{ResponseBody, Traffic};
use crate::connection::{Connection, Ongoing};
use crate::listening::Served;
use crate::payer;
use crate::reply::{self, Reply};
use crate::request::{self, Arrival};
use crate::site::Site;
use crate::trace::Trace;
use crate::upload::NoResponse;
use http::header::HeaderName;
use http::{Request, Response};
use hyper::body::Incoming;
use leasehold_exchange::{NotTaken, UnderWay, exchange, has_body};
use leasehold_lease::Host;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Answers a request: by the tenant that a route names, or by itself. Dropping the future, or the body of
/// the response, abandons the exchange. The request is under way from this call on: a client that goes at
/// once drops the future before it is polled. It is boxed, since its stream has the room for it until the client has taken
/// everything.
pub(crate) fn answer(
    served: Rc<Served>,
    connection: &Rc<Connection>,
    request: Request<Incoming>,
) -> Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>>>> {
    let (parts, incoming) = request.into_parts();
    let mut ongoing = begin(&served, connection, &parts);
    let routed = route(&served, &parts, &mut ongoing);
    Box::pin(async move { Ok(answered(&served, &parts, incoming, (ongoing, routed)).await) })
}

async fn answered(
    served: &Served,
    parts: &http::request::Parts,
    incoming: Incoming,
    (mut ongoing, routed): (Ongoing, Result<Routed, Reply>),
) -> Response<ResponseBody> {
    payer::begins();
    let response = match routed {
        Ok(routed) => respond(served, parts, incoming, (&mut ongoing, routed)).await,
        Err(reply) => Err(reply),
    };
    let reply = match response {
        Ok((traffic, status, mut headers)) => {
            let timing = ongoing.site().filter(|site| site.server_timing());
            if let Some(value) =
                timing.and_then(|_| reply::server_timing(traffic.client().timing()))
            {
                headers.append(SERVER_TIMING, value);
            }
            ongoing.record.status = Some(status.as_u16());
            if let Some(place) = ongoing.place() {
                place.given();
            }
            let body = match has_body(parts.method.as_str(), status.as_u16()) {
                true => ResponseBody::of(traffic, ongoing, reply::stated(&headers)),
                false => ResponseBody::nothing(traffic, ongoing),
            };
            let mut response = Response::new(body);
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            return response;
        }
        Err(reply) => reply,
    };
    ongoing.record.status = Some(reply.status.as_u16());
    ongoing.record.bytes = reply.text.len() as u64;
    let failure = ongoing.record.failure;
    ongoing.ended(reply.outcome, failure);
    ongoing.replied();
    let has_body = has_body(parts.method.as_str(), reply.status.as_u16());
    reply.response().map(|text| match has_body {
        true => ResponseBody::Text(text, Box::new(ongoing)),
        false => ResponseBody::Nothing,
    })
}

fn begin(
    served: &Rc<Served>,
    connection: &Rc<Connection>,
    parts: &http::request::Parts,
) -> Ongoing {
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let record = Record {
        id: served.next_id(),
        remote: connection.remote(),
        listener: served.name().clone(),
        tenant: None,
        method: parts.method.as_str().to_owned(),
        authority: String::new(),
        path: path[..path.floor_char_boundary(Record::PATH_MOST)].to_owned(),
        status: None,
        bytes: 0,
        elapsed: std::time::Duration::ZERO,
        timing: None,
        trace: served
            .sampling()
            .map(|sampling| Trace::of(&parts.headers, sampling)),
        outcome: Outcome::ClientGone,
        failure: None,
    };
    Ongoing::begin(connection.clone(), served.log(), record, parts.version)
}

/// The tenant of a route, and a place in its lane if it runs. A tenant that has just lost the route does
/// not count: its successor's lane was there before its own was taken away.
fn enter(served: &Served, host: &Host, path: &str) -> Result<(Arc<Site>, Option<UnderWay>), Reply> {
    let mut routes = served.routes();
    loop {
        let site = routes.find(host, path).ok_or(reply::NO_ROUTE)?.clone();
        let under_way = site.enter();
        let now = served.routes();
        if under_way.is_some() || Arc::ptr_eq(&now, &routes) {
            return Ok((site, under_way));
        }
        routes = now;
    }
}

/// A request whose tenant is known.
struct Routed {
    site: Arc<Site>,
    /// What the client asked for the host by.
    authority: String,
    /// Its place in the tenant's lane, if that runs.
    under_way: Option<UnderWay>,
}

/// Finds the tenant of a request, which is the tenant's from now on, even if its client goes at once.
fn route(
    served: &Served,
    parts: &http::request::Parts,
    ongoing: &mut Ongoing,
) -> Result<Routed, Reply> {
    let target = request::target(parts, served.scheme()).map_err(reply::rejected)?;
    ongoing.record.authority.clone_from(&target.text);
    let (site, under_way) = enter(served, &target.authority.host, parts.uri.path())?;
    ongoing.routed(&site);
    Ok(Routed {
        site,
        authority: target.text,
        under_way,
    })
}

/// The exchange with the head of its response, or what the front answers instead.
async fn respond(
    served: &Served,
    parts: &http::request::Parts,
    incoming: Incoming,
    (ongoing, routed): (&mut Ongoing, Routed),
) -> Result<(Traffic, http::StatusCode, http::HeaderMap), Reply> {
    let Routed {
        site,
        authority,
        under_way,
    } = routed;
    let under_way = under_way.ok_or(reply::NOT_RUNNING)?;
    let arrival = Arrival {
        scheme: served.scheme(),
        authority: &authority,
        trace: ongoing.record.trace,
    };
    let head = request::head(parts, &arrival, site.limits()).map_err(reply::rejected)?;
    let lane = under_way.lane();
    let place = ongoing.take_place(&site).ok_or(reply::FULL)?;
    let until = Instant::now() + site.timeout();
    let (client, mut guest) = exchange(site.limits(), head, ongoing.record.id);
    guest.keep(place);
    guest.is_counted_as(&under_way);
    ongoing.entered(under_way);
    lane.offer(guest).map_err(|(_, why)| match why {
        NotTaken::Full => reply::FULL,
        NotTaken::Closed => reply::NOT_RUNNING,
    })?;
    payer::pays(&site, &lane);
    ongoing.due(until);
    let deadline = tokio::time::sleep_until(until.into());
    let mut traffic = Traffic::new(client, site, incoming, deadline);
    let head = poll_fn(|context| match traffic.poll_response(context) {
        Poll::Ready(Ok(head)) => Poll::Ready(Ok(reply::head(head))),
        Poll::Ready(Err(failure)) => Poll::Ready(Err(failure)),
        Poll::Pending => Poll::Pending,
    })
    .await;
    ongoing.record.timing = Some(traffic.client().timing());
    match head {
        Ok(Some((status, headers))) => {
            let is_kept = !has_body(parts.method.as_str(), status.as_u16())
                || reply::keeps_promise(&headers, traffic.client());
            match is_kept {
                true => Ok((traffic, status, headers)),
                false => Err(reply::BAD_RESPONSE),
            }
        }
        Ok(None) => Err(reply::BAD_RESPONSE),
        Err(NoResponse::Failure(failure)) => {
            ongoing.record.failure = Some(failure);
            Err(reply::failed(failure))
        }
        Err(NoResponse::Upload(fault)) => Err(reply::faulty(fault)),
    }
}
