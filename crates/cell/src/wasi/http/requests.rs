//! `incoming-request`, `outgoing-request`, `request-options`, and the handler of outgoing requests.

use super::access::{self, make, paid};
use super::bindings::outgoing_handler;
use super::bindings::types::{self, ErrorCode, Method, Scheme};
use super::exchange::sendable;
use super::fields::show;
use super::kinds;
use super::object::{
    self, Child, FutureResponse, IncomingBody, Object, Origin, OutgoingBody, OutgoingRequest, Sink,
    Text,
};
use super::outgoing::refused;
use super::syntax::{is_authority, is_method, is_path, is_scheme};
use crate::guest::Guest;
use crate::steps::caps::FIELDS;
use crate::steps::{mark, step};
use crate::wasi::imports::Outbound;
use crate::wasi::outgoing::OutgoingCall;
use crate::wasi::rep;
use crate::wasi::view::Wasi;
use leasehold_exchange::{self as exchange, CallKind, CallTimeouts, RequestHead};
use std::time::Duration;
use wasmtime::Result;
use wasmtime::component::Resource;

type Incoming = Resource<kinds::IncomingRequest>;
type Outgoing = Resource<kinds::OutgoingRequest>;
type Options = Resource<kinds::RequestOptions>;
type Fields = Resource<kinds::Fields>;

/// The methods that the interface names, in its order.
const METHODS: [(&str, Method); 9] = [
    ("GET", Method::Get),
    ("HEAD", Method::Head),
    ("POST", Method::Post),
    ("PUT", Method::Put),
    ("DELETE", Method::Delete),
    ("CONNECT", Method::Connect),
    ("OPTIONS", Method::Options),
    ("TRACE", Method::Trace),
    ("PATCH", Method::Patch),
];

fn method_of(method: &str) -> Method {
    let named = METHODS.iter().find(|(name, _)| *name == method);
    named.map_or_else(
        || Method::Other(method.to_owned()),
        |(_, method)| method.clone(),
    )
}

impl types::HostIncomingRequest for Wasi<'_> {
    fn method(&mut self, request: Incoming) -> Result<Method> {
        mark(step!("wasi:http/types", "[method]incoming-request.method"));
        let request = access::request(self.0, &request)?;
        let head = request.head.string();
        Ok(method_of(head.get(..request.method as usize).unwrap_or("")))
    }

    fn path_with_query(&mut self, request: Incoming) -> Result<Option<String>> {
        mark(step!(
            "wasi:http/types",
            "[method]incoming-request.path-with-query"
        ));
        let request = access::request(self.0, &request)?;
        let mut head = request.head.string();
        let path = head.split_off(((request.method + request.authority) as usize).min(head.len()));
        Ok((!path.is_empty()).then_some(path))
    }

    fn scheme(&mut self, request: Incoming) -> Result<Option<Scheme>> {
        mark(step!("wasi:http/types", "[method]incoming-request.scheme"));
        let request = access::request(self.0, &request)?;
        Ok(Some(match request.is_https {
            true => Scheme::Https,
            false => Scheme::Http,
        }))
    }

    fn authority(&mut self, request: Incoming) -> Result<Option<String>> {
        mark(step!(
            "wasi:http/types",
            "[method]incoming-request.authority"
        ));
        let request = access::request(self.0, &request)?;
        let head = request.head.string();
        let (from, length) = (request.method as usize, request.authority as usize);
        Ok(head.get(from..from + length).map(str::to_owned))
    }

    fn headers(&mut self, request: Incoming) -> Result<Fields> {
        mark(step!("wasi:http/types", "[method]incoming-request.headers"));
        let request = access::request(self.0, &request)?;
        show(self.0, &request.fields)
    }

    fn consume(&mut self, request: Incoming) -> Result<Result<Resource<kinds::IncomingBody>, ()>> {
        mark(step!("wasi:http/types", "[method]incoming-request.consume"));
        let handle = access::handle(self.0, &request)?;
        let mut request = access::request(self.0, &request)?;
        if request.is_consumed {
            return Ok(Err(()));
        }
        let body = IncomingBody {
            of: Origin::Exchange(request.exchange),
            stream: Child::Unborn,
        };
        let body = make(self.0, Object::IncomingBody(body))?;
        request.is_consumed = true;
        rep::put(handle, Object::Request(request));
        Ok(Ok(body))
    }

    fn drop(&mut self, request: Incoming) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]incoming-request"));
        let request = access::take_request(self.0, &request)?;
        request.head.free();
        request.fields.free();
        Ok(())
    }
}

