//! The end of an object.

use leasehold_reclaim::{Backing, Handle, RawHandle};

use crate::capability::ObjectClass;
use crate::kernel::Kernel;
use crate::object::channel::state::Channel;
use crate::object::region::state::{Bytes, Region};
use crate::object::semaphore::state::Semaphore;
use crate::object::task::state::Task;
use crate::object::tenant::state::Child;
use crate::object::timer::state::Timer;
use crate::wait::Side;

impl<B: Backing> Kernel<B> {
    pub(crate) fn child_lives(&self, child: Handle<Child>) -> bool {
        self.groups.get(child).is_some_and(|child| !child.ended)
    }

    /// Ends an object whose original capability is dropped: its waiters are woken, and its memory
    /// can be used again. O(waiters).
    pub(crate) fn end_object(&mut self, object: RawHandle, class: ObjectClass) {
        let sides: &[Side] = match class {
            ObjectClass::Semaphore => &[Side::Semaphore],
            ObjectClass::Channel => &[Side::Send, Side::Receive],
            ObjectClass::Region => &[],
            ObjectClass::Timer => &[Side::Timer],
            ObjectClass::Task => &[Side::Task],
            ObjectClass::Tenant => &[Side::Tenant],
        };
        for &side in sides {
            self.executions.dismiss(&mut self.groups, object, side);
        }
        match class {
            ObjectClass::Semaphore => {
                self.groups.free(Handle::<Semaphore>::from_raw(object));
            }
            ObjectClass::Channel => {
                if let Some(channel) = self.groups.free(Handle::<Channel>::from_raw(object)) {
                    self.empty_channel(&channel);
                }
            }
            ObjectClass::Region => {
                let region = self.groups.free(Handle::<Region>::from_raw(object));
                if let Some(Region {
                    bytes: Bytes::Here(bytes),
                }) = region
                {
                    self.groups.free_bytes(bytes);
                }
            }
            ObjectClass::Timer => {
                let handle = Handle::<Timer>::from_raw(object);
                if let Some(&Timer { owner, .. }) = self.groups.get(handle) {
                    self.disarm(owner, handle);
                    self.announce(owner);
                    self.groups.free(handle);
                }
            }
            ObjectClass::Task => {
                self.groups.free(Handle::<Task>::from_raw(object));
            }
            ObjectClass::Tenant => {
                if let Some(child) = self.groups.free(Handle::<Child>::from_raw(object)) {
                    self.groups.free(child.alarm);
                }
            }
        }
    }

    /// Frees what a channel holds.
    fn empty_channel(&mut self, channel: &Channel) {
        let mut next = channel.parcels.map(|parcels| parcels.first);
        while let Some(parcel) = next {
            next = self.groups.free(parcel).and_then(|parcel| parcel.next);
        }
        self.groups.free_bytes(channel.buffer());
    }
}
