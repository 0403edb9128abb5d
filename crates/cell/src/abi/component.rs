//! The kernel for components: the interfaces of `wit/kernel.wit`.

use super::blocking::blocking;
use super::spawn;
use crate::guest::Guest;
use crate::host::yield_point::yield_point;
use crate::local::{self, CellKernel};
use crate::steps::caps::{ARGUMENTS, COPIED_REGION, MESSAGE, REGION_COPY, STRING_COUNT};
use crate::steps::{mark, step};
use leasehold_abi::{Errno as KernelErrno, Received, Rights as KernelRights};
use leasehold_kernel::{Outcome, Selector, TenantId};
use wasmtime::StoreContextMut;
use wasmtime::component::{HasData, Linker, WasmList, WasmStr};

mod bindings {
    //! The engine's bindings of the WIT package.
    #![allow(missing_docs)]
    wasmtime::component::bindgen!({
        path: "wit",
        world: "leasehold:kernel/guest",
        imports: {
            "leasehold:kernel/semaphore.down": async,
            "leasehold:kernel/channel.send": async,
            "leasehold:kernel/channel.receive": async,
            "leasehold:kernel/timer.wait": async,
            "leasehold:kernel/task.start": async,
            "leasehold:kernel/task.wait": async,
            "leasehold:kernel/task.stop": async,
            "leasehold:kernel/tenant.start": async,
            "leasehold:kernel/tenant.wait": async,
            "leasehold:kernel/tenant.end": async,
        },
    });
}

use bindings::leasehold::kernel::types::{self, Account, Errno, Message, Rights};
use bindings::leasehold::kernel::{capability, channel, region, semaphore, task, tenant, timer};

/// A guest, seen by the kernel's interfaces.
pub(crate) struct Caller<'a>(&'a mut Guest);

struct OfGuest;

impl HasData for OfGuest {
    type Data<'a> = Caller<'a>;
}

/// Links all interfaces.
///
/// # Errors
/// When one is linked twice, which is a defect.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    bindings::Guest::add_to_linker::<Guest, OfGuest>(linker, |guest| Caller(guest))?;
    link_lists_of_strings(linker)
}

/// Links replacements of the functions that take a list of strings. The engine would lift the list
/// as a whole, which may lie on as many pages as it has strings, and each page may have to be
/// fetched from the disk.
fn link_lists_of_strings(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker
        .instance("leasehold:kernel/task@0.1.0")?
        .func_wrap_async(
            "start",
            |mut store: StoreContextMut<'_, Guest>, (arguments,): (WasmList<WasmStr>,)| {
                mark(step!("leasehold:kernel/task", "start"));
                Box::new(async move {
                    let started = match strings(&mut store, &arguments).await? {
                        Ok(arguments) => {
                            task::Host::start(&mut Caller(store.data_mut()), arguments).await
                        }
                        Err(errno) => Err(errno.into()),
                    };
                    Ok((started,))
                })
            },
        )?;
    linker
        .instance("leasehold:kernel/tenant@0.1.0")?
        .func_wrap_async(
            "start",
            |mut store: StoreContextMut<'_, Guest>,
             (child, arguments): (u32, WasmList<WasmStr>)| {
                mark(step!("leasehold:kernel/tenant", "start"));
                Box::new(async move {
                    let started = match strings(&mut store, &arguments).await? {
                        Ok(arguments) => {
                            tenant::Host::start(&mut Caller(store.data_mut()), child, arguments)
                                .await
                        }
                        Err(errno) => Err(errno.into()),
                    };
                    Ok((started,))
                })
            },
        )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// The strings of a list in the memory of a guest, one a step.
///
/// # Errors
/// [`KernelErrno::TooLarge`] when they are more than a task or a child tenant can be given; a trap when one
/// is not in the memory, is no text, or is longer than a call may be.
async fn strings(
    store: &mut StoreContextMut<'_, Guest>,
    list: &WasmList<WasmStr>,
) -> wasmtime::Result<Result<Vec<String>, KernelErrno>> {
    let (mut strings, mut bytes) = (Vec::new(), 0);
    for index in 0..list.len() {
        let Some(string) = list.get(&mut *store, index) else {
            break;
        };
        let string = string?.to_str(&mut *store)?.into_owned();
        bytes += string.len() + 1;
        if bytes > ARGUMENTS.size() || strings.len() == STRING_COUNT.size() {
            return Ok(Err(KernelErrno::TooLarge));
        }
        strings.push(string);
        yield_point().await;
    }
    Ok(Ok(strings))
}