/// Keeps a text that a guest sets; `None` if it is longer than the fields of a message may be.
fn keep(guest: &Guest, text: &str) -> Result<Option<Text>> {
    if text.len() > FIELDS.size() {
        return Ok(None);
    }
    paid(Text::of(paid(guest.arena())?, &[text])).map(Some)
}

/// Frees a text that was replaced.
fn replaced(text: Option<Text>) {
    if let Some(text) = text {
        text.free();
    }
}

fn free_method(method: object::Method) {
    if let object::Method::Other(text) = method {
        text.free();
    }
}

fn free_scheme(scheme: Option<object::Scheme>) {
    if let Some(object::Scheme::Other(text)) = scheme {
        text.free();
    }
}

/// Frees what an outgoing request holds.
fn free(request: OutgoingRequest) {
    request.fields.free();
    replaced(request.path);
    replaced(request.authority);
    free_method(request.method);
    free_scheme(request.scheme);
}

impl Wasi<'_> {
    /// Changes an outgoing request by a text, if that `is_valid` and not too long.
    fn set_text(
        &mut self,
        request: &Outgoing,
        text: Option<&str>,
        is_valid: fn(&str) -> bool,
        place: fn(&mut OutgoingRequest) -> &mut Option<Text>,
    ) -> Result<Result<(), ()>> {
        let handle = access::handle(self.0, request)?;
        let mut request = access::outgoing_request(self.0, request)?;
        let kept = match text {
            None => None,
            Some(text) if !is_valid(text) => return Ok(Err(())),
            Some(text) => match keep(self.0, text)? {
                None => return Ok(Err(())),
                kept => kept,
            },
        };
        replaced(std::mem::replace(place(&mut request), kept));
        rep::put(handle, Object::OutgoingRequest(request));
        Ok(Ok(()))
    }
}

