//! C types as an expression sees them: pointers can be taken and followed, members looked up.

use std::rc::Rc;

use crate::unit::{Naming, Type, TypeId, Unit};

/// A type of a unit, under any number of pointers that an expression added with `&`.
#[derive(Clone)]
pub(crate) struct CType {
    unit: Rc<Unit>,
    id: Option<TypeId>,
    pointers: u32,
}

/// A member that was looked up by name.
pub(crate) struct Found {
    pub(crate) ctype: CType,
    /// From the start of the structure, in bytes.
    pub(crate) offset: u64,
}

/// The structures that are locks themselves. A field of such a type is the lock of a structure; its
/// own fields are not considered.
const LOCKS: [&str; 20] = [
    "spinlock",
    "raw_spinlock",
    "qspinlock",
    "rwlock_t",
    "qrwlock",
    "mutex",
    "ww_mutex",
    "rw_semaphore",
    "percpu_rw_semaphore",
    "semaphore",
    "rt_mutex",
    "rt_mutex_base",
    "rwbase_rt",
    "seqlock_t",
    "spinlock_t",
    "raw_spinlock_t",
    "arch_spinlock_t",
    "arch_rwlock_t",
    "local_lock_t",
    "seqcount_spinlock_t",
];

impl CType {
    pub(crate) fn new(unit: &Rc<Unit>, id: Option<TypeId>) -> Self {
        Self {
            unit: Rc::clone(unit),
            id,
            pointers: 0,
        }
    }

    /// The structure, union or typedef of that name, under `pointers` pointers.
    pub(crate) fn named(
        unit: &Rc<Unit>,
        naming: Naming,
        name: &str,
        pointers: u32,
    ) -> Option<Self> {
        let id = unit.type_named(naming, name)?;
        Some(Self {
            unit: Rc::clone(unit),
            id: Some(id),
            pointers,
        })
    }

    /// The type of `&x`, where this is the type of `x`.
    pub(crate) fn pointer_to(mut self) -> Self {
        self.pointers += 1;
        self
    }

    fn resolved(&self) -> Option<&Type> {
        let mut id = self.id?;
        // Typedefs do not nest deeply; malformed ones could nest for ever.
        for _ in 0..32 {
            match self.unit.type_of(id) {
                Type::Typedef { target, .. } | Type::Qualified(target) => id = (*target)?,
                other => return Some(other),
            }
        }
        None
    }

    fn inside(&self, id: Option<TypeId>) -> Self {
        Self {
            unit: Rc::clone(&self.unit),
            id,
            pointers: 0,
        }
    }

    /// The type that a pointer of this type points to, or the element of an array.
    pub(crate) fn target(&self) -> Option<Self> {
        if self.pointers > 0 {
            return Some(Self {
                pointers: self.pointers - 1,
                ..self.clone()
            });
        }
        match self.resolved()? {
            Type::Pointer(target) | Type::Array(target) => Some(self.inside(*target)),
            _ => None,
        }
    }

    pub(crate) fn is_pointer(&self) -> bool {
        self.pointers > 0 || matches!(self.resolved(), Some(Type::Pointer(_)))
    }

    pub(crate) fn is_array(&self) -> bool {
        self.pointers == 0 && matches!(self.resolved(), Some(Type::Array(_)))
    }

    pub(crate) fn is_aggregate(&self) -> bool {
        self.pointers == 0 && matches!(self.resolved(), Some(Type::Aggregate { .. }))
    }

    /// The type that a call of a function of this type, or of a pointer to it, returns.
    pub(crate) fn returned(&self) -> Option<Self> {
        match self.resolved()? {
            Type::Function { returns } => Some(self.inside(*returns)),
            Type::Pointer(_) => self.target()?.returned(),
            _ => None,
        }
    }

    /// The tag of the structure or union or, if it has none, the name of its typedef.
    pub(crate) fn name(&self) -> Option<&str> {
        if self.pointers > 0 {
            return None;
        }
        let mut typedef = None;
        let mut id = self.id?;
        for _ in 0..32 {
            match self.unit.type_of(id) {
                Type::Typedef { name, target } => {
                    typedef = Some(name.as_str());
                    id = (*target)?;
                }
                Type::Qualified(target) => id = (*target)?,
                Type::Aggregate { tag, .. } => return tag.as_deref().or(typedef),
                _ => return None,
            }
        }
        None
    }

    /// It is a lock, or an array of them.
    pub(crate) fn is_lock(&self) -> bool {
        if self.is_array() {
            return self.target().is_some_and(|element| element.is_lock());
        }
        self.name().is_some_and(|name| LOCKS.contains(&name))
    }

    /// It is a pointer to a lock.
    pub(crate) fn is_lock_pointer(&self) -> bool {
        self.is_pointer() && self.target().is_some_and(|target| target.is_lock())
    }

    /// The member of that name, those of anonymous structures and unions included.
    pub(crate) fn member(&self, name: &str) -> Option<Found> {
        if self.pointers > 0 {
            return None;
        }
        self.member_within(name, 8)
    }

    fn member_within(&self, name: &str, depth: u32) -> Option<Found> {
        let Type::Aggregate { members, .. } = self.resolved()? else {
            return None;
        };
        members.iter().find_map(|member| {
            let ctype = self.inside(member.type_id);
            if member.name == name {
                return Some(Found {
                    ctype,
                    offset: member.offset,
                });
            }
            if !member.name.is_empty() || depth == 0 {
                return None;
            }
            let inner = ctype.member_within(name, depth - 1)?;
            Some(Found {
                offset: member.offset + inner.offset,
                ..inner
            })
        })
    }
}
