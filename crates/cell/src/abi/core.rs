//! The kernel for core modules: functions of the import module `leasehold_kernel`.
//!
//! Every function returns an `i64`: zero or more is the result, less than zero the negated error
//! number. The table of functions is in `docs/guest-abi.md`.

mod buffer;
mod call;
mod data;
mod region;

use self::buffer::Buffer;
use self::call::{Call, MODULE, answer, call, raw, selector};
use super::blocking::blocking;
use super::spawn;
use crate::guest::Guest;
use crate::local;
use crate::steps::caps::MESSAGE;
use crate::steps::{mark, step};
use leasehold_abi::{Errno, Received, Rights};
use leasehold_kernel::Selector;
use wasmtime::{Linker, Result};

/// Most capabilities in one message.
const CAPABILITIES: usize = leasehold_abi::MESSAGE_CAPABILITIES;

/// A list of selectors in guest memory.
fn capabilities(caller: &mut Call<'_>, start: i32, count: i32) -> Result<Capabilities, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::Invalid)?;
    if count > CAPABILITIES {
        return Err(Errno::TooLarge);
    }
    let buffer = Buffer::new(caller, start, 4 * count as u32)?;
    let mut list = Capabilities {
        list: [Selector(0); CAPABILITIES],
        count,
    };
    let words = buffer.bytes(caller).chunks_exact(4);
    for (selector, word) in list.list.iter_mut().zip(words) {
        *selector = Selector(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    }
    Ok(list)
}

struct Capabilities {
    list: [Selector; CAPABILITIES],
    count: usize,
}

/// Links all functions.
///
/// # Errors
/// When a function is linked twice, which is a defect.
pub(crate) fn link(linker: &mut Linker<Guest>) -> Result<()> {
    link_capabilities(linker)?;
    link_semaphores(linker)?;
    link_channels(linker)?;
    region::link(linker)?;
    data::link(linker)?;
    link_timers(linker)?;
    link_tasks(linker)?;
    link_tenants(linker)
}

fn link_capabilities(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "capability_derive",
        |caller: Call<'_>, of: i32, rights: i32| {
            mark(step!(MODULE, "capability_derive"));

            call(&caller, |kernel, tenant| {
                let rights = Rights::from_bits(rights as u32).ok_or(Errno::Invalid)?;
                kernel
                    .capability_derive(tenant, selector(of), rights)
                    .map(raw)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "capability_drop",
        |caller: Call<'_>, capability: i32| {
            mark(step!(MODULE, "capability_drop"));

            call(&caller, |kernel, tenant| {
                kernel
                    .capability_drop(tenant, selector(capability))
                    .map(|()| 0)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "capability_revoke",
        |caller: Call<'_>, capability: i32| {
            mark(step!(MODULE, "capability_revoke"));

            call(&caller, |kernel, tenant| {
                kernel
                    .capability_revoke(tenant, selector(capability))
                    .map(|()| 0)
            })
        },
    )?;
    Ok(())
}

fn link_semaphores(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "semaphore_create",
        |caller: Call<'_>, value: i32| {
            mark(step!(MODULE, "semaphore_create"));

            call(&caller, |kernel, tenant| {
                kernel.semaphore_create(tenant, value as u32).map(raw)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "semaphore_up",
        |caller: Call<'_>, semaphore: i32, n: i32| {
            mark(step!(MODULE, "semaphore_up"));

            call(&caller, |kernel, tenant| {
                kernel
                    .semaphore_up(tenant, selector(semaphore), n as u32)
                    .map(|()| 0)
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "semaphore_down",
        |caller: Call<'_>, (semaphore,): (i32,)| {
            mark(step!(MODULE, "semaphore_down"));

            let (tenant, execution) = caller.data().identity();
            Box::new(async move {
                let down = blocking(execution, |kernel, execution| {
                    kernel.semaphore_down(tenant, execution, selector(semaphore))
                });
                answer(down.await.map(|()| 0))
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "semaphore_try_down",
        |caller: Call<'_>, semaphore: i32| {
            mark(step!(MODULE, "semaphore_try_down"));

            call(&caller, |kernel, tenant| {
                kernel
                    .semaphore_try_down(tenant, selector(semaphore))
                    .map(|()| 0)
            })
        },
    )?;
    Ok(())
}

fn link_channels(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "channel_create",
        |caller: Call<'_>, capacity: i32| {
            mark(step!(MODULE, "channel_create"));

            call(&caller, |kernel, tenant| {
                kernel.channel_create(tenant, capacity as u32).map(raw)
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "channel_send",
        |mut caller: Call<'_>, message: (i32, i32, i32, i32, i32)| {
            mark(step!(MODULE, "channel_send"));

            Box::new(async move { answer(send(&mut caller, message).await) })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "channel_try_send",
        |mut caller: Call<'_>, message: (i32, i32, i32, i32, i32)| {
            mark(step!(MODULE, "channel_try_send"));

            Box::new(async move { answer(try_send(&mut caller, message).await) })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "channel_receive",
        |mut caller: Call<'_>, into: (i32, i32, i32, i32, i32)| {
            mark(step!(MODULE, "channel_receive"));

            Box::new(async move { answer(receive(&mut caller, into).await) })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "channel_try_receive",
        |mut caller: Call<'_>, into: (i32, i32, i32, i32, i32)| {
            mark(step!(MODULE, "channel_try_receive"));

            Box::new(async move { answer(try_receive(&mut caller, into).await) })
        },
    )?;
    Ok(())
}

/// (channel, bytes, length, capabilities, count)
type Message = (i32, i32, i32, i32, i32);

async fn send(caller: &mut Call<'_>, message: Message) -> Result<u64, Errno> {
    let (channel, bytes, length, list, count) = message;
    if u64::from(length as u32) > MESSAGE.most {
        return Err(Errno::TooLarge);
    }
    let bytes = Buffer::new(caller, bytes, length as u32)?;
    let capabilities = capabilities(caller, list, count)?;
    let (tenant, execution) = caller.data().identity();
    let fetched = match bytes.is_elsewhere(caller) {
        true => Some(bytes.fetch(caller).await?),
        false => None,
    };
    blocking(execution, |kernel, execution| {
        let list = &capabilities.list[..capabilities.count];
        let bytes = match &fetched {
            Some(fetched) => fetched,
            // Borrowed mutably only to keep the future `Send`: a shared `Caller` is not.
            None => &*bytes.bytes_mut(caller),
        };
        kernel.channel_send(tenant, execution, selector(channel), bytes, list)
    })
    .await?;
    Ok(0)
}

async fn try_send(caller: &mut Call<'_>, message: Message) -> Result<u64, Errno> {
    let (channel, bytes, length, list, count) = message;
    if u64::from(length as u32) > MESSAGE.most {
        return Err(Errno::TooLarge);
    }
    let bytes = Buffer::new(caller, bytes, length as u32)?;
    let capabilities = capabilities(caller, list, count)?;
    let tenant = caller.data().tenant;
    let list = &capabilities.list[..capabilities.count];
    let send = |bytes: &[u8]| {
        local::call(|kernel| kernel.channel_try_send(tenant, selector(channel), bytes, list))
    };
    match bytes.is_elsewhere(caller) {
        true => send(&bytes.fetch(caller).await?)?,
        false => send(bytes.bytes_mut(caller))?,
    }
    Ok(0)
}

/// The destination of a message: the guest's buffer for the bytes, and the host's for the
/// capabilities while the kernel borrows the guest's memory.
struct Destination {
    bytes: Buffer,
    list: Buffer,
    received: [Selector; CAPABILITIES],
    slots: usize,
}

impl Destination {
    fn new(caller: &mut Call<'_>, into: Message) -> Result<Self, Errno> {
        let (_, bytes, capacity, list, slots) = into;
        let slots = usize::try_from(slots)
            .map_err(|_| Errno::Invalid)?
            .min(CAPABILITIES);
        Ok(Self {
            bytes: Buffer::new(caller, bytes, capacity as u32)?,
            list: Buffer::new(caller, list, 4 * slots as u32)?,
            received: [Selector(0); CAPABILITIES],
            slots,
        })
    }

    /// The host's memory for the bytes, if not all of the guest's may be touched in one step.
    fn room(&self, caller: &mut Call<'_>) -> Result<Option<Vec<u8>>, Errno> {
        match self.bytes.is_elsewhere(caller) {
            true => self.bytes.room(caller).map(Some),
            false => Ok(None),
        }
    }

    /// The memory that the kernel writes to.
    fn parts<'a>(
        &'a mut self,
        caller: &'a mut Call<'_>,
        room: &'a mut Option<Vec<u8>>,
    ) -> (&'a mut [u8], &'a mut [Selector]) {
        let bytes = match room {
            Some(room) => room,
            None => self.bytes.bytes_mut(caller),
        };
        (bytes, &mut self.received[..self.slots])
    }

    /// Delivers what the kernel has written, and returns the guest's result.
    async fn deliver(
        &self,
        caller: &mut Call<'_>,
        received: Received,
        room: Option<Vec<u8>>,
    ) -> u64 {
        if let Some(room) = room {
            self.bytes
                .put(caller, &room[..received.length as usize])
                .await;
        }
        let list = self.list.bytes_mut(caller).chunks_exact_mut(4);
        for (place, selector) in list.zip(&self.received[..received.capabilities as usize]) {
            place.copy_from_slice(&selector.0.to_le_bytes());
        }
        received.pack()
    }
}

async fn receive(caller: &mut Call<'_>, into: Message) -> Result<u64, Errno> {
    let mut destination = Destination::new(caller, into)?;
    let (tenant, execution) = caller.data().identity();
    let mut room = destination.room(caller)?;
    let received = blocking(execution, |kernel, execution| {
        let (bytes, list) = destination.parts(caller, &mut room);
        kernel.channel_receive(tenant, execution, selector(into.0), bytes, list)
    })
    .await?;
    Ok(destination.deliver(caller, received, room).await)
}

async fn try_receive(caller: &mut Call<'_>, into: Message) -> Result<u64, Errno> {
    let mut destination = Destination::new(caller, into)?;
    let tenant = caller.data().tenant;
    let mut room = destination.room(caller)?;
    let (bytes, list) = destination.parts(caller, &mut room);
    let received =
        local::call(|kernel| kernel.channel_try_receive(tenant, selector(into.0), bytes, list))?;
    Ok(destination.deliver(caller, received, room).await)
}

fn link_timers(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap(MODULE, "timer_create", |caller: Call<'_>| {
        mark(step!(MODULE, "timer_create"));

        call(&caller, |kernel, tenant| {
            kernel.timer_create(tenant).map(raw)
        })
    })?;
    linker.func_wrap(
        MODULE,
        "timer_set",
        |caller: Call<'_>, timer: i32, after: i64, period: i64| {
            mark(step!(MODULE, "timer_set"));

            let now = crate::clock::monotonic_ns();
            call(&caller, |kernel, tenant| {
                kernel
                    .timer_set(tenant, selector(timer), now, after as u64, period as u64)
                    .map(|()| 0)
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "timer_wait",
        |caller: Call<'_>, (timer,): (i32,)| {
            mark(step!(MODULE, "timer_wait"));

            let (tenant, execution) = caller.data().identity();
            Box::new(async move {
                let wait = blocking(execution, |kernel, execution| {
                    kernel.timer_wait(tenant, execution, selector(timer))
                });
                answer(wait.await)
            })
        },
    )?;
    Ok(())
}

fn link_tasks(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap_async(
        MODULE,
        "task_start",
        |mut caller: Call<'_>, (strings, length): (i32, i32)| {
            mark(step!(MODULE, "task_start"));

            let args = arguments(&mut caller, strings, length);
            let asked = args.and_then(|args| spawn::task(caller.data(), args));
            Box::new(async move { answer(spawn::begun(asked).await.map(raw)) })
        },
    )?;
    linker.func_wrap_async(MODULE, "task_wait", |caller: Call<'_>, (task,): (i32,)| {
        mark(step!(MODULE, "task_wait"));

        let (tenant, execution) = caller.data().identity();
        Box::new(async move {
            let wait = blocking(execution, |kernel, execution| {
                kernel.task_wait(tenant, execution, selector(task))
            });
            answer(wait.await.map(|code| u64::from(code as u32)))
        })
    })?;
    linker.func_wrap_async(MODULE, "task_stop", |caller: Call<'_>, (task,): (i32,)| {
        mark(step!(MODULE, "task_stop"));

        let tenant = caller.data().tenant;
        Box::new(async move { answer(spawn::stop(tenant, selector(task)).await.map(|()| 0)) })
    })?;
    Ok(())
}

fn link_tenants(linker: &mut Linker<Guest>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "tenant_create",
        |caller: Call<'_>, reclaim: i64, memory: i64| {
            mark(step!(MODULE, "tenant_create"));

            call(&caller, |kernel, tenant| {
                kernel
                    .tenant_create(tenant, reclaim as u64, memory as u64)
                    .map(raw)
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "tenant_start",
        |mut caller: Call<'_>, (child, strings, length): (i32, i32, i32)| {
            mark(step!(MODULE, "tenant_start"));

            let args = arguments(&mut caller, strings, length);
            let start = |args| spawn::tenant(caller.data(), selector(child), args);
            let asked = args.and_then(start);
            Box::new(async move { answer(spawn::begun(asked).await.map(|()| 0)) })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "tenant_grant",
        |caller: Call<'_>, child: i32, capability: i32, rights: i32, links: i32| {
            mark(step!(MODULE, "tenant_grant"));

            call(&caller, |kernel, tenant| {
                let rights = Rights::from_bits(rights as u32).ok_or(Errno::Invalid)?;
                let (child, capability) = (selector(child), selector(capability));
                kernel
                    .tenant_grant(tenant, child, capability, rights, links as u32)
                    .map(raw)
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "tenant_wait",
        |caller: Call<'_>, (child,): (i32,)| {
            mark(step!(MODULE, "tenant_wait"));

            let (tenant, execution) = caller.data().identity();
            Box::new(async move {
                let wait = blocking(execution, |kernel, execution| {
                    kernel.tenant_wait(tenant, execution, selector(child))
                });
                answer(wait.await.map(|code| u64::from(code as u32)))
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "tenant_end",
        |caller: Call<'_>, (child,): (i32,)| {
            mark(step!(MODULE, "tenant_end"));

            let (tenant, execution) = caller.data().identity();
            Box::new(async move {
                answer(
                    spawn::end(tenant, execution, selector(child))
                        .await
                        .map(|()| 0),
                )
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "tenant_statement",
        |mut caller: Call<'_>, into: i32| {
            mark(step!(MODULE, "tenant_statement"));

            let tenant = caller.data().tenant;
            answer(Buffer::new(&mut caller, into, 24).and_then(|buffer| {
                let account = local::with(|local| local.kernel.account(tenant))?;
                let words = [account.budget_ns, account.charged_ns, account.left_ns];
                let bytes = buffer.bytes_mut(&mut caller);
                for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                Ok(0)
            }))
        },
    )?;
    Ok(())
}

/// Strings, each ended by a 0 byte.
fn arguments(caller: &mut Call<'_>, strings: i32, length: i32) -> Result<Vec<String>, Errno> {
    let buffer = Buffer::new(caller, strings, length as u32)?;
    let bytes = buffer.bytes(caller);
    if bytes.len() > leasehold_abi::ARGUMENT_BYTES {
        return Err(Errno::TooLarge);
    }
    let Some((0, strings)) = bytes.split_last().map(|(last, rest)| (*last, rest)) else {
        return if bytes.is_empty() {
            Ok(Vec::new())
        } else {
            Err(Errno::Invalid)
        };
    };
    strings
        .split(|byte| *byte == 0)
        .map(|string| {
            str::from_utf8(string)
                .map(str::to_owned)
                .map_err(|_| Errno::Invalid)
        })
        .collect()
}