impl From<KernelErrno> for Errno {
    fn from(errno: KernelErrno) -> Self {
        match errno {
            KernelErrno::BadSelector => Errno::BadSelector,
            KernelErrno::BadClass => Errno::BadClass,
            KernelErrno::Rights => Errno::Rights,
            KernelErrno::Gone => Errno::Gone,
            KernelErrno::Budget => Errno::Budget,
            KernelErrno::Memory => Errno::Memory,
            KernelErrno::TableFull => Errno::TableFull,
            KernelErrno::Full => Errno::Full,
            KernelErrno::Empty => Errno::Empty,
            KernelErrno::TooLarge => Errno::TooLarge,
            KernelErrno::Depth => Errno::Depth,
            KernelErrno::Allowance => Errno::Allowance,
            KernelErrno::Invalid => Errno::Invalid,
            KernelErrno::Busy => Errno::Busy,
            KernelErrno::Limit => Errno::Limit,
        }
    }
}

fn selector(raw: u32) -> Selector {
    Selector(raw)
}

fn kernel_rights(rights: Rights) -> KernelRights {
    let mut bits = KernelRights::NONE;
    for (theirs, ours) in [
        (Rights::READ, KernelRights::READ),
        (Rights::WRITE, KernelRights::WRITE),
        (Rights::GRANT, KernelRights::GRANT),
        (Rights::END, KernelRights::END),
    ] {
        if rights.contains(theirs) {
            bits = bits | ours;
        }
    }
    bits
}

impl Caller<'_> {
    fn call<R>(
        &self,
        f: impl FnOnce(&mut CellKernel, TenantId) -> Result<R, KernelErrno>,
    ) -> Result<R, Errno> {
        let tenant = self.0.tenant;
        Ok(local::call(|kernel| f(kernel, tenant))?)
    }

    fn create(
        &self,
        f: impl FnOnce(&mut CellKernel, TenantId) -> Result<Selector, KernelErrno>,
    ) -> Result<u32, Errno> {
        Ok(self.call(f)?.0)
    }
}

impl types::Host for Caller<'_> {}

impl capability::Host for Caller<'_> {
    fn derive(&mut self, of: u32, rights: Rights) -> Result<u32, Errno> {
        mark(step!("leasehold:kernel/capability", "derive"));
        self.create(|kernel, tenant| {
            kernel.capability_derive(tenant, selector(of), kernel_rights(rights))
        })
    }

    fn drop(&mut self, capability: u32) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/capability", "drop"));
        self.call(|kernel, tenant| kernel.capability_drop(tenant, selector(capability)))
    }

    fn revoke(&mut self, capability: u32) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/capability", "revoke"));
        self.call(|kernel, tenant| kernel.capability_revoke(tenant, selector(capability)))
    }
}

impl semaphore::Host for Caller<'_> {
    fn create(&mut self, value: u32) -> Result<u32, Errno> {
        mark(step!("leasehold:kernel/semaphore", "create"));
        Caller::create(self, |kernel, tenant| {
            kernel.semaphore_create(tenant, value)
        })
    }

    fn up(&mut self, semaphore: u32, n: u32) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/semaphore", "up"));
        self.call(|kernel, tenant| kernel.semaphore_up(tenant, selector(semaphore), n))
    }

    async fn down(&mut self, semaphore: u32) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/semaphore", "down"));
        let (tenant, execution) = self.0.identity();
        let down = blocking(execution, |kernel, execution| {
            kernel.semaphore_down(tenant, execution, selector(semaphore))
        });
        Ok(down.await?)
    }

    fn try_down(&mut self, semaphore: u32) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/semaphore", "try-down"));
        self.call(|kernel, tenant| kernel.semaphore_try_down(tenant, selector(semaphore)))
    }
}

/// Most capabilities in one message.
const CAPABILITIES: usize = leasehold_kernel::MESSAGE_CAPABILITIES;

fn selectors(raw: &[u32]) -> Result<Vec<Selector>, KernelErrno> {
    if raw.len() > CAPABILITIES {
        return Err(KernelErrno::TooLarge);
    }
    Ok(raw.iter().copied().map(Selector).collect())
}

/// Bytes for a message, at first; more when it does not fit.
const FIRST_BUFFER: usize = 4096;

