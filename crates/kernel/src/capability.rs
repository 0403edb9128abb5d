//! Capabilities: a tenant's rights on an object, and the selector that names them.

use core::fmt;

use leasehold_abi::Rights;
use leasehold_reclaim::{Handle, LinkId, RawHandle, Resource};

/// Bits of a selector that tell the place in the table.
pub(crate) const INDEX_BITS: u32 = 20;
/// Bits of an index that a leaf resolves.
pub(crate) const LEAF_BITS: u32 = 4;
/// Places of a leaf.
pub(crate) const LEAF: usize = 1 << LEAF_BITS;

/// A guest's name of one of its capabilities: the place in its table (20 bits) and the number of
/// reuses of the place (12 bits, wrapping).
///
/// Selectors mean something only together with their tenant. One that was dropped is detected,
/// unless the tenant itself went on to reuse the place 4,096 times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector(pub u32);

impl Selector {
    /// The tenant itself. Carries no right, so that it can be named but not used.
    pub const OWN: Selector = Selector(0);

    #[inline]
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Selector(index | generation << INDEX_BITS)
    }

    #[inline]
    pub(crate) const fn index(self) -> u32 {
        self.0 & ((1 << INDEX_BITS) - 1)
    }

    /// Whether the selector was made for this generation of its place.
    #[inline]
    pub(crate) const fn is_of(self, generation: u32) -> bool {
        self.0 >> INDEX_BITS == generation & (u32::MAX >> INDEX_BITS)
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index(), self.0 >> INDEX_BITS)
    }
}

/// The classes of kernel objects that capabilities are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ObjectClass {
    /// A counting semaphore.
    Semaphore = 0,
    /// A bounded channel of messages.
    Channel = 1,
    /// Shared memory.
    Region = 2,
    /// A timer.
    Timer = 3,
    /// An execution in the same tenant.
    Task = 4,
    /// A child tenant.
    Tenant = 5,
}

/// One capability, as it lies in a table: 28 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capability {
    pub(crate) origin: Origin,
    /// Bumped by a revocation: what was derived under another number is no longer valid.
    pub(crate) derived: u32,
    /// Links granted directly from here that are charged to the holder and not in use
    /// ([`Allowance`]).
    pub(crate) units: u32,
    pub(crate) class: ObjectClass,
    pub(crate) rights: Rights,
    /// Distance from the original.
    pub(crate) depth: u8,
}

/// Where a capability came from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// With the object, which lives exactly as long as this capability.
    Object(RawHandle),
    /// From another capability.
    Derived(Handle<Derivation>),
}

impl Capability {
    /// The capability that the creator of an object gets.
    // The kernel's operations are generic, so they are compiled in the crate that uses them. Not
    // inlined there, the capability would be written in parts and read back whole a moment
    // later, before the parts have left the store buffer: a third of what making an object takes.
    #[inline]
    pub(crate) const fn original(object: RawHandle, class: ObjectClass) -> Self {
        let (origin, rights) = (Origin::Object(object), Rights::ALL);
        Capability {
            origin,
            derived: 0,
            units: 0,
            class,
            rights,
            depth: 0,
        }
    }
}

/// The place of a capability in any tenant's table, with the generation that the place had: stale
/// once the capability is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CapabilityKey {
    pub(crate) leaf: Handle<Leaf>,
    pub(crate) position: u8,
    pub(crate) generation: u32,
}

/// How a capability came from another one. Lives in the group of the one that holds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Derivation {
    pub(crate) object: RawHandle,
    pub(crate) parent: CapabilityKey,
    /// The parent's `derived` at the time.
    pub(crate) derived: u32,
    pub(crate) granted: Option<Granted>,
}

/// The links that came with a delegation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted {
    pub(crate) allowance: Handle<Allowance>,
    /// Closes the allowance when the holder ends; `None` if they end together anyway.
    pub(crate) close: Option<LinkId>,
}

/// One place of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    /// How often the place was vacated.
    pub(crate) generation: u32,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// With the next vacant place, if it is on the list.
    Vacant(Option<u32>),
    Taken(Capability),
}

/// The lowest level of a table.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) cells: [Cell; LEAF],
}

impl Leaf {
    pub(crate) const VACANT: Leaf = Leaf {
        cells: [Cell {
            generation: 0,
            content: Content::Vacant(None),
        }; LEAF],
    };
}

/// The links granted with one delegation. Lives in the group that pays for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// Links that can still be made.
    pub(crate) left: u32,
    /// Links delegated further and not in use.
    pub(crate) delegated: u32,
    pub(crate) source: Source,
    /// The class of a link that is not in use; costs as much as a scrub entry.
    pub(crate) unit: Resource,
}

/// Where an allowance's links came from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// From the budget of the object's owner: its capability, whose `units` include these links
    /// as long as its `derived` is still this.
    Owner { key: CapabilityKey, derived: u32 },
    /// From the delegator's own allowance.
    Allowance(Handle<Allowance>),
}

/// The object of a capability, after all checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) object: RawHandle,
    pub(crate) allowance: Option<Handle<Allowance>>,
}

/// A capability on its way from one table to another (or to another place of the same).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) parent: CapabilityKey,
    /// The parent as it is when the transfer begins.
    pub(crate) from: Capability,
    pub(crate) rights: Rights,
    /// The object, and what the parent's waits draw on.
    pub(crate) target: Target,
}
