//! Answering exchanges, one after the other, in one instance.

use super::access::{make, paid};
use super::bindings::HandlerPre;
use super::kinds;
use super::object::{IncomingRequest, Object, Packed, Text};
use super::syntax::is_forbidden;
use crate::guest::Guest;
use crate::host::yield_point::yield_point;
use crate::steps::{mark, step};
use crate::worker::Worker;
use leasehold_exchange::{Failure, GuestHalf, Scheme};
use wasmtime::component::Resource;
use wasmtime::{Result, Store};

/// Takes exchanges of its tenant and answers them, as many as the worker is to answer.
///
/// # Errors
/// When the guest traps, which fails the exchange.
pub(crate) async fn answer(
    store: &mut Store<Guest>,
    handler: &HandlerPre<Guest>,
    worker: &Worker,
) -> Result<()> {
    let mut instance = None;
    while let Some(exchange) = worker.next().await {
        if instance.is_none() {
            mark(step!("engine", "instantiate"));
            instance = Some(handler.instantiate_async(&mut *store).await?);
        }
        let Some(instance) = &instance else {
            break;
        };
        yield_point().await;
        mark(step!("cell", "serve: request"));
        let guest = store.data_mut();
        guest.http().begin(exchange.clone());
        let Some(begun) = exchange.with_half(|half| begin(guest, exchange.number(), half)) else {
            continue;
        };
        let (request, outparam) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                exchange.fail(Failure::Refused);
                return Err(error);
            }
        };
        yield_point().await;
        let handler = instance.wasi_http_incoming_handler();
        handler.call_handle(&mut *store, request, outparam).await?;
        mark(step!("cell", "serve: response"));
        worker.answered();
    }
    Ok(())
}

type Begun = (
    Resource<kinds::IncomingRequest>,
    Resource<kinds::ResponseOutparam>,
);

/// Makes the resources of a request.
fn begin(guest: &Guest, exchange: u64, half: &GuestHalf) -> Result<Begun> {
    let head = half.request();
    let parts = [
        head.method.as_str(),
        head.authority.as_str(),
        head.path_with_query.as_str(),
    ];
    let entries = head
        .fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value))
        .filter(|(name, _)| !is_forbidden(name));
    let group = paid(guest.arena())?;
    let request = IncomingRequest {
        exchange,
        head: paid(Text::of(group, &parts))?,
        method: head.method.len() as u32,
        authority: head.authority.len() as u32,
        is_https: head.scheme == Scheme::Https,
        fields: paid(Packed::of(group, entries))?,
        is_consumed: false,
    };
    let request = make(guest, Object::Request(request))?;
    let outparam = make(guest, Object::Outparam(exchange))?;
    Ok((request, outparam))
}
