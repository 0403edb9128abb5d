//! `wasi:io/poll` on objects of the tenant's arena.
//!
//! In `wasmtime-wasi` a pollable is two boxed entries of the resource table, and a timer in the
//! runtime once it is waited for: a million of them take half a second to drop. Here it is one
//! arena slot that names what to wait for. Without a waiting execution nothing is queued, and the
//! only state of a wait outside the arena is the execution's one deadline.

use super::{Wasi, rep};
use crate::clock;
use crate::guest::Guest;
use crate::local;
use crate::meter::Held;
use crate::steps::caps::{ENTRIES, POLL_LIST};
use crate::steps::{mark, step};
use leasehold_kernel::{Errno, TenantId};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use wasmtime::component::Resource;
use wasmtime::error::Context as _;
use wasmtime::{Result, bail};
use wasmtime_wasi::ResourceTable;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, Pollable as _};
use wasmtime_wasi_io::bindings::wasi::io::poll;

/// The event that a pollable waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A point of the monotonic clock, ns.
    Deadline(u64),
    /// The input stream at this place of the resource table.
    Input(u32),
    /// The output stream at this place of the resource table.
    Output(u32),
}

impl Source {
    /// The place of the stream that it waits for.
    fn stream(self) -> Option<u32> {
        match self {
            Self::Deadline(_) => None,
            Self::Input(place) | Self::Output(place) => Some(place),
        }
    }
}

/// The number of pollables of each stream of an execution, by the stream's place in the resource
/// table. A stream must not be dropped before them, because another stream would take its place.
/// Takes a page of the host's memory from the first pollable on.
#[derive(Debug, Default)]
pub(crate) struct Watched(Option<Box<[u32; ENTRIES.size()]>>);

impl Watched {
    fn count_mut(&mut self, place: u32) -> Option<&mut u32> {
        self.0.as_mut()?.get_mut(place as usize)
    }

    /// Counts one more pollable of the stream at `place`.
    fn add(&mut self, (tenant, execution): (TenantId, u64), place: u32) -> Result<()> {
        if self.0.is_none() {
            local::with(|local| local.hold(tenant, execution, Held::HostPage, 1))
                .map_err(unpaid)?;
            self.0 = Some(Box::new([0; ENTRIES.size()]));
        }
        let count = self.count_mut(place).context("unknown stream")?;
        *count = count.checked_add(1).context("too many pollables")?;
        Ok(())
    }

    /// Counts one pollable less.
    fn remove(&mut self, place: u32) {
        if let Some(count) = self.count_mut(place) {
            *count = count.saturating_sub(1);
        }
    }

    /// Fails, which traps, unless the stream at `place` can be dropped.
    ///
    /// # Errors
    /// When there is a pollable of it.
    pub(crate) fn check_drop(&self, place: u32) -> Result<()> {
        let count = self
            .0
            .as_ref()
            .and_then(|counts| counts.get(place as usize));
        if count.is_some_and(|count| *count > 0) {
            bail!("a stream is dropped before a pollable of it: resource has children");
        }
        Ok(())
    }
}

fn unpaid(errno: Errno) -> wasmtime::Error {
    wasmtime::Error::new(errno).context("the lease does not pay for a pollable")
}

/// Makes a pollable in the guest's arena.
///
/// # Errors
/// When the lease cannot pay for it. The interface has no way to say so, so the guest traps.
pub(crate) fn subscribe(guest: &mut Guest, source: Source) -> Result<Resource<DynPollable>> {
    let class = local::with(|local| local.classes.pollable);
    let pollable = rep::create(guest, class, source).map_err(unpaid)?;
    if let Some(place) = source.stream() {
        let identity = guest.identity();
        guest.watched.add(identity, place)?;
    }
    Ok(pollable)
}

fn source(guest: &Guest, pollable: &Resource<DynPollable>) -> Result<Source> {
    let handle = rep::find(guest, pollable).context("unknown pollable")?;
    local::with(|local| local.kernel.groups().get(handle).copied()).context("unknown pollable")
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
        if let Some(handle) = rep::find::<Source, _>(self.0, &pollable) {
            let source = local::with(|local| {
                let groups = local.kernel.groups_mut();
                let source = groups.get(handle).copied();
                groups.free(handle);
                source
            });
            if let Some(place) = source.and_then(Source::stream) {
                self.0.watched.remove(place);
            }
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
    for (index, source) in (0..).zip(sources) {
        match *source {
            Source::Deadline(when) => {
                earliest = Some(earliest.map_or(when, |other: u64| other.min(when)));
            }
            Source::Input(rep) | Source::Output(rep) => {
                streams.entry(rep).or_default().push(index);
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
