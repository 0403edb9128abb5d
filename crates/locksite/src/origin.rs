//! Where a lock is: a variable or an object, and the members that lead from there to the lock.

use crate::ctype::CType;
use crate::site::Lock;

/// The start from which the members are counted.
#[derive(Clone)]
enum Root {
    /// An object that a pointer points to.
    Pointed,
    Variable(String),
    OnStack(String),
    /// The object that a pointer in an object or a variable points to; no more is known of the
    /// lock.
    Loaded(Box<Origin>),
}

/// A member on the way to the lock.
#[derive(Clone)]
struct Member {
    owner: String,
    field: String,
    offset: u64,
    /// The owner is a lock itself.
    in_lock: bool,
}

/// Where a lock is.
#[derive(Clone)]
pub(crate) struct Origin {
    root: Root,
    members: Vec<Member>,
    element: bool,
    per_cpu: bool,
    step: usize,
}

impl Origin {
    fn new(root: Root) -> Self {
        Self {
            root,
            members: Vec::new(),
            element: false,
            per_cpu: false,
            step: 0,
        }
    }

    /// The object that some pointer points to.
    pub(crate) fn pointed() -> Self {
        Self::new(Root::Pointed)
    }

    /// A variable of the kernel.
    pub(crate) fn variable(name: &str) -> Self {
        Self::new(Root::Variable(name.to_owned()))
    }

    /// A variable of a call.
    pub(crate) fn on_stack(name: &str) -> Self {
        Self::new(Root::OnStack(name.to_owned()))
    }

    /// The object that the pointer stored here points to.
    pub(crate) fn loaded(self) -> Self {
        let step = self.step;
        Self {
            step,
            ..Self::new(Root::Loaded(Box::new(self)))
        }
    }

    /// The member of that name in the object here, an `owner`.
    pub(crate) fn member(mut self, owner: &CType, field: &str) -> Option<(Self, CType)> {
        let found = owner.member(field)?;
        match (owner.name(), self.members.last_mut(), &mut self.root) {
            (None, Some(last), _) => {
                last.field = format!("{}.{field}", last.field);
                last.offset += found.offset;
            }
            // The structure of a variable needs no name: the variable has one.
            (None, None, Root::Variable(name) | Root::OnStack(name)) => {
                *name = format!("{name}.{field}");
            }
            (name, ..) => self.members.push(Member {
                owner: name.unwrap_or("(anonymous)").to_owned(),
                field: field.to_owned(),
                offset: found.offset,
                in_lock: owner.is_lock(),
            }),
        }
        Some((self, found.ctype))
    }

    /// One of the elements of the array that is here.
    pub(crate) fn element(self) -> Self {
        Self {
            element: true,
            ..self
        }
    }

    /// A processor's own copy of the object here.
    pub(crate) fn per_cpu(self) -> Self {
        Self {
            per_cpu: true,
            ..self
        }
    }

    /// The step of the call chain in which the lock is named: those before are wrappers.
    pub(crate) fn step(&self) -> usize {
        self.step
    }

    /// The lock is not named before that step of the call chain.
    pub(crate) fn named_in(self, step: usize) -> Self {
        Self {
            step: self.step.max(step),
            ..self
        }
    }

    /// Nothing is known but that there is a pointer to it.
    pub(crate) fn is_bare(&self) -> bool {
        self.members.is_empty() && matches!(self.root, Root::Pointed)
    }

    /// The lock. The structure that declares it is its object (LockScope §4.2): the last one that
    /// is no lock itself. The lock is a part of the structures before.
    pub(crate) fn lock(&self) -> Option<Lock> {
        let Some(last) = self.members.iter().rposition(|member| !member.in_lock) else {
            return self.bare_lock();
        };
        let declaring = &self.members[last];
        let offset = self.members[last..]
            .iter()
            .map(|member| member.offset)
            .sum();
        Some(Lock::Member {
            structure: declaring.owner.clone(),
            field: declaring.field.clone(),
            offset: Some(offset),
            within: self.within(last),
            element: self.element,
            per_cpu: self.per_cpu,
        })
    }

    /// The lock, when no member leads to it.
    fn bare_lock(&self) -> Option<Lock> {
        let (element, per_cpu) = (self.element, self.per_cpu);
        match &self.root {
            Root::Pointed => None,
            Root::Variable(name) => Some(Lock::Variable {
                name: name.clone(),
                element,
                per_cpu,
            }),
            Root::OnStack(name) => Some(Lock::OnStack { name: name.clone() }),
            Root::Loaded(from) => match from.lock()? {
                Lock::Member {
                    structure,
                    field,
                    within,
                    ..
                } => Some(Lock::Member {
                    structure,
                    field,
                    within,
                    offset: None,
                    element,
                    per_cpu,
                }),
                other => Some(other),
            },
        }
    }

    fn within(&self, last: usize) -> Option<String> {
        let mut parts = Vec::new();
        match &self.root {
            Root::Variable(name) | Root::OnStack(name) => parts.push(name.as_str()),
            Root::Pointed | Root::Loaded(_) if last > 0 => parts.push(&self.members[0].owner),
            Root::Pointed | Root::Loaded(_) => return None,
        }
        parts.extend(
            self.members[..last]
                .iter()
                .map(|member| member.field.as_str()),
        );
        Some(parts.join("."))
    }
}
