//! `wasi:io/poll` on objects of the tenant's arena.
//!
//! In `wasmtime-wasi` a pollable is two boxed entries of the resource table, and a timer in the
//! runtime once it is waited for: a million of them take half a second to drop. Here it is one
//! arena slot that names what to wait for. Without a waiting execution nothing is queued, and the
//! only state of a wait outside the arena is the execution's one deadline.

use super::http::streams::Receiving;
use super::objects::{Source, Subscription};
use super::outgoing::OutgoingCall;
use super::rep;
use super::sockets::object::{Awaited, Object as Socket};
use super::view::Wasi;
use super::watched::unpaid;
use crate::clock;
use crate::guest::Guest;
use crate::local;
use crate::steps::caps::POLL_LIST;
use crate::steps::{mark, step};
use leasehold_reclaim::Handle;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime::{Result, bail};
use wasmtime_wasi::ResourceTable;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, Pollable as _};
use wasmtime_wasi_io::bindings::wasi::io::poll;

/// Makes a pollable in the guest's arena.
///
/// # Errors
/// When the lease cannot pay for it. The interface has no way to say so, so the guest traps.
pub(crate) fn subscribe(guest: &mut Guest, source: Source) -> Result<Resource<DynPollable>> {
    make(guest, Subscription::To(source))
}

/// Makes a pollable for all that a socket ever does.
///
/// # Errors
/// As [`subscribe`].
pub(crate) fn subscribe_to_socket(
    guest: &mut Guest,
    socket: Handle<Socket>,
) -> Result<Resource<DynPollable>> {
    make(guest, Subscription::Socket(socket))
}

fn make(guest: &mut Guest, subscription: Subscription) -> Result<Resource<DynPollable>> {
    let class = local::with(|local| local.classes.pollable);
    let pollable = rep::create(guest, class, subscription).map_err(unpaid)?;
    if let Some(place) = subscription.stream() {
        let identity = guest.identity();
        guest.watched.add(identity, place)?;
    }
    Ok(pollable)
}

/// What a pollable waits for now.
fn source(guest: &Guest, pollable: &Resource<DynPollable>) -> Result<Source> {
    let handle = rep::find(guest, pollable).context("unknown pollable")?;
    Ok(match rep::get(handle).context("unknown pollable")? {
        Subscription::To(source) => source,
        Subscription::Socket(socket) => match rep::get(socket).map(|socket| socket.awaited()) {
            Some(Awaited::Call(call)) => Source::Response(call),
            Some(Awaited::Time(when)) => Source::Deadline(when),
            Some(Awaited::Nothing) | None => Source::Deadline(0),
        },
    })
}

impl poll::Host for Wasi<'_> {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> Result<Vec<u32>> {
        mark(step!("wasi:io/poll", "poll"));
        if pollables.is_empty() {
            bail!("empty poll list");
        }
        if pollables.len() > POLL_LIST.size() {
            bail!(
                "{} pollables in a list; at most {} can be waited for",
                pollables.len(),
                POLL_LIST.most
            );
        }
        let mut sources = Vec::with_capacity(pollables.len());
        for pollable in &pollables {
            sources.push(source(self.0, pollable)?);
        }
        wait_any(self.0, &sources).await
    }
}

impl poll::HostPollable for Wasi<'_> {
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> Result<bool> {
        mark(step!("wasi:io/poll", "[method]pollable.ready"));
        match source(self.0, &pollable)? {
            Source::Deadline(when) => Ok(when <= clock::monotonic_ns()),
            stream => {
                let ready = pin!(wait_any(self.0, std::slice::from_ref(&stream)));
                Ok(poll_once(ready).await.is_some())
            }
        }
    }

    async fn block(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        mark(step!("wasi:io/poll", "[method]pollable.block"));
        let source = source(self.0, &pollable)?;
        wait_any(self.0, &[source]).await?;
        Ok(())
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> Result<()> {
        mark(step!("wasi:io/poll", "[resource-drop]pollable"));
        if let Some(handle) = rep::find::<Subscription, _>(self.0, &pollable)
            && let Some(place) = rep::free(handle).and_then(Subscription::stream)
        {
            self.0.watched.remove(place);
        }
        Ok(())
    }
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

type Ready<'a> = (Pin<Box<dyn Future<Output = ()> + Send + 'a>>, Vec<u32>);