impl types::HostOutgoingRequest for Wasi<'_> {
    fn new(&mut self, headers: Fields) -> Result<Outgoing> {
        mark(step!("wasi:http/types", "[constructor]outgoing-request"));
        let mut fields = access::take_fields(self.0, &headers)?;
        fields.is_immutable = true;
        let request = OutgoingRequest {
            method: object::Method::Named(0),
            path: None,
            scheme: None,
            authority: None,
            fields,
            has_body: false,
            call: None,
        };
        make(self.0, Object::OutgoingRequest(request))
    }

    fn body(&mut self, request: Outgoing) -> Result<Result<Resource<kinds::OutgoingBody>, ()>> {
        mark(step!("wasi:http/types", "[method]outgoing-request.body"));
        let handle = access::handle(self.0, &request)?;
        let mut request = access::outgoing_request(self.0, &request)?;
        let Ok(expected) = request.fields.stated_length() else {
            return Ok(Err(()));
        };
        if request.has_body {
            return Ok(Err(()));
        }
        // Without a place the body goes nowhere: sending the request says so.
        let outbound = self.0.imports.outgoing.clone();
        request.call = outbound.and_then(|outbound| self.0.calls().open(&outbound).ok());
        let body = OutgoingBody {
            of: request.call.map(Sink::Call),
            expected,
            written: 0,
            stream: Child::Unborn,
        };
        let body = make(self.0, Object::OutgoingBody(body))?;
        request.has_body = true;
        rep::put(handle, Object::OutgoingRequest(request));
        Ok(Ok(body))
    }

    fn method(&mut self, request: Outgoing) -> Result<Method> {
        mark(step!("wasi:http/types", "[method]outgoing-request.method"));
        let request = access::outgoing_request(self.0, &request)?;
        Ok(match request.method {
            object::Method::Named(place) => METHODS
                .get(usize::from(place))
                .map_or(Method::Get, |(_, method)| method.clone()),
            object::Method::Other(text) => Method::Other(text.string()),
        })
    }

    fn set_method(&mut self, request: Outgoing, method: Method) -> Result<Result<(), ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-request.set-method"
        ));
        let handle = access::handle(self.0, &request)?;
        let mut request = access::outgoing_request(self.0, &request)?;
        let method = match &method {
            Method::Other(other) if !is_method(other) => return Ok(Err(())),
            Method::Other(other) => match keep(self.0, other)? {
                Some(text) => object::Method::Other(text),
                None => return Ok(Err(())),
            },
            named => {
                let place = METHODS.iter().position(|(_, own)| {
                    std::mem::discriminant(own) == std::mem::discriminant(named)
                });
                object::Method::Named(place.unwrap_or(0) as u8)
            }
        };
        free_method(std::mem::replace(&mut request.method, method));
        rep::put(handle, Object::OutgoingRequest(request));
        Ok(Ok(()))
    }

    fn path_with_query(&mut self, request: Outgoing) -> Result<Option<String>> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-request.path-with-query"
        ));
        let request = access::outgoing_request(self.0, &request)?;
        Ok(request.path.map(Text::string))
    }

    fn set_path_with_query(
        &mut self,
        request: Outgoing,
        path: Option<String>,
    ) -> Result<Result<(), ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-request.set-path-with-query"
        ));
        self.set_text(&request, path.as_deref(), is_path, |request| {
            &mut request.path
        })
    }

    fn scheme(&mut self, request: Outgoing) -> Result<Option<Scheme>> {
        mark(step!("wasi:http/types", "[method]outgoing-request.scheme"));
        let request = access::outgoing_request(self.0, &request)?;
        Ok(request.scheme.map(|scheme| match scheme {
            object::Scheme::Http => Scheme::Http,
            object::Scheme::Https => Scheme::Https,
            object::Scheme::Other(text) => Scheme::Other(text.string()),
        }))
    }

    fn set_scheme(&mut self, request: Outgoing, scheme: Option<Scheme>) -> Result<Result<(), ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-request.set-scheme"
        ));
        let handle = access::handle(self.0, &request)?;
        let mut request = access::outgoing_request(self.0, &request)?;
        let scheme = match &scheme {
            None => None,
            Some(Scheme::Http) => Some(object::Scheme::Http),
            Some(Scheme::Https) => Some(object::Scheme::Https),
            Some(Scheme::Other(other)) if !is_scheme(other) => return Ok(Err(())),
            Some(Scheme::Other(other)) => match keep(self.0, other)? {
                Some(text) => Some(object::Scheme::Other(text)),
                None => return Ok(Err(())),
            },
        };
        free_scheme(std::mem::replace(&mut request.scheme, scheme));
        rep::put(handle, Object::OutgoingRequest(request));
        Ok(Ok(()))
    }

    fn authority(&mut self, request: Outgoing) -> Result<Option<String>> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-request.authority"
        ));
        let request = access::outgoing_request(self.0, &request)?;
        Ok(request.authority.map(Text::string))
    }

    fn set_authority(
        &mut self,
        request: Outgoing,
        authority: Option<String>,
    ) -> Result<Result<(), ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]outgoing-request.set-authority"
        ));
        self.set_text(&request, authority.as_deref(), is_authority, |request| {
            &mut request.authority
        })
    }

    fn headers(&mut self, request: Outgoing) -> Result<Fields> {
        mark(step!("wasi:http/types", "[method]outgoing-request.headers"));
        let request = access::outgoing_request(self.0, &request)?;
        show(self.0, &request.fields)
    }

    fn drop(&mut self, request: Outgoing) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]outgoing-request"));
        let request = access::take_outgoing_request(self.0, &request)?;
        if let Some(call) = request.call {
            self.0.calls().end(call);
        }
        free(request);
        Ok(())
    }
}

impl Wasi<'_> {
    fn option(&mut self, options: &Options, place: usize) -> Result<Option<u64>> {
        Ok(access::options(self.0, options)?[place])
    }

    fn set_option(
        &mut self,
        options: &Options,
        place: usize,
        duration: Option<u64>,
    ) -> Result<Result<(), ()>> {
        let handle = access::handle(self.0, options)?;
        let mut options = access::options(self.0, options)?;
        options[place] = duration;
        rep::put(handle, Object::Options(options));
        Ok(Ok(()))
    }
}

impl types::HostRequestOptions for Wasi<'_> {
    fn new(&mut self) -> Result<Options> {
        mark(step!("wasi:http/types", "[constructor]request-options"));
        make(self.0, Object::Options([None; 3]))
    }

    fn connect_timeout(&mut self, options: Options) -> Result<Option<u64>> {
        mark(step!(
            "wasi:http/types",
            "[method]request-options.connect-timeout"
        ));
        self.option(&options, 0)
    }

    fn set_connect_timeout(
        &mut self,
        options: Options,
        duration: Option<u64>,
    ) -> Result<Result<(), ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]request-options.set-connect-timeout"
        ));
        self.set_option(&options, 0, duration)
    }

    fn first_byte_timeout(&mut self, options: Options) -> Result<Option<u64>> {
        mark(step!(
            "wasi:http/types",
            "[method]request-options.first-byte-timeout"
        ));
        self.option(&options, 1)
    }

    fn set_first_byte_timeout(
        &mut self,
        options: Options,
        duration: Option<u64>,
    ) -> Result<Result<(), ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]request-options.set-first-byte-timeout"
        ));
        self.set_option(&options, 1, duration)
    }

    fn between_bytes_timeout(&mut self, options: Options) -> Result<Option<u64>> {
        mark(step!(
            "wasi:http/types",
            "[method]request-options.between-bytes-timeout"
        ));
        self.option(&options, 2)
    }

    fn set_between_bytes_timeout(
        &mut self,
        options: Options,
        duration: Option<u64>,
    ) -> Result<Result<(), ()>> {
        mark(step!(
            "wasi:http/types",
            "[method]request-options.set-between-bytes-timeout"
        ));
        self.set_option(&options, 2, duration)
    }

    fn drop(&mut self, options: Options) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]request-options"));
        access::take_options(self.0, &options)?;
        Ok(())
    }
}

