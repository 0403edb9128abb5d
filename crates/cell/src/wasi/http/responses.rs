//! `outgoing-response`, `response-outparam`, `future-incoming-response` and `incoming-response`.

use super::access::{self, make, paid};
use super::bindings::types::{self, ErrorCode};
use super::fields::show;
use super::kinds;
use super::object::{
    self, Child, IncomingBody, Object, Origin, OutgoingBody, OutgoingResponse, Packed, Sink,
};
use super::outgoing::error_of;
use super::syntax::is_forbidden;
use crate::guest::Guest;
use crate::steps::{mark, step};
use crate::wasi::objects::Source;
use crate::wasi::poll::subscribe;
use crate::wasi::rep;
use crate::wasi::view::Wasi;
use wasmtime::component::Resource;
use wasmtime::{Result, bail};
use wasmtime_wasi::p2::DynPollable;

type Fields = Resource<kinds::Fields>;
type Response = Resource<kinds::OutgoingResponse>;
type Outparam = Resource<kinds::ResponseOutparam>;
type IncomingResponse = Resource<kinds::IncomingResponse>;
type Future = Resource<kinds::FutureIncomingResponse>;

/// The bytes that the body of a response has to have, if they are stated, as long as the response has this status:
/// what has no body states the length of another one's.
fn expected_bytes(guest: &mut Guest, response: &OutgoingResponse) -> Option<u64> {
    let number = guest.http().number();
    let exchange = guest.http().exchange(number);
    let takes_body = exchange.is_none_or(|exchange| exchange.takes_body(response.status));
    let stated = response.fields.stated_length().ok()?;
    stated.filter(|_| takes_body)
}

/// This response will not be sent: what was written of it is forgotten.
fn give_up(guest: &mut Guest, response: &OutgoingResponse) {
    let number = guest.http().number();
    if let Some(exchange) = guest.http().exchange(number) {
        exchange.give_up(response.number);
    }
}

impl types::HostOutgoingResponse for Wasi<'_> {
    fn new(&mut self, headers: Fields) -> Result<Response> {
        mark(step!("wasi:http/types", "[constructor]outgoing-response"));
        let mut fields = access::take_fields(self.0, &headers)?;
        fields.is_immutable = true;
        let number = self.0.http().next_response();
        let response = OutgoingResponse {
            number,
            status: 200,
            fields,
            body: None,
        };
        make(self.0, Object::Response(response))
    }

    fn status_code(&mut self, response: Response) -> Result<u16> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-response.status-code"
        ));
        Ok(access::response(self.0, &response)?.status)
    }

    fn set_status_code(&mut self, response: Response, status: u16) -> Result<Result<(), ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-response.set-status-code"
        ));
        let handle = access::handle(self.0, &response)?;
        let mut response = access::response(self.0, &response)?;
        if !(100..1000).contains(&status) {
            return Ok(Err(()));
        }
        response.status = status;
        rep::put(handle, Object::Response(response));
        let expected = expected_bytes(self.0, &response);
        if let Some(handle) = response.body
            && let Some(Object::OutgoingBody(mut body)) = rep::get(handle)
        {
            body.expected = expected;
            rep::put(handle, Object::OutgoingBody(body));
        }
        Ok(Ok(()))
    }

    fn headers(&mut self, response: Response) -> Result<Fields> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-response.headers"
        ));
        let response = access::response(self.0, &response)?;
        show(self.0, &response.fields)
    }

    fn body(&mut self, response: Response) -> Result<Result<Resource<kinds::OutgoingBody>, ()>> {
        mark(step!("wasi:http/types", "[method]outgoing-response.body"));
        let handle = access::handle(self.0, &response)?;
        let mut response = access::response(self.0, &response)?;
        if response.fields.stated_length().is_err() || response.body.is_some() {
            return Ok(Err(()));
        }
        let number = self.0.http().number();
        let body = OutgoingBody {
            of: Some(Sink::Response(number, response.number)),
            expected: expected_bytes(self.0, &response),
            written: 0,
            stream: Child::Unborn,
        };
        let body = make(self.0, Object::OutgoingBody(body))?;
        response.body = Some(access::handle(self.0, &body)?);
        rep::put(handle, Object::Response(response));
        Ok(Ok(body))
    }

    fn drop(&mut self, response: Response) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]outgoing-response"));
        let response = access::take_response(self.0, &response)?;
        give_up(self.0, &response);
        response.fields.free();
        Ok(())
    }
}

