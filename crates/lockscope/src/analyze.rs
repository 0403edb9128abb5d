//! Which objects the locks of a trace are, by the debug information and the source of the kernel
//! that was traced (LockScope §4.2).

use std::collections::{BTreeMap, HashMap};

use leasehold_locksite::{Code, Error, Kernel, Lock, Site};

use crate::place::{Object, Place};
use crate::trace::{PlaceId, Trace, Use};

/// Why the locks of a trace could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum AnalyzeError {
    /// The trace is of another kernel.
    #[error("the trace is of a kernel with build id {traced}, found debug information of {found}")]
    OtherKernel {
        /// Of the kernel that was traced.
        traced: String,
        /// Of the debug information.
        found: String,
    },
    /// The debug information is malformed.
    #[error(transparent)]
    Kernel(#[from] Error),
}

/// Fills in the place of every use of a trace.
///
/// Costs milliseconds for each call chain, and some ten more for each source file that is new.
///
/// # Errors
/// [`AnalyzeError::OtherKernel`] when the trace and the debug information both have a build id,
/// and not the same; otherwise when the debug information is malformed. Nothing is changed then.
pub fn analyze(trace: &mut Trace, kernel: &Kernel) -> Result<(), AnalyzeError> {
    let (traced, found) = (trace.kernel.build_id.as_str(), kernel.build_id());
    if !traced.is_empty() && !found.is_empty() && traced != found {
        let (traced, found) = (traced.to_owned(), found.to_owned());
        return Err(AnalyzeError::OtherKernel { traced, found });
    }
    // How far the kernel was moved from where it was linked.
    let moved = kernel.symbol("_text").filter(|_| trace.kernel.text != 0);
    let moved = moved.map(|linked| trace.kernel.text.wrapping_sub(linked));
    let mut known: HashMap<(&str, Vec<Code>), Place> = HashMap::new();
    let mut ids: BTreeMap<Place, PlaceId> = BTreeMap::new();
    let mut of_uses = Vec::with_capacity(trace.uses.len());
    for used in &trace.uses {
        let primitive = trace.primitives.get(usize::from(used.primitive.0));
        let primitive = primitive.map_or("", |primitive| primitive.name.as_str());
        let chain = chain(trace, used, moved);
        let found = match known.get(&(primitive, chain.clone())) {
            Some(place) => place.clone(),
            None => {
                let found = place(kernel.site(primitive, &chain)?);
                known.insert((primitive, chain), found.clone());
                found
            }
        };
        let before = used.place.and_then(|id| trace.places.get(id.0 as usize));
        let next = PlaceId(ids.len() as u32);
        of_uses.push(*ids.entry(refined(found, before)).or_insert(next));
    }
    let mut places: Vec<_> = ids.into_iter().collect();
    places.sort_by_key(|(_, id)| *id);
    for (used, id) in trace.uses.iter_mut().zip(of_uses) {
        used.place = Some(id);
    }
    trace.places = places.into_iter().map(|(place, _)| place).collect();
    Ok(())
}

/// What the source says, with the object that the tracer found where the source does not tell it.
fn refined(found: Place, before: Option<&Place>) -> Place {
    match (&found.object, before) {
        (Object::Unknown { .. }, Some(before)) => Place {
            object: before.object.clone(),
            ..found
        },
        _ => found,
    }
}

/// The return addresses of a use, from the function that takes the lock on.
fn chain(trace: &Trace, used: &Use, moved: Option<u64>) -> Vec<Code> {
    let stack = used.stack.and_then(|id| trace.stacks.get(id.0 as usize));
    let stack = stack.map_or(&[][..], |stack| &stack.0);
    // The chain may begin in the probe or the lock function.
    let start = stack.iter().position(|&address| address == used.site);
    let callers = start.map_or(&[][..], |start| &stack[start + 1..]);
    let addresses = std::iter::once(used.site).chain(callers.iter().copied());
    addresses
        .filter_map(|address| code(trace, address, moved))
        .collect()
}