/// Takes a message out of a channel, whatever its size, into memory of at most `most` bytes: what
/// a pending host call is charged for.
fn take_message<O>(
    most: u64,
    mut receive: impl FnMut(&mut [u8], &mut [Selector]) -> Result<O, KernelErrno>,
    message: impl FnOnce(O, Vec<u8>, [Selector; CAPABILITIES]) -> Outcome<Message>,
) -> Result<Outcome<Message>, KernelErrno> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut list = [Selector(0); CAPABILITIES];
    let mut bytes = vec![0; FIRST_BUFFER.min(most)];
    loop {
        match receive(&mut bytes, &mut list) {
            Err(KernelErrno::TooLarge) if bytes.len() < most => {
                let larger = bytes.len().saturating_mul(8).min(most);
                bytes = vec![0; larger];
            }
            Err(errno) => return Err(errno),
            Ok(outcome) => return Ok(message(outcome, bytes, list)),
        }
    }
}

fn message(received: Received, mut bytes: Vec<u8>, list: [Selector; CAPABILITIES]) -> Message {
    bytes.truncate(received.length as usize);
    let capabilities = list[..received.capabilities as usize]
        .iter()
        .map(|selector| selector.0);
    Message {
        bytes,
        capabilities: capabilities.collect(),
    }
}

impl channel::Host for Caller<'_> {
    fn create(&mut self, capacity: u32) -> Result<u32, Errno> {
        mark(step!("leasehold:kernel/channel", "create"));
        Caller::create(self, |kernel, tenant| {
            kernel.channel_create(tenant, capacity)
        })
    }

    async fn send(
        &mut self,
        channel: u32,
        bytes: Vec<u8>,
        capabilities: Vec<u32>,
    ) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/channel", "send"));
        if bytes.len() > MESSAGE.size() {
            return Err(Errno::TooLarge);
        }
        let (tenant, execution) = self.0.identity();
        let list = selectors(&capabilities)?;
        let send = blocking(execution, |kernel, execution| {
            kernel.channel_send(tenant, execution, selector(channel), &bytes, &list)
        });
        Ok(send.await?)
    }

    fn try_send(
        &mut self,
        channel: u32,
        bytes: Vec<u8>,
        capabilities: Vec<u32>,
    ) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/channel", "try-send"));
        if bytes.len() > MESSAGE.size() {
            return Err(Errno::TooLarge);
        }
        let list = selectors(&capabilities)?;
        self.call(|kernel, tenant| {
            kernel.channel_try_send(tenant, selector(channel), &bytes, &list)
        })
    }

    async fn receive(&mut self, channel: u32) -> Result<Message, Errno> {
        mark(step!("leasehold:kernel/channel", "receive"));
        let (tenant, execution) = self.0.identity();
        let most = self.0.call_bytes.min(MESSAGE.most);
        let receive = blocking(execution, |kernel, execution| {
            take_message(
                most,
                |bytes, list| {
                    kernel.channel_receive(tenant, execution, selector(channel), bytes, list)
                },
                |outcome, bytes, list| match outcome {
                    Outcome::Done(received) => Outcome::Done(message(received, bytes, list)),
                    Outcome::Blocked => Outcome::Blocked,
                },
            )
        });
        Ok(receive.await?)
    }

    fn try_receive(&mut self, channel: u32) -> Result<Message, Errno> {
        mark(step!("leasehold:kernel/channel", "try-receive"));
        let most = self.0.call_bytes.min(MESSAGE.most);
        let received = self.call(|kernel, tenant| {
            take_message(
                most,
                |bytes, list| kernel.channel_try_receive(tenant, selector(channel), bytes, list),
                |received, bytes, list| Outcome::Done(message(received, bytes, list)),
            )
        })?;
        match received {
            Outcome::Done(message) => Ok(message),
            Outcome::Blocked => Err(Errno::Empty),
        }
    }
}

impl region::Host for Caller<'_> {
    fn create(&mut self, length: u64) -> Result<u32, Errno> {
        mark(step!("leasehold:kernel/region", "create"));
        if length > COPIED_REGION.most {
            return Err(Errno::TooLarge);
        }
        Caller::create(self, |kernel, tenant| kernel.region_create(tenant, length))
    }

    fn length(&mut self, region: u32) -> Result<u64, Errno> {
        mark(step!("leasehold:kernel/region", "length"));
        self.call(|kernel, tenant| kernel.region_length(tenant, selector(region)))
    }

    fn read(&mut self, region: u32, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        mark(step!("leasehold:kernel/region", "read"));
        // The memory that a pending host call may hold is charged; its results must fit in it as
        // well.
        if u64::from(length) > self.0.call_bytes.min(REGION_COPY.most) {
            return Err(Errno::TooLarge);
        }
        let mut bytes = vec![0; length as usize];
        self.call(|kernel, tenant| {
            kernel.region_read(tenant, selector(region), offset, &mut bytes)
        })?;
        Ok(bytes)
    }

    fn write(&mut self, region: u32, offset: u64, bytes: Vec<u8>) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/region", "write"));
        if bytes.len() > REGION_COPY.size() {
            return Err(Errno::TooLarge);
        }
        self.call(|kernel, tenant| kernel.region_write(tenant, selector(region), offset, &bytes))
    }
}

