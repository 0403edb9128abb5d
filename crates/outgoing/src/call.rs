//! One call; of a request how it is sent, and its response handed to the guest.

use crate::body::{Half, RequestBody, headers};
use crate::calling::{Calling, unless_over};
use crate::connect::Target;
use crate::connection;
use crate::datagrams;
use crate::informational::Awaiting;
use crate::listening;
use crate::names;
use crate::payer::Payer;
use crate::pool::Connection;
use crate::sent::{Sent, Span};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use leasehold_exchange::{
    Call, CallError, CallKind, CallOutcome, CallTimeouts, Failure, Fields, Read, RequestHead,
    ResponseHead, Scheme, TRACEPARENT, may_be_trailer,
};
use leasehold_lease::{Destination, Protocol, decimal};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a connection is waited for to be ready again.
const READY: Duration = Duration::from_millis(5);

/// How long the body of a request is waited for whose method has none by custom.
const BODY: Duration = Duration::from_millis(10);

/// Tells the observer of a request that is over.
fn observe(
    calling: &Calling,
    half: &Half,
    (head, span): (&RequestHead, Span),
    elapsed: Duration,
    failure: Option<CallError>,
) {
    let Some(observer) = &calling.observer else {
        return;
    };
    let RequestHead {
        scheme,
        authority,
        path_with_query,
        ..
    } = head;
    let named = authority.parse::<Authority>().ok();
    let named = named.as_ref();
    observer(&Sent {
        tenant: calling.tenant.to_string(),
        span: span.own,
        parent: span.parent,
        method: head.method.clone(),
        url: format!("{}://{authority}{path_with_query}", scheme.name()),
        host: named.map_or("", Authority::host).to_owned(),
        port: named.and_then(Authority::port_u16),
        status: half.status.get(),
        elapsed,
        failure,
    });
}

/// Counts a call when it is over, by how it ended.
struct Ending(CallOutcome, Rc<Payer>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.1.outbox().ended(self.0);
    }
}

/// Does what a call asks for, unless the guest gives it up.
pub(crate) async fn answer(calling: Rc<Calling>, call: Call) {
    let Call { half, kind } = call;
    let is_sent = matches!(
        kind,
        CallKind::Request {
            has_body: false,
            ..
        }
    );
    let half = Rc::new(Half {
        half: RefCell::new(half),
        is_sent: Cell::new(is_sent),
        is_given_up: Cell::new(false),
        status: Cell::new(None),
    });
    // Dropping this with its tenant gives it up.
    let mut ending = Ending(CallOutcome::Abandoned, calling.connecting.payer.clone());
    let done = match kind {
        CallKind::Request {
            head,
            timeouts,
            answers,
            ..
        } => {
            let observed = calling.observer.as_ref();
            let span = observed.and_then(|_| Span::of(&head, answers));
            let began = Instant::now();
            let sending = send(&calling, &half, (&head, span), timeouts);
            let done = unless_over(&calling, &half, sending).await;
            if let Some(span) = span.filter(|span| span.own.is_sampled) {
                observe(&calling, &half, (&head, span), began.elapsed(), done.err());
            }
            done
        }
        CallKind::LookUp { name } => {
            unless_over(&calling, &half, names::look_up(&calling, &half, name)).await
        }
        // What the guest sent before it dropped the socket is sent still.
        CallKind::Connect { to, options } => {
            connection::make_and_carry(&calling, &half, to, options).await
        }
        CallKind::Listen {
            at,
            backlog,
            hop_limit,
        } => listening::listen(&calling, &half, at, (backlog, hop_limit)).await,
        CallKind::Accept { at, options } => {
            listening::accept_and_carry(&calling, &half, at, options).await
        }
        CallKind::Bind { to, hop_limit } => {
            datagrams::bind_and_carry(&calling, &half, to, hop_limit).await
        }
    };
    ending.0 = match done {
        Ok(()) => CallOutcome::Answered,
        Err(error) => {
            let error = match half.is_given_up.get() {
                true => CallError::Abandoned,
                false => error,
            };
            // What came before is the guest's.
            half.half.borrow_mut().cut(Failure::Call(error));
            error.into()
        }
    };
}