/// Where an address is: static functions share names, so that its number is better if it is of
/// the image.
fn code(trace: &Trace, address: u64, moved: Option<u64>) -> Option<Code> {
    let symbol = trace.symbol(address)?;
    match (moved, &symbol.module) {
        (Some(moved), None) => Some(Code::Linked(address.wrapping_sub(moved))),
        (_, module) => Some(Code::Symbol {
            module: module.clone(),
            symbol: symbol.name.clone(),
            offset: symbol.offset,
            size: None,
        }),
    }
}

fn place(site: Site) -> Place {
    let object = match site.lock {
        Lock::Member {
            structure,
            field,
            within,
            element: true,
            ..
        } => Object::Element {
            container: within.unwrap_or(structure),
            field,
        },
        Lock::Member {
            structure,
            field,
            offset,
            ..
        } => Object::Member {
            structure,
            field,
            offset,
        },
        Lock::Variable {
            name,
            element: true,
            ..
        } => Object::Element {
            container: name,
            field: String::new(),
        },
        Lock::Variable { name, .. } | Lock::OnStack { name } => Object::Variable { name },
        Lock::Unknown { reason } => Object::Unknown {
            reason: reason.to_string(),
        },
    };
    Place {
        function: site.function,
        file: site.file,
        line: site.line,
        object,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_locksite::{Code, Lock, Site};

    use super::{chain, place, refined};
    use crate::place::{Object, Place};
    use crate::trace::{Stack, StackId, Symbol, Trace, Use};

    fn trace() -> Trace {
        let symbol = |address, name: &str, module: Option<&str>| Symbol {
            address,
            name: name.into(),
            offset: 9,
            module: module.map(Into::into),
        };
        Trace {
            stacks: vec![Stack(vec![0x50, 0x100, 0x200, 0x300])],
            symbols: vec![
                symbol(0x50, "_raw_spin_lock", None),
                symbol(0x100, "taker", None),
                symbol(0x200, "caller", Some("overlay")),
            ],
            ..Trace::default()
        }
    }

    #[test]
    fn a_chain_begins_at_the_site_and_leaves_out_what_has_no_name() {
        let used = Use {
            site: 0x100,
            stack: Some(StackId(0)),
            ..Use::default()
        };
        let caller = Code::Symbol {
            module: Some("overlay".into()),
            symbol: "caller".into(),
            offset: 9,
            size: None,
        };
        let linked = Code::Linked(0xf0);
        assert_eq!(chain(&trace(), &used, Some(0x10)), [linked, caller.clone()]);
        let named = Code::Symbol {
            module: None,
            symbol: "taker".into(),
            offset: 9,
            size: None,
        };
        assert_eq!(chain(&trace(), &used, None), [named.clone(), caller]);
        let alone = Use {
            stack: None,
            ..used
        };
        assert_eq!(chain(&trace(), &alone, None), [named]);
    }

    #[test]
    fn what_the_tracer_found_stays_where_the_source_does_not_tell() {
        let place = |object, file: &str| Place {
            function: String::new(),
            file: file.into(),
            line: 1,
            object,
        };
        let unknown = || Object::Unknown {
            reason: "no source".into(),
        };
        let variable = |name: &str| Object::Variable { name: name.into() };
        let before = place(variable("a"), "");
        let found = refined(place(unknown(), "fs/a.c"), Some(&before));
        assert_eq!(found, place(variable("a"), "fs/a.c"));
        let found = refined(place(variable("b"), "fs/a.c"), Some(&before));
        assert_eq!(found.object, variable("b"));
        assert_eq!(refined(place(unknown(), ""), None).object, unknown());
    }

    #[test]
    fn one_of_many_locks_is_an_element_of_what_it_is_in() {
        let object = |element, within: Option<&str>| {
            let lock = Lock::Member {
                structure: "bucket".into(),
                field: "lock".into(),
                offset: Some(8),
                within: within.map(Into::into),
                element,
                per_cpu: false,
            };
            place(Site {
                function: "f".into(),
                file: "fs/a.c".into(),
                line: 1,
                lock,
            })
            .object
        };
        assert_eq!(
            object(true, Some("table.buckets")).to_string(),
            "table.buckets[].lock"
        );
        assert_eq!(object(true, None).to_string(), "bucket[].lock");
        let member = Object::Member {
            structure: "bucket".into(),
            field: "lock".into(),
            offset: Some(8),
        };
        assert_eq!(object(false, Some("table")), member);
    }
}