impl Wasi<'_> {
    /// Sends a request, and returns the number of its call.
    fn send(
        &mut self,
        request: &OutgoingRequest,
        timeouts: CallTimeouts,
    ) -> Result<u64, ErrorCode> {
        if !request.has_body && matches!(request.fields.stated_length(), Ok(Some(1..))) {
            return Err(ErrorCode::HttpRequestBodySize(Some(0)));
        }
        let Some(outbound) = self.0.imports.outgoing.clone() else {
            return Err(ErrorCode::HttpRequestDenied);
        };
        let number = match (request.call, request.has_body) {
            (Some(call), _) => call,
            (None, false) => self.0.calls().open(&outbound).map_err(refused)?,
            (None, true) => return Err(ErrorCode::ConnectionLimitReached),
        };
        let call = self.0.calls().find(number);
        let sent = head(request, &outbound).and_then(|head| {
            let call = call.ok_or(ErrorCode::ConnectionTerminated)?;
            if !request.has_body {
                call.finish_body(None);
            }
            let kind = CallKind::Request {
                head,
                has_body: request.has_body,
                timeouts,
                answers: self.0.http().trace(),
            };
            call.send(&outbound, kind).map_err(refused)
        });
        match sent {
            Ok(()) => Ok(number),
            Err(error) => {
                self.0.calls().end(number);
                Err(error)
            }
        }
    }
}

/// The head of a request as it crosses.
fn head(request: &OutgoingRequest, outbound: &Outbound) -> Result<RequestHead, ErrorCode> {
    let limit = OutgoingCall::head_bytes(outbound);
    let too_large = || ErrorCode::HttpRequestHeaderSectionSize(Some(limit));
    let method = match request.method {
        object::Method::Named(place) => METHODS
            .get(usize::from(place))
            .map_or("GET", |(name, _)| name)
            .to_owned(),
        object::Method::Other(text) => text.string(),
    };
    let scheme = match request.scheme {
        None | Some(object::Scheme::Https) => exchange::Scheme::Https,
        Some(object::Scheme::Http) => exchange::Scheme::Http,
        Some(object::Scheme::Other(_)) => return Err(ErrorCode::HttpProtocolError),
    };
    let authority = request.authority.ok_or(ErrorCode::HttpRequestUriInvalid)?;
    let head = RequestHead {
        method,
        scheme,
        authority: authority.string(),
        path_with_query: request.path.map(Text::string).unwrap_or_default(),
        fields: sendable(&request.fields, limit).ok_or_else(too_large)?,
    };
    match head.bytes() <= limit as usize {
        true => Ok(head),
        false => Err(too_large()),
    }
}

impl outgoing_handler::Host for Wasi<'_> {
    fn handle(
        &mut self,
        request: Outgoing,
        options: Option<Options>,
    ) -> Result<Result<Resource<kinds::FutureIncomingResponse>, ErrorCode>> {
        mark(step!("wasi:http/outgoing-handler", "handle"));
        let options = match options {
            Some(options) => access::take_options(self.0, &options)?,
            None => [None; 3],
        };
        let [connect, first_byte, between_bytes] =
            options.map(|option| option.map(Duration::from_nanos));
        let timeouts = CallTimeouts {
            connect,
            first_byte,
            between_bytes,
        };
        let request = access::take_outgoing_request(self.0, &request)?;
        let sent = self.send(&request, timeouts);
        if let (Err(_), Some(call)) = (&sent, request.call) {
            self.0.calls().end(call);
        }
        free(request);
        match sent {
            Err(error) => Ok(Err(error)),
            Ok(call) => {
                let is_taken = false;
                let future = Object::Future(FutureResponse { call, is_taken });
                make(self.0, future).map(Ok)
            }
        }
    }
}
