//! `outgoing-response`, `response-outparam`, and what only outgoing requests would lead to.

use super::access::{self, make};
use super::bindings::types::{self, ErrorCode};
use super::fields::show;
use super::kinds;
use super::object::{Child, Object, OutgoingBody, OutgoingResponse};
use crate::steps::{mark, step};
use crate::wasi::view::Wasi;
use wasmtime::component::Resource;
use wasmtime::{Result, bail};
use wasmtime_wasi::p2::DynPollable;

type Fields = Resource<kinds::Fields>;
type Response = Resource<kinds::OutgoingResponse>;
type Outparam = Resource<kinds::ResponseOutparam>;
type IncomingResponse = Resource<kinds::IncomingResponse>;
type Future = Resource<kinds::FutureIncomingResponse>;

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
            has_body: false,
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
        access::put(handle, Object::Response(response));
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
        let Ok(expected) = response.fields.stated_length() else {
            return Ok(Err(()));
        };
        if response.has_body {
            return Ok(Err(()));
        }
        let body = OutgoingBody {
            of: Some((self.0.http().number(), response.number)),
            expected,
            written: 0,
            stream: Child::Unborn,
        };
        let body = make(self.0, Object::OutgoingBody(body))?;
        response.has_body = true;
        access::put(handle, Object::Response(response));
        Ok(Ok(body))
    }

    fn drop(&mut self, response: Response) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]outgoing-response"));
        access::take_response(self.0, &response)?.fields.free();
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
        if let Some(exchange) = exchange {
            exchange.respond(&response);
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

/// There is no incoming response, as outgoing requests are denied.
fn none<T>() -> Result<T> {
    bail!("no response was received")
}

impl types::HostIncomingResponse for Wasi<'_> {
    fn status(&mut self, _response: IncomingResponse) -> Result<u16> {
        mark(step!("wasi:http/types", "[method]incoming-response.status"));
        none()
    }

    fn headers(&mut self, _response: IncomingResponse) -> Result<Fields> {
        mark(step!(
            "wasi:http/types",
            "[method]incoming-response.headers"
        ));
        none()
    }

    fn consume(
        &mut self,
        _response: IncomingResponse,
    ) -> Result<Result<Resource<kinds::IncomingBody>, ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]incoming-response.consume"
        ));
        none()
    }

    fn drop(&mut self, _response: IncomingResponse) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]incoming-response"));
        Ok(())
    }
}

impl types::HostFutureIncomingResponse for Wasi<'_> {
    fn subscribe(&mut self, _future: Future) -> Result<Resource<DynPollable>> {
        mark(step!(
            "wasi:http/types",
            "[method]future-incoming-response.subscribe"
        ));
        none()
    }

    fn get(
        &mut self,
        _future: Future,
    ) -> Result<Option<Result<Result<IncomingResponse, ErrorCode>, ()>>> {
        mark(step!(
            "wasi:http/types",
            "[method]future-incoming-response.get"
        ));
        none()
    }

    fn drop(&mut self, _future: Future) -> Result<()> {
        mark(step!(
            "wasi:http/types",
            "[resource-drop]future-incoming-response"
        ));
        Ok(())
    }
}