async fn send(
    calling: &Calling,
    half: &Rc<Half>,
    (head, span): (&RequestHead, Option<Span>),
    timeouts: CallTimeouts,
) -> Result<(), CallError> {
    let until = Instant::now() + Duration::from(calling.lease.timeout);
    let (target, mut request) = request(half, head, span)?;
    let lease = &calling.lease;
    let destination = lease.destination(Protocol::http(target.is_https), &target.host, target.port);
    let destination = destination.ok_or(CallError::Denied)?;
    frame(half, &mut request).await;
    let limit =
        |part: Option<Duration>| part.map_or(until, |part| until.min(Instant::now() + part));
    let (connection, response) =
        match reuse(calling, &target, request, limit(timeouts.first_byte)).await? {
            Reused::Answered(connection, response) => (connection, response),
            Reused::Not(unsent) => {
                let mut request = match unsent {
                    Some(request) => request,
                    // It has no body.
                    None => self::request(half, head, span)?.1,
                };
                let connecting = calling.connecting.connect(&target, destination);
                let mut connection = timeout_at(limit(timeouts.connect), connecting)
                    .await
                    .map_err(|_| CallError::ConnectTimeout)??;
                let awaiting = Awaiting::of(&mut request);
                let responding = connection.sender.send_request(request);
                let response = awaiting
                    .answer(responding, limit(timeouts.first_byte))
                    .await?
                    .map_err(|error| connection.error(&error))?;
                (connection, response)
            }
        };
    let (mut body, limits) = respond(half, response)?;
    loop {
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let frame = timeout_at(limit(timeouts.between_bytes), frame)
            .await
            .map_err(|_| CallError::ReadTimeout)?;
        let Some(frame) = frame else {
            return finish(calling, target, connection, half, None).await;
        };
        let frame = frame.map_err(|_| CallError::Incomplete)?;
        match frame.into_data() {
            Ok(bytes) => timeout_at(until, write(half, bytes))
                .await
                .map_err(|_| CallError::ReadTimeout)?,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    let trailers = fields(&trailers, limits, may_be_trailer)?;
                    return finish(calling, target, connection, half, Some(trailers)).await;
                }
            }
        }
    }
}

/// Decides how the body of a request is framed whose method has none by custom. Guests take the body of each
/// request, and end it at once where there is none: it is not sent then. The HTTP library leaves out
/// any other unless its framing is stated.
async fn frame(half: &Half, request: &mut Request<RequestBody>) {
    let is_bare = matches!(*request.method(), Method::GET | Method::HEAD);
    if half.is_sent.get() || !is_bare || request.headers().contains_key(CONTENT_LENGTH) {
        return;
    }
    let settled = poll_fn(|context| {
        let mut half = half.half.borrow_mut();
        match half.poll_readable(context.waker()) {
            true => Poll::Ready(half.read(&mut []) == Read::End),
            false => Poll::Pending,
        }
    });
    match timeout(BODY, settled).await {
        Ok(true) => half.is_sent.set(true),
        _ => {
            let chunked = HeaderValue::from_static("chunked");
            request.headers_mut().insert(TRANSFER_ENCODING, chunked);
        }
    }
}

/// What became of a request on an idle connection.
enum Reused {
    Answered(Connection, Response<Incoming>),
    /// There is none, or the host has closed it: the request, unless it was made into bytes already.
    Not(Option<Request<RequestBody>>),
}

/// Sends a request on an idle connection. One that the host closes just then is no error: nothing was sent
/// on it, or a request that may be sent twice.
async fn reuse(
    calling: &Calling,
    target: &Target,
    mut request: Request<RequestBody>,
    until: Instant,
) -> Result<Reused, CallError> {
    let Some(mut idle) = calling.pool.take(target) else {
        return Ok(Reused::Not(Some(request)));
    };
    if idle.sender.ready().await.is_err() {
        return Ok(Reused::Not(Some(request)));
    }
    let is_repeatable = request.method().is_safe() && request.body().is_end_stream();
    let awaiting = Awaiting::of(&mut request);
    let responding = idle.sender.try_send_request(request);
    match awaiting.answer(responding, until).await? {
        Ok(response) => Ok(Reused::Answered(idle, response)),
        Err(mut failed) => match failed.take_message() {
            Some(request) => Ok(Reused::Not(Some(request))),
            // Closed or reset, before a head came: a head that is no HTTP is an answer.
            None if is_repeatable && !failed.error().is_parse() => Ok(Reused::Not(None)),
            None => Err(idle.error(failed.error())),
        },
    }
}