impl types::HostResponseOutparam for Wasi<'_> {
    fn set(&mut self, param: Outparam, response: Result<Response, ErrorCode>) -> Result<()> {
        mark(step!("wasi:http/types", "[static]response-outparam.set"));
        let number = access::take_outparam(self.0, &param)?;
        let exchange = self.0.http().exchange(number);
        let response = match response {
            Ok(response) => access::take_response(self.0, &response)?,
            Err(_) => {
                if let Some(exchange) = exchange {
                    exchange.refuse();
                }
                return Ok(());
            }
        };
        match exchange {
            Some(exchange) => exchange.respond(&response),
            // The request is over; what was written of its response was for the one that is answered now.
            None => give_up(self.0, &response),
        }
        response.fields.free();
        Ok(())
    }

    fn send_informational(
        &mut self,
        _param: Outparam,
        _status: u16,
        _headers: Fields,
    ) -> Result<Result<(), ErrorCode>> {
        bail!("informational responses are not implemented")
    }

    fn drop(&mut self, param: Outparam) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]response-outparam"));
        access::take_outparam(self.0, &param)?;
        Ok(())
    }
}

impl types::HostIncomingResponse for Wasi<'_> {
    fn status(&mut self, response: IncomingResponse) -> Result<u16> {
        mark(step!("wasi:http/types", "[method]incoming-response.status"));
        Ok(access::incoming_response(self.0, &response)?.status)
    }

    fn headers(&mut self, response: IncomingResponse) -> Result<Fields> {
        mark(step!(
            "wasi:http/types",
            "[method]incoming-response.headers"
        ));
        let response = access::incoming_response(self.0, &response)?;
        show(self.0, &response.fields)
    }

    fn consume(
        &mut self,
        response: IncomingResponse,
    ) -> Result<Result<Resource<kinds::IncomingBody>, ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]incoming-response.consume"
        ));
        let handle = access::handle(self.0, &response)?;
        let mut response = access::incoming_response(self.0, &response)?;
        if response.is_consumed {
            return Ok(Err(()));
        }
        let body = IncomingBody {
            of: Origin::Call(response.call),
            stream: Child::Unborn,
        };
        let body = make(self.0, Object::IncomingBody(body))?;
        response.is_consumed = true;
        rep::put(handle, Object::IncomingResponse(response));
        Ok(Ok(body))
    }

    fn drop(&mut self, response: IncomingResponse) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]incoming-response"));
        let response = access::take_incoming_response(self.0, &response)?;
        response.fields.free();
        if !response.is_consumed {
            self.0.calls().end(response.call);
        }
        Ok(())
    }
}

impl Wasi<'_> {
    /// The response to a call, if there is one or will be none.
    fn response_of(&mut self, number: u64) -> Result<Option<Result<IncomingResponse, ErrorCode>>> {
        let Some(call) = self.0.calls().find(number) else {
            return Ok(Some(Err(ErrorCode::ConnectionTerminated)));
        };
        let group = paid(self.0.arena())?;
        let response = call.with_response(|status, fields| {
            let entries = fields
                .iter()
                .map(|(name, value)| (name.as_bytes(), value))
                .filter(|(name, _)| !is_forbidden(name));
            (status, Packed::of(group, entries))
        });
        let (status, fields) = match response {
            Ok(None) => return Ok(None),
            Ok(Some((status, fields))) => (status, paid(fields)?),
            Err(error) => {
                self.0.calls().end(number);
                return Ok(Some(Err(error_of(error))));
            }
        };
        let response = object::IncomingResponse {
            call: number,
            status,
            fields,
            is_consumed: false,
        };
        let response = make(self.0, Object::IncomingResponse(response))?;
        Ok(Some(Ok(response)))
    }
}

impl types::HostFutureIncomingResponse for Wasi<'_> {
    fn subscribe(&mut self, future: Future) -> Result<Resource<DynPollable>> {
        mark(step!(
            "wasi:http/types",
            "[method]future-incoming-response.subscribe"
        ));
        let future = access::future(self.0, &future)?;
        subscribe(self.0, Source::Response(future.call))
    }

    fn get(
        &mut self,
        future: Future,
    ) -> Result<Option<Result<Result<IncomingResponse, ErrorCode>, ()>>> {
        mark(step!(
            "wasi:http/types",
            "[method]future-incoming-response.get"
        ));
        let handle = access::handle(self.0, &future)?;
        let mut future = access::future(self.0, &future)?;
        if future.is_taken {
            return Ok(Some(Err(())));
        }
        let Some(response) = self.response_of(future.call)? else {
            return Ok(None);
        };
        future.is_taken = true;
        rep::put(handle, Object::Future(future));
        Ok(Some(Ok(response)))
    }

    fn drop(&mut self, future: Future) -> Result<()> {
        mark(step!(
            "wasi:http/types",
            "[resource-drop]future-incoming-response"
        ));
        let future = access::take_future(self.0, &future)?;
        if !future.is_taken {
            self.0.calls().end(future.call);
        }
        Ok(())
    }
}
