//! Classes: the cost of reclaiming a unit of each kind.

use core::any::TypeId;
use core::marker::PhantomData;

use crate::cost::CostModel;

/// How many classes, of objects and of resources, can be registered with one
/// [`Groups`](crate::Groups).
pub const MAX_CLASSES: usize = 32;

/// Classes of this crate's own, registered first.
pub(crate) const ROOT: u8 = 0;
pub(crate) const CHILD: u8 = 1;
pub(crate) const SCRUB: u8 = 2;
pub(crate) const CHUNK: u8 = 3;
pub(crate) const MEMORY: u8 = 4;
pub(crate) const RESIDUE: u8 = 5;
const OWN: usize = 6;

pub(crate) const CLASSES: usize = OWN + MAX_CLASSES;

/// Bytes of a unit of the class `MEMORY`.
pub(crate) const GRANULE: usize = 16;

/// A class of objects of type `T` that live in arenas.
pub struct Class<T> {
    token: Token,
    object: PhantomData<fn() -> T>,
}

impl<T> Clone for Class<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Class<T> {}

impl<T> core::fmt::Debug for Class<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Class").field(&self.token.index).finish()
    }
}

/// A class of things that are held elsewhere on a group's behalf: pages of guest memory, engine
/// instances, stacks, file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resource {
    token: Token,
}

/// Index of a class, and the instance of `Groups` that it is registered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Token {
    instance: u16,
    index: u8,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    name: &'static str,
    ps: u64,
    object: Option<TypeId>,
}

/// The registered classes.
#[derive(Debug)]
pub(crate) struct Classes {
    instance: u16,
    registered: u8,
    entries: [Entry; CLASSES],
}

impl Classes {
    pub(crate) fn new(instance: u16, costs: &CostModel) -> Self {
        let unused = Entry {
            name: "",
            ps: 0,
            object: None,
        };
        let mut classes = Classes {
            instance,
            registered: 0,
            entries: [unused; CLASSES],
        };
        let granules = (crate::cost::PAGE / GRANULE) as u64;
        for (name, ps) in [
            ("root group", costs.root_ps),
            ("child group", costs.group_ps),
            ("scrub entry", costs.scrub_ps),
            ("chunk", costs.chunk_ps),
            // Rounded up, so that a page's granules together cost no less than the page.
            ("memory (16 bytes)", costs.page_ps.div_ceil(granules)),
            ("left by ended groups (ps)", 1),
        ] {
            classes.entries[usize::from(classes.registered)] = Entry {
                name,
                ps,
                object: None,
            };
            classes.registered += 1;
        }
        classes
    }

    pub(crate) fn register<T: 'static>(&mut self, name: &'static str, ps: u64) -> Class<T> {
        let token = self.push(Entry {
            name,
            ps,
            object: Some(TypeId::of::<T>()),
        });
        Class {
            token,
            object: PhantomData,
        }
    }

    pub(crate) fn register_resource(&mut self, name: &'static str, ps: u64) -> Resource {
        Resource {
            token: self.push(Entry {
                name,
                ps,
                object: None,
            }),
        }
    }

    fn push(&mut self, entry: Entry) -> Token {
        let index = self.registered;
        assert!(
            usize::from(index) < CLASSES,
            "more than {MAX_CLASSES} classes registered"
        );
        self.entries[usize::from(index)] = entry;
        self.registered += 1;
        Token {
            instance: self.instance,
            index,
        }
    }

    /// Index of an object class.
    #[inline]
    pub(crate) fn object<T>(&self, class: Class<T>) -> u8 {
        self.own(class.token)
    }

    /// Index of a resource class.
    #[inline]
    pub(crate) fn resource(&self, resource: Resource) -> u8 {
        self.own(resource.token)
    }

    #[inline]
    fn own(&self, token: Token) -> u8 {
        // A class decides which type a slot reads as, so a foreign one must not get in.
        assert!(token.instance == self.instance, "class of another Groups");
        token.index
    }

    #[inline]
    pub(crate) fn ps(&self, class: u8) -> u64 {
        self.entries[usize::from(class)].ps
    }

    pub(crate) fn name(&self, class: u8) -> &'static str {
        self.entries[usize::from(class)].name
    }

    /// Returns whether the slots of `class` hold objects of type `T`.
    #[inline]
    pub(crate) fn holds<T: 'static>(&self, class: u8) -> bool {
        self.entries[usize::from(class)].object == Some(TypeId::of::<T>())
    }

    pub(crate) fn indices(&self) -> core::ops::Range<u8> {
        0..self.registered
    }
}