/// The request as it is sent, and where to.
fn request(
    half: &Rc<Half>,
    head: &RequestHead,
    span: Option<Span>,
) -> Result<(Target, Request<RequestBody>), CallError> {
    let malformed = |_| CallError::Malformed;
    let authority: Authority = head.authority.parse().map_err(|_| CallError::Malformed)?;
    let method = Method::from_bytes(head.method.as_bytes()).map_err(|_| CallError::Malformed)?;
    if authority.as_str().contains('@') || method == Method::CONNECT {
        return Err(CallError::Malformed);
    }
    let is_https = head.scheme == Scheme::Https;
    let port = match authority.port() {
        Some(port) => decimal(port.as_str()).ok_or(CallError::Malformed)?,
        None => Destination::port_of(is_https),
    };
    let target = Target {
        is_https,
        host: authority.host().to_ascii_lowercase(),
        port,
    };
    let path = match head.path_with_query.as_str() {
        "" => "/".to_owned(),
        query if query.starts_with('?') => format!("/{query}"),
        path => path.to_owned(),
    };
    let path = PathAndQuery::try_from(path).map_err(|_| CallError::Malformed)?;
    let mut request = Request::new(RequestBody(half.clone()));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers(&head.fields);
    let host = HeaderValue::from_str(authority.as_str()).map_err(malformed)?;
    request.headers_mut().insert(HOST, host);
    if let Some(parent) = span.and_then(|span| span.value()) {
        request.headers_mut().insert(TRACEPARENT, parent);
    }
    // How the body is framed is decided here.
    request.headers_mut().remove(TRANSFER_ENCODING);
    Ok((target, request))
}

/// Gives the guest the head of the response.
fn respond(shared: &Half, response: Response<Incoming>) -> Result<(Incoming, u32), CallError> {
    let (parts, body) = response.into_parts();
    let status = parts.status.as_u16();
    if status < 200 {
        return Err(CallError::Protocol);
    }
    shared.status.set(Some(status));
    let mut half = shared.half.borrow_mut();
    let limit = half.limits().head_bytes;
    // It does not frame the body then (RFC 9112 §6.3), and may say anything.
    let is_coded = parts.headers.contains_key(TRANSFER_ENCODING);
    if !is_only_chunked(&parts.headers) {
        return Err(CallError::Coding);
    }
    let of_connection = named_by_connection(&parts.headers);
    let is_shown = |name: &str| {
        let is_length = is_coded && name == CONTENT_LENGTH.as_str();
        !is_length && !of_connection.iter().any(|other| other == name)
    };
    let fields = fields(&parts.headers, limit, is_shown)?;
    let _ = half.respond(ResponseHead { status, fields });
    Ok((body, limit))
}

/// Whether the body has no coding that the guest, which does not see the field, would take for the body itself.
fn is_only_chunked(headers: &HeaderMap) -> bool {
    let fields = headers.get_all(TRANSFER_ENCODING).iter();
    let mut codings = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    codings.all(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// The names of fields that belong to the connection, since the other side says so (RFC 9110 §7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let lists = headers.get_all(CONNECTION).iter();
    let names = lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','));
    names.map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// Those fields whose name is shown to the guest.
fn fields(
    headers: &HeaderMap,
    limit: u32,
    is_shown: impl Fn(&str) -> bool,
) -> Result<Fields, CallError> {
    let mut fields = Fields::new(limit);
    let shown = headers.iter().filter(|(name, _)| is_shown(name.as_str()));
    for (name, value) in shown {
        let pushed = fields.push(name.as_str(), value.as_bytes());
        pushed.map_err(|_| CallError::HeadSize)?;
    }
    Ok(fields)
}

/// Writes a part of the response as the guest takes it.
async fn write(half: &Half, mut bytes: Bytes) {
    while !bytes.is_empty() {
        let written = poll_fn(|context| {
            let mut half = half.half.borrow_mut();
            if !half.poll_room(context.waker()) {
                return Poll::Pending;
            }
            match half.room() {
                // The guest takes no more: the call is given up as well, or will be.
                None => Poll::Ready(None),
                Some(_) => Poll::Ready(Some(half.write(&bytes))),
            }
        });
        match written.await {
            Some(written) => drop(bytes.split_to(written)),
            None => return,
        }
    }
}

/// Keeps the connection if it can be used again, and ends the response.
async fn finish(
    calling: &Calling,
    target: Target,
    mut connection: Connection,
    half: &Half,
    trailers: Option<Fields>,
) -> Result<(), CallError> {
    // It is not while the request's body is on its way.
    let is_reusable = matches!(timeout(READY, connection.sender.ready()).await, Ok(Ok(())));
    if is_reusable {
        calling.pool.put(target, connection);
    }
    half.half.borrow_mut().finish(trailers);
    Ok(())
}
