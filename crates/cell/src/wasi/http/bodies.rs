//! `incoming-body`, `outgoing-body` and `future-trailers`.

use super::access::{self, make, paid};
use super::bindings::types::{self, ErrorCode};
use super::exchange::BodyEnd;
use super::kinds;
use super::object::{Child, FutureTrailers, Object, Origin, Packed};
use super::streams::{BodyInput, BodyOutput, Receiving, Sending, size_error};
use super::syntax::is_forbidden;
use crate::steps::{mark, step};
use crate::wasi::objects::Source;
use crate::wasi::poll::subscribe;
use crate::wasi::rep;
use crate::wasi::table::TableCharge;
use crate::wasi::view::Wasi;
use std::task::{Context, Poll, Waker};
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime::{Result, bail};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable};

type Incoming = Resource<kinds::IncomingBody>;
type Outgoing = Resource<kinds::OutgoingBody>;
type Future = Resource<kinds::FutureTrailers>;
type Fields = Resource<kinds::Fields>;

/// A trap unless the stream of a body is not with the guest.
fn check_childless(stream: Child) -> Result<()> {
    if stream == Child::Alive {
        bail!("a body is dropped or finished before its stream: resource has children");
    }
    Ok(())
}

impl Wasi<'_> {
    /// The guest reads no more of a message that it receives.
    fn close(&mut self, of: Origin) {
        match of {
            Origin::Exchange(number) => {
                if let Some(exchange) = self.0.http().exchange(number) {
                    exchange.close_request();
                }
            }
            Origin::Call(number) => self.0.calls().end(number),
        }
    }
}

const NO_ROOM: &str = "out of places or reclamation budget for another stream";

impl types::HostIncomingBody for Wasi<'_> {
    fn stream(&mut self, body: Incoming) -> Result<Result<Resource<DynInputStream>, ()>> {
        mark(step!("wasi:http/types", "[method]incoming-body.stream"));
        let handle = access::handle(self.0, &body)?;
        let mut body = access::incoming_body(self.0, &body)?;
        if body.stream != Child::Unborn {
            return Ok(Err(()));
        }
        let stream = BodyInput {
            from: Receiving::of(self.0, body.of),
            body: handle,
            has_failed: false,
        };
        let stream: DynInputStream = Box::new(stream);
        let stream = TableCharge::put(self.0.charged_table(), stream).context(NO_ROOM)?;
        body.stream = Child::Alive;
        rep::put(handle, Object::IncomingBody(body));
        Ok(Ok(stream))
    }

    fn finish(&mut self, body: Incoming) -> Result<Future> {
        mark(step!("wasi:http/types", "[static]incoming-body.finish"));
        let body = access::take_incoming_body(self.0, &body)?;
        check_childless(body.stream)?;
        let trailers = FutureTrailers {
            of: body.of,
            is_consumed: false,
        };
        make(self.0, Object::Trailers(trailers))
    }

    fn drop(&mut self, body: Incoming) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]incoming-body"));
        let body = access::take_incoming_body(self.0, &body)?;
        check_childless(body.stream)?;
        self.close(body.of);
        Ok(())
    }
}

impl types::HostFutureTrailers for Wasi<'_> {
    fn subscribe(&mut self, future: Future) -> Result<Resource<DynPollable>> {
        mark(step!(
            "wasi:http/types",
            "[method]future-trailers.subscribe"
        ));
        let trailers = access::trailers(self.0, &future)?;
        subscribe(self.0, Source::Trailers(trailers.of))
    }

    fn get(
        &mut self,
        future: Future,
    ) -> Result<Option<Result<Result<Option<Fields>, ErrorCode>, ()>>> {
        mark(step!("wasi:http/types", "[method]future-trailers.get"));
        let handle = access::handle(self.0, &future)?;
        let mut trailers = access::trailers(self.0, &future)?;
        if trailers.is_consumed {
            return Ok(Some(Err(())));
        }
        let from = Receiving::of(self.0, trailers.of);
        let mut context = Context::from_waker(Waker::noop());
        let fields = match from
            .as_ref()
            .map(|from| (from, from.poll_end(&mut context)))
        {
            None => Ok(None),
            Some((_, Poll::Pending)) => return Ok(None),
            Some((_, Poll::Ready(Err(error)))) => Err(error),
            Some((from, Poll::Ready(Ok(())))) => {
                let group = paid(self.0.arena())?;
                let kept = from.with_trailers(|trailers| {
                    let entries = trailers
                        .iter()
                        .map(|(name, value)| (name.as_bytes(), value))
                        .filter(|(name, _)| !is_forbidden(name));
                    Packed::of(group, entries)
                });
                match kept {
                    None => Ok(None),
                    Some(kept) => {
                        let fields = make(self.0, Object::Fields(paid(kept)?))?;
                        Ok(Some(fields))
                    }
                }
            }
        };
        trailers.is_consumed = true;
        rep::put(handle, Object::Trailers(trailers));
        Ok(Some(Ok(fields)))
    }

    fn drop(&mut self, future: Future) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]future-trailers"));
        let trailers = access::take_trailers(self.0, &future)?;
        self.close(trailers.of);
        Ok(())
    }
}

impl types::HostOutgoingBody for Wasi<'_> {
    fn write(&mut self, body: Outgoing) -> Result<Result<Resource<DynOutputStream>, ()>> {
        mark(step!("wasi:http/types", "[method]outgoing-body.write"));
        let handle = access::handle(self.0, &body)?;
        let mut body = access::outgoing_body(self.0, &body)?;
        if body.stream != Child::Unborn {
            return Ok(Err(()));
        }
        let to = body.of.and_then(|sink| Sending::of(self.0, sink));
        let stream = BodyOutput {
            is_closed: body.of.is_some() && to.is_none(),
            to,
            body: handle,
        };
        let stream: DynOutputStream = Box::new(stream);
        let stream = TableCharge::put(self.0.charged_table(), stream).context(NO_ROOM)?;
        body.stream = Child::Alive;
        rep::put(handle, Object::OutgoingBody(body));
        Ok(Ok(stream))
    }

    fn finish(
        &mut self,
        body: Outgoing,
        trailers: Option<Fields>,
    ) -> Result<Result<(), ErrorCode>> {
        mark(step!("wasi:http/types", "[static]outgoing-body.finish"));
        let body = access::take_outgoing_body(self.0, &body)?;
        check_childless(body.stream)?;
        let trailers = match trailers {
            Some(trailers) => Some(access::take_fields(self.0, &trailers)?),
            None => None,
        };
        let is_whole = body.expected.is_none_or(|bytes| bytes == body.written);
        if let Some(to) = body.of.and_then(|sink| Sending::of(self.0, sink)) {
            let sendable = trailers.map(|trailers| to.sendable(&trailers));
            let end = match (is_whole, sendable) {
                (true, None) => BodyEnd::Finished(None),
                (true, Some(Some(trailers))) => BodyEnd::Finished(Some(trailers)),
                (false, _) | (true, Some(None)) => BodyEnd::Incomplete,
            };
            to.end(end);
        }
        if let Some(trailers) = trailers {
            trailers.free();
        }
        Ok(match is_whole {
            true => Ok(()),
            false => Err(size_error(body.of, body.written)),
        })
    }

    fn drop(&mut self, body: Outgoing) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]outgoing-body"));
        let body = access::take_outgoing_body(self.0, &body)?;
        check_childless(body.stream)?;
        if let Some(to) = body.of.and_then(|sink| Sending::of(self.0, sink)) {
            to.end(BodyEnd::Incomplete);
        }
        Ok(())
    }
}
