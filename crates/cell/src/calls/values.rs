//! Values of calls: type checks, charged bytes, and the cost of lifting a type.
//!
//! The engine lifts a result in one step, and counts bytes while it does: [`VALUE`] for each value,
//! and the bytes of strings and names. Its work for a counted byte depends on the type: all flags
//! of a value are strings that it allocates, and each string of a list may lie on a page that the
//! guest never touched. The bytes that a function may return are therefore divided by the
//! [weight](Shape::weight) of its type.

use super::function::FunctionError;
use crate::steps::caps::NESTED;
use wasmtime::component::Val;
use wasmtime::component::types::Type;

/// Bytes that each value counts as, besides its text: as many as the engine counts.
pub(super) const VALUE: u64 = size_of::<Val>() as u64;

/// Cases of an enumeration that the engine passes over in the time of one allocation.
const CASES: u64 = 64;

/// An element of a list that is allocated, as are records, takes so many times as long as one that lies in the list.
const ALLOCATED: u64 = 2;

/// Strings and lists within a list may each begin on a page of their own, which is to be found first: that takes
/// so many times as long as to lift one.
const SCATTERED: u64 = 8;

/// Which way values go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To the guest. Its allocator is called for each string and list, between two steps.
    Lower,
    /// From the guest, in one step.
    Lift,
}

/// What a value of a type takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// The least bytes that one counts as, besides [`VALUE`].
    least: u64,
    /// Bytes of guest memory that one lies on, at the most.
    bytes: u64,
    /// How many times as long as a list of numbers a counted byte takes.
    weight: u64,
    /// Strings and lists in one at the most, those within lists not counted.
    pointers: u64,
}

impl Shape {
    const fn flat(bytes: u64) -> Self {
        Self {
            least: 0,
            bytes,
            weight: 1,
            pointers: 0,
        }
    }

    /// How many times as long as of a list of numbers one counted byte takes at the most.
    pub(super) const fn weight(&self) -> u64 {
        self.weight
    }

    /// Strings and lists that one points to at the most, those within lists not counted.
    pub(super) const fn pointers(&self) -> u64 {
        self.pointers
    }

    /// Of several values one after the other, each with a name of so many bytes.
    fn of_all(
        fields: impl Iterator<Item = Result<(u64, Shape), FunctionError>>,
    ) -> Result<Self, FunctionError> {
        fields.into_iter().try_fold(Self::flat(0), |all, field| {
            let (name, field) = field?;
            let least = all.least.saturating_add(VALUE + name);
            Ok(Self {
                least: least.saturating_add(field.least),
                bytes: all.bytes.saturating_add(field.bytes.next_multiple_of(8)),
                weight: all.weight.max(field.weight),
                pointers: all.pointers.saturating_add(field.pointers),
            })
        })
    }

    /// Of one of several values, each with a name of so many bytes.
    fn of_one(
        cases: impl Iterator<Item = Result<(u64, Option<Shape>), FunctionError>>,
    ) -> Result<Self, FunctionError> {
        let (mut one, mut least, mut count) = (Self::flat(0), u64::MAX, 0_u64);
        for case in cases {
            let (name, payload) = case?;
            count += 1;
            let payload_least = payload.map_or(0, |payload| VALUE.saturating_add(payload.least));
            least = least.min(name.saturating_add(payload_least));
            if let Some(payload) = payload {
                one.bytes = one.bytes.max(payload.bytes.next_multiple_of(8));
                one.weight = one.weight.max(payload.weight);
                one.pointers = one.pointers.max(payload.pointers);
            }
        }
        Ok(Self {
            least,
            bytes: one.bytes.saturating_add(8),
            weight: one.weight.max(1 + count / CASES),
            pointers: one.pointers,
        })
    }