impl timer::Host for Caller<'_> {
    fn create(&mut self) -> Result<u32, Errno> {
        mark(step!("leasehold:kernel/timer", "create"));
        Caller::create(self, |kernel, tenant| kernel.timer_create(tenant))
    }

    fn set(&mut self, timer: u32, after_ns: u64, period_ns: u64) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/timer", "set"));
        let now = crate::clock::monotonic_ns();
        self.call(|kernel, tenant| {
            kernel.timer_set(tenant, selector(timer), now, after_ns, period_ns)
        })
    }

    async fn wait(&mut self, timer: u32) -> Result<u64, Errno> {
        mark(step!("leasehold:kernel/timer", "wait"));
        let (tenant, execution) = self.0.identity();
        let wait = blocking(execution, |kernel, execution| {
            kernel.timer_wait(tenant, execution, selector(timer))
        });
        Ok(wait.await?)
    }
}

impl task::Host for Caller<'_> {
    async fn start(&mut self, arguments: Vec<String>) -> Result<u32, Errno> {
        mark(step!("leasehold:kernel/task", "start"));
        let asked = spawn::task(self.0, arguments);
        Ok(spawn::begun(asked).await?.0)
    }

    async fn wait(&mut self, task: u32) -> Result<i32, Errno> {
        mark(step!("leasehold:kernel/task", "wait"));
        let (tenant, execution) = self.0.identity();
        let wait = blocking(execution, |kernel, execution| {
            kernel.task_wait(tenant, execution, selector(task))
        });
        Ok(wait.await?)
    }

    async fn stop(&mut self, task: u32) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/task", "stop"));
        Ok(spawn::stop(self.0.tenant, selector(task)).await?)
    }
}

impl tenant::Host for Caller<'_> {
    fn create(&mut self, reclaim_ns: u64, memory_bytes: u64) -> Result<u32, Errno> {
        mark(step!("leasehold:kernel/tenant", "create"));
        Caller::create(self, |kernel, tenant| {
            kernel.tenant_create(tenant, reclaim_ns, memory_bytes)
        })
    }

    async fn start(&mut self, child: u32, arguments: Vec<String>) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/tenant", "start"));
        let asked = spawn::tenant(self.0, selector(child), arguments);
        Ok(spawn::begun(asked).await?)
    }

    fn grant(
        &mut self,
        child: u32,
        capability: u32,
        rights: Rights,
        links: u32,
    ) -> Result<u32, Errno> {
        mark(step!("leasehold:kernel/tenant", "grant"));
        let rights = kernel_rights(rights);
        Caller::create(self, |kernel, tenant| {
            kernel.tenant_grant(tenant, selector(child), selector(capability), rights, links)
        })
    }

    async fn wait(&mut self, child: u32) -> Result<i32, Errno> {
        mark(step!("leasehold:kernel/tenant", "wait"));
        let (tenant, execution) = self.0.identity();
        let wait = blocking(execution, |kernel, execution| {
            kernel.tenant_wait(tenant, execution, selector(child))
        });
        Ok(wait.await?)
    }

    async fn end(&mut self, child: u32) -> Result<(), Errno> {
        mark(step!("leasehold:kernel/tenant", "end"));
        let (tenant, caller) = self.0.identity();
        Ok(spawn::end(tenant, caller, selector(child)).await?)
    }

    fn statement(&mut self) -> Account {
        mark(step!("leasehold:kernel/tenant", "statement"));
        let account = local::with(|local| local.kernel.account(self.0.tenant));
        // A tenant that is making a call has not ended.
        account.map_or(
            Account {
                budget_ns: 0,
                charged_ns: 0,
                left_ns: 0,
            },
            |account| Account {
                budget_ns: account.budget_ns,
                charged_ns: account.charged_ns,
                left_ns: account.left_ns,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, KernelErrno, KernelRights, Rights, kernel_rights};

    #[test]
    fn an_error_of_the_kernel_has_its_name_in_the_interface() {
        for errno in KernelErrno::ALL {
            assert_eq!(Errno::from(errno).name(), errno.name());
        }
    }

    #[test]
    fn all_rights_of_the_interface_are_all_rights_of_the_kernel() {
        assert_eq!(kernel_rights(Rights::all()), KernelRights::ALL);
        assert_eq!(kernel_rights(Rights::empty()), KernelRights::NONE);
    }
}
