//! Waiting: the queue of an object, the needs of waiters, and their order.
//!
//! A blocked execution is queued in order of arrival. When the object has as many units as the
//! first one needs, they are *reserved* for it and it is woken; its repeated call takes the
//! reserved units. So a capability that was revoked meanwhile is refused, a message is copied while
//! the receiver's memory is accessible, and no execution overtakes another. If the woken execution
//! ends or calls something else instead, the reservation passes to the next in the queue: no
//! wake-up is lost.
//!
//! A waiter's links to its neighbours live in its execution's record, outside of every group, so
//! that one side can end without the other.

use leasehold_reclaim::{Backing, Handle, LinkId, RawHandle};

use crate::capability::Allowance;
use crate::link::Objects;
use crate::object::channel::state::Channel;
use crate::object::semaphore::state::Semaphore;
use crate::object::task::state::Task;
use crate::object::tenant::state::Child;
use crate::object::timer::state::Timer;
use crate::queue::Queue;

/// Which queue of an object. Each object has one, a channel two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Semaphore,
    Send,
    Receive,
    Timer,
    Task,
    Tenant,
}

impl Side {
    /// Returns the queue and the object's available units; `None` if the object has ended.
    ///
    /// Units: of a semaphore its value, to receive messages, to send bytes of room, of a timer
    /// 1 if it has fired. What a task or tenant gives, its exit, is 0 units: it is not used up.
    pub(crate) fn look<B: Backing>(
        self,
        groups: &mut Objects<B>,
        object: RawHandle,
    ) -> Option<(&mut Queue, Option<u32>)> {
        Some(match self {
            Side::Semaphore => {
                let semaphore = groups.get_mut(Handle::<Semaphore>::from_raw(object))?;
                (&mut semaphore.waiters, Some(semaphore.value))
            }
            Side::Send => {
                let channel = groups.get_mut(Handle::<Channel>::from_raw(object))?;
                let room = channel.room();
                (&mut channel.senders, Some(room))
            }
            Side::Receive => {
                let channel = groups.get_mut(Handle::<Channel>::from_raw(object))?;
                (&mut channel.receivers, Some(channel.messages))
            }
            Side::Timer => {
                let timer = groups.get_mut(Handle::<Timer>::from_raw(object))?;
                (&mut timer.waiters, Some(u32::from(timer.fired > 0)))
            }
            Side::Task => {
                let task = groups.get_mut(Handle::<Task>::from_raw(object))?;
                let exited = task.exit_code().map(|_| 0);
                (&mut task.waiters, exited)
            }
            Side::Tenant => {
                let child = groups.get_mut(Handle::<Child>::from_raw(object))?;
                let news = child.has_news().then_some(0);
                (&mut child.waiters, news)
            }
        })
    }
}

/// The event that a queued execution waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) object: RawHandle,
    pub(crate) side: Side,
    pub(crate) need: u32,
    /// The scrub entry in the object's group, if the waiter is a foreign tenant of it.
    pub(crate) foreign: Option<ForeignWait>,
}

/// The link by which a foreign tenant waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForeignWait {
    pub(crate) link: LinkId,
    pub(crate) allowance: Handle<Allowance>,
}

/// The units reserved for an execution that was woken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedUnits {
    pub(crate) object: RawHandle,
    pub(crate) side: Side,
    pub(crate) need: u32,
}