/// Waits until at least one of `sources` is ready and returns the indices of those that are.
pub(crate) async fn wait_any(guest: &mut Guest, sources: &[Source]) -> Result<Vec<u32>> {
    let execution = guest.execution;
    let mut streams: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut earliest = None;
    let mut trailers = Vec::new();
    let mut calls = Vec::new();
    for (index, source) in (0..).zip(sources) {
        match *source {
            Source::Deadline(when) => {
                earliest = Some(earliest.map_or(when, |other: u64| other.min(when)));
            }
            Source::Input(rep) | Source::Output(rep) => {
                streams.entry(rep).or_default().push(index);
            }
            Source::Trailers(origin) => trailers.push((Receiving::of(guest, origin), index)),
            Source::Response(call) | Source::Datagram(call) | Source::DatagramRoom(call) => {
                calls.push((guest.calls().find(call), *source, index));
            }
        }
    }
    let table = guest.charged_table();
    let mut streams = watch(table, streams)?;
    let mut sleep = local::Sleep::new(execution);
    poll_fn(move |context| {
        let mut ready = Vec::new();
        for (stream, indices) in &mut streams {
            if stream.as_mut().poll(context).is_ready() {
                ready.extend_from_slice(indices);
            }
        }
        for (from, index) in &trailers {
            let is_over = |from: &Receiving| from.poll_end(context).is_ready();
            if from.as_ref().is_none_or(is_over) {
                ready.push(*index);
            }
        }
        for (call, source, index) in &calls {
            let is_ready = |call: &Arc<OutgoingCall>| match source {
                Source::Datagram(_) => call.poll_readable(context).is_ready(),
                Source::DatagramRoom(_) => call.poll_frame_room(context).is_ready(),
                _ => call.poll_response(context).is_ready(),
            };
            if call.as_ref().is_none_or(is_ready) {
                ready.push(*index);
            }
        }
        let now = clock::monotonic_ns();
        if earliest.is_some_and(|when| when <= now) {
            ready.extend(
                (0..)
                    .zip(sources)
                    .filter_map(|(index, source)| match source {
                        Source::Deadline(when) if *when <= now => Some(index),
                        _ => None,
                    }),
            );
        }
        if !ready.is_empty() {
            return Poll::Ready(Ok(std::mem::take(&mut ready)));
        }
        if let Some(when) = earliest {
            sleep.until(when);
        }
        Poll::Pending
    })
    .await
}

fn watch(table: &mut ResourceTable, reps: BTreeMap<u32, Vec<u32>>) -> Result<Vec<Ready<'_>>> {
    let mut watched = Vec::with_capacity(reps.len());
    for (entry, indices) in table.iter_entries(reps) {
        let ready: Pin<Box<dyn Future<Output = ()> + Send>> = match entry {
            Err(_) => Box::pin(std::future::ready(())),
            Ok(entry) if entry.is::<DynInputStream>() => entry
                .downcast_mut::<DynInputStream>()
                .context("input stream")?
                .ready(),
            Ok(entry) => match entry.downcast_mut::<DynOutputStream>() {
                Some(stream) => stream.ready(),
                None => Box::pin(std::future::ready(())),
            },
        };
        watched.push((ready, indices));
    }
    Ok(watched)
}

/// A future that is ready when the monotonic clock has reached `when` (ns).
pub(crate) fn sleep_until(execution: u64, when: u64) -> impl Future<Output = ()> {
    let mut sleep = local::Sleep::new(execution);
    poll_fn(move |_: &mut Context<'_>| {
        if when <= clock::monotonic_ns() {
            return Poll::Ready(());
        }
        sleep.until(when);
        Poll::Pending
    })
}