    /// Of a value of this type, `depth` others around it, in a list or not.
    ///
    /// # Errors
    /// When no value of the type can be given or taken, or it is nested too deeply.
    pub(super) fn of(
        ty: &Type,
        way: Way,
        depth: u64,
        is_listed: bool,
    ) -> Result<Self, FunctionError> {
        if depth > NESTED.most {
            return Err(FunctionError::Nested);
        }
        let within = |ty: &Type| Self::of(ty, way, depth + 1, is_listed);
        let (pointer, allocated) = match (way, is_listed) {
            (Way::Lift, true) => (SCATTERED, ALLOCATED),
            _ => (1, 1),
        };
        let shape = match ty {
            Type::Bool | Type::S8 | Type::U8 => Self::flat(1),
            Type::S16 | Type::U16 => Self::flat(2),
            Type::S32 | Type::U32 | Type::Float32 | Type::Char => Self::flat(4),
            Type::S64 | Type::U64 | Type::Float64 => Self::flat(8),
            Type::String => Self {
                weight: pointer,
                pointers: 1,
                ..Self::flat(8)
            },
            Type::List(list) => {
                let element = Self::of(&list.ty(), way, depth + 1, true)?;
                // Two bytes of memory for a counted one are what numbers have, and less.
                let sparse = element
                    .bytes
                    .div_ceil(2 * VALUE.saturating_add(element.least));
                Self {
                    weight: pointer.max(element.weight).max(sparse),
                    pointers: 1,
                    ..Self::flat(8)
                }
            }
            Type::Record(record) => {
                let fields = record.fields();
                Self::of_all(fields.map(|field| Ok((field.name.len() as u64, within(&field.ty)?))))?
            }
            Type::Tuple(tuple) => Self::of_all(tuple.types().map(|ty| Ok((0, within(&ty)?))))?,
            Type::Variant(variant) => Self::of_one(variant.cases().map(|case| {
                let payload = case.ty.as_ref().map(within).transpose()?;
                Ok((case.name.len() as u64, payload))
            }))?,
            Type::Enum(names) => {
                Self::of_one(names.names().map(|name| Ok((name.len() as u64, None))))?
            }
            Type::Option(option) => {
                let cases = [None, Some(option.ty())].into_iter();
                Self::of_one(cases.map(|ty| Ok((0, ty.as_ref().map(within).transpose()?))))?
            }
            Type::Result(result) => {
                let cases = [result.ok(), result.err()].into_iter();
                Self::of_one(cases.map(|ty| Ok((0, ty.as_ref().map(within).transpose()?))))?
            }
            Type::Flags(flags) => {
                let (count, text) = flags.names().fold((0, 0), |(count, text), name| {
                    (count + 1, text + name.len() as u64)
                });
                let allocations: u64 = 1 + count;
                Self {
                    weight: (allocations * VALUE).div_ceil(VALUE + text),
                    ..Self::flat(4 * count.div_ceil(32))
                }
            }
            _ => return Err(FunctionError::Type),
        };
        let is_allocated = matches!(
            ty,
            Type::Record(_) | Type::Tuple(_) | Type::Variant(_) | Type::Enum(_)
        );
        Ok(match is_allocated {
            true => Self {
                weight: shape.weight.max(allocated),
                ..shape
            },
            false => shape,
        })
    }
}

/// The bytes that a value counts as.
pub(super) fn counted(value: &Val) -> u64 {
    let text = |text: &str| text.len() as u64;
    let boxed = |value: &Option<Box<Val>>| value.as_deref().map_or(0, counted);
    VALUE
        + match value {
            Val::String(string) | Val::Enum(string) => text(string),
            Val::List(values) | Val::Tuple(values) => values.iter().map(counted).sum(),
            Val::Record(fields) => fields
                .iter()
                .map(|(name, value)| text(name) + counted(value))
                .sum(),
            Val::Variant(name, payload) => text(name) + boxed(payload),
            Val::Option(payload) | Val::Result(Ok(payload) | Err(payload)) => boxed(payload),
            // A name each, and no values.
            Val::Flags(names) => names.iter().map(|name| VALUE + text(name)).sum(),
            _ => 0,
        }
}

/// Whether a value has this type. The type is one of which there is a [`Shape`].
pub(super) fn fits(value: &Val, ty: &Type) -> bool {
    let all = |values: &[Val], types: &mut dyn Iterator<Item = Type>| {
        values
            .iter()
            .all(|value| types.next().is_some_and(|ty| fits(value, &ty)))
            && types.next().is_none()
    };
    let payload = |value: &Option<Box<Val>>, ty: &Option<Type>| match (value, ty) {
        (None, None) => true,
        (Some(value), Some(ty)) => fits(value, ty),
        _ => false,
    };
    match (value, ty) {
        (Val::Bool(_), Type::Bool)
        | (Val::S8(_), Type::S8)
        | (Val::U8(_), Type::U8)
        | (Val::S16(_), Type::S16)
        | (Val::U16(_), Type::U16)
        | (Val::S32(_), Type::S32)
        | (Val::U32(_), Type::U32)
        | (Val::S64(_), Type::S64)
        | (Val::U64(_), Type::U64)
        | (Val::Float32(_), Type::Float32)
        | (Val::Float64(_), Type::Float64)
        | (Val::Char(_), Type::Char)
        | (Val::String(_), Type::String) => true,
        (Val::List(values), Type::List(list)) => {
            let ty = list.ty();
            values.iter().all(|value| fits(value, &ty))
        }
        (Val::Record(values), Type::Record(record)) => {
            values.len() == record.fields().len()
                && values
                    .iter()
                    .zip(record.fields())
                    .all(|((name, value), field)| name == field.name && fits(value, &field.ty))
        }
        (Val::Tuple(values), Type::Tuple(tuple)) => all(values, &mut tuple.types()),
        (Val::Variant(name, value), Type::Variant(variant)) => {
            let case = variant.cases().find(|case| case.name == name);
            case.is_some_and(|case| payload(value, &case.ty))
        }
        (Val::Enum(name), Type::Enum(names)) => names.names().any(|known| known == name),
        (Val::Option(value), Type::Option(option)) => value
            .as_deref()
            .is_none_or(|value| fits(value, &option.ty())),
        (Val::Result(Ok(value)), Type::Result(result)) => payload(value, &result.ok()),
        (Val::Result(Err(value)), Type::Result(result)) => payload(value, &result.err()),
        (Val::Flags(names), Type::Flags(flags)) => names
            .iter()
            .all(|name| flags.names().any(|known| known == name)),
        _ => false,
    }
}
