//! `ip-name-lookup`: the addresses of names that the lease's connections go to.

use super::access::{self, confused, handle, make};
use super::address::of_host;
use super::bindings::ip_name_lookup;
use super::bindings::network::{ErrorCode, IpAddress};
use super::failure::{of_look_up, refused};
use super::kinds;
use super::object::{LookUp, LookedUp, Object};
use crate::guest::Guest;
use crate::steps::{mark, step};
use crate::wasi::objects::Source;
use crate::wasi::poll::subscribe;
use crate::wasi::rep;
use crate::wasi::view::Wasi;
use leasehold_exchange::{ADDRESS, CallKind, Fields};
use std::net::IpAddr;
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime_wasi::p2::DynPollable;

type Stream = Resource<kinds::LookUp>;

fn read(guest: &Guest, stream: &Stream) -> Result<LookUp> {
    match rep::get(handle(guest, stream)?).context("unknown look-up")? {
        Object::LookUp(looked_up) => Ok(looked_up),
        _ => Err(confused()),
    }
}

/// The address at a place of those that were found.
fn address_at(fields: &Fields, place: u32) -> Option<IpAddr> {
    let found = fields.iter().filter(|(name, _)| *name == ADDRESS);
    let (_, address) = found.into_iter().nth(place as usize)?;
    std::str::from_utf8(address).ok()?.parse().ok()
}

impl ip_name_lookup::Host for Wasi<'_> {
    fn resolve_addresses(
        &mut self,
        _: Resource<kinds::Network>,
        name: String,
    ) -> Result<Result<Stream, ErrorCode>> {
        mark(step!("wasi:sockets/ip-name-lookup", "resolve-addresses"));
        let looked_up = self.look_up(name);
        let of = match looked_up {
            Ok(of) => of,
            Err(error) => return Ok(Err(error)),
        };
        let made = make(self.0, Object::LookUp(LookUp { of, told: 0 }));
        if let (Err(_), LookedUp::Call(call)) = (&made, of) {
            self.0.calls().end(call);
        }
        Ok(made.map_err(|_| ErrorCode::OutOfMemory))
    }
}

impl Wasi<'_> {
    fn look_up(&mut self, name: String) -> Result<LookedUp, ErrorCode> {
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(&name).parse() {
            return Ok(LookedUp::Itself(address));
        }
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_of_name) {
            return Err(ErrorCode::InvalidArgument);
        }
        let outbound = self.0.imports.outgoing.clone();
        let outbound = outbound.ok_or(ErrorCode::PermanentResolverFailure)?;
        let name = name.to_ascii_lowercase();
        let call = self.0.call(&outbound, CallKind::LookUp { name });
        call.map(LookedUp::Call).map_err(|why| match refused(why) {
            ErrorCode::NewSocketLimit => ErrorCode::TemporaryResolverFailure,
            other => other,
        })
    }
}

impl ip_name_lookup::HostResolveAddressStream for Wasi<'_> {
    fn resolve_next_address(
        &mut self,
        stream: Stream,
    ) -> Result<Result<Option<IpAddress>, ErrorCode>> {
        mark(step!(
            "wasi:sockets/ip-name-lookup",
            "[method]resolve-address-stream.resolve-next-address"
        ));
        let mut looked_up = read(self.0, &stream)?;
        let place = looked_up.told;
        let next = match looked_up.of {
            LookedUp::Itself(address) => (place == 0).then_some(address),
            LookedUp::Call(number) => {
                let call = self
                    .0
                    .calls()
                    .find(number)
                    .context("a look-up that is over")?;
                match call.with_response(|_, fields| address_at(fields, place)) {
                    Ok(Some(next)) => next,
                    Ok(None) => return Ok(Err(ErrorCode::WouldBlock)),
                    Err(failure) => return Ok(Err(of_look_up(failure))),
                }
            }
        };
        if next.is_some() {
            looked_up.told += 1;
            rep::put(handle(self.0, &stream)?, Object::LookUp(looked_up));
        }
        Ok(Ok(next.map(of_host)))
    }

    fn subscribe(&mut self, stream: Stream) -> Result<Resource<DynPollable>> {
        mark(step!(
            "wasi:sockets/ip-name-lookup",
            "[method]resolve-address-stream.subscribe"
        ));
        let source = match read(self.0, &stream)?.of {
            LookedUp::Itself(_) => Source::Deadline(0),
            LookedUp::Call(call) => Source::Response(call),
        };
        subscribe(self.0, source)
    }

    fn drop(&mut self, stream: Stream) -> Result<()> {
        mark(step!(
            "wasi:sockets/ip-name-lookup",
            "[resource-drop]resolve-address-stream"
        ));
        match access::take(self.0, &stream)? {
            Object::LookUp(LookUp {
                of: LookedUp::Call(call),
                ..
            }) => self.0.calls().end(call),
            Object::LookUp(_) => {}
            _ => return Err(confused()),
        }
        Ok(())
    }
}
