//! The addresses of guests' function bodies, for a signal handler.
//!
//! A program's code also has trampolines between guest and host, in which a guest must not be
//! interrupted: only the bodies of its functions count. They lie side by side, so that a program
//! has about one range of them.
//!
//! The table is published by a pointer. Only the thread that owns it changes it, and the handler
//! interrupts that thread: when the pointer has been exchanged, no handler looks at the old table.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use wasmtime::ModuleFunction;

/// Functions are aligned with fewer bytes than this between them: too few for a trampoline.
const PADDING: usize = 32;

/// Where a program's compiled code is.
#[derive(Debug, Clone)]
pub struct Bodies {
    /// Address ranges of the function bodies, in order.
    bodies: Arc<[Range<usize>]>,
    /// All of it: trampolines, too.
    text: Range<usize>,
}

impl Bodies {
    /// Those of a compiled program: its code, and where in it its functions are. O(n log n) in its functions.
    pub fn of(text: &[u8], functions: impl Iterator<Item = ModuleFunction>) -> Self {
        let mut bodies = ranges(functions);
        bodies.sort_unstable_by_key(|body| body.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for body in bodies {
            match merged.last_mut() {
                Some(last) if body.start < last.end + PADDING => last.end = body.end,
                _ => merged.push(body),
            }
        }
        let start = text.as_ptr() as usize;
        Self {
            bodies: merged
                .into_iter()
                .map(|body| start + body.start..start + body.end)
                .collect(),
            text: start..start + text.len(),
        }
    }
}

fn ranges(functions: impl Iterator<Item = ModuleFunction>) -> Vec<Range<usize>> {
    functions
        .map(|function| function.offset..function.offset + function.len)
        .collect()
}

/// Sorted address ranges.
#[derive(Debug, Default)]
struct Ranges(Vec<Range<usize>>);

impl Ranges {
    fn of(ranges: impl Iterator<Item = Range<usize>>) -> Self {
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable_by_key(|range| range.start);
        Self(ranges)
    }

    fn contain(&self, address: usize) -> bool {
        let after = self.0.partition_point(|range| range.start <= address);
        after > 0 && address < self.0[after - 1].end
    }
}

/// A program whose guests are preempted.
pub trait GuestProgram: fmt::Debug {
    /// Where its compiled code is, for as long as the program exists.
    fn bodies(&self) -> &Bodies;
}

/// What the handler looks at.
#[derive(Debug, Default)]
struct Table {
    bodies: Ranges,
    texts: Ranges,
}

/// A program of the table. A guest that runs it holds the same; its code stays where it is meanwhile.
#[derive(Debug)]
pub(super) struct Known(Arc<dyn GuestProgram>);

/// The function bodies of all programs that may run on a thread.
#[derive(Debug)]
pub(super) struct GuestCode {
    /// From [`Box::into_raw`].
    published: AtomicPtr<Table>,
    programs: RefCell<Vec<Rc<Known>>>,
}

impl GuestCode {
    pub(super) fn new() -> Self {
        Self {
            published: AtomicPtr::new(Box::into_raw(Box::default())),
            programs: RefCell::default(),
        }
    }

    /// Puts a program in, if it is not in yet. Some nanoseconds if it is.
    pub(super) fn add(&self, program: Arc<dyn GuestProgram>) -> Rc<Known> {
        let mut programs = self.programs.borrow_mut();
        if let Some(at) = position(&programs, &program) {
            return programs[at].clone();
        }
        let known = Rc::new(Known(program));
        programs.push(known.clone());
        self.list(&programs);
        known
    }

    /// Takes a program out, unless a guest runs it.
    pub(super) fn remove(&self, program: &Arc<dyn GuestProgram>) {
        let mut programs = self.programs.borrow_mut();
        if let Some(at) = position(&programs, program)
            && Rc::strong_count(&programs[at]) == 1
        {
            let removed = programs.swap_remove(at);
            // Its code may be unmapped only when it is in the table no more.
            self.list(&programs);
            drop(removed);
        }
    }

    /// Publishes a table of these programs. O(n log n) in them.
    fn list(&self, programs: &[Rc<Known>]) {
        let code = || programs.iter().map(|known| known.0.bodies());
        let table = Table {
            bodies: Ranges::of(code().flat_map(|code| code.bodies.iter().cloned())),
            texts: Ranges::of(code().map(|code| code.text.clone())),
        };
        self.publish(Box::into_raw(Box::new(table)));
    }

    /// Whether this is the address of an instruction in a function body. O(log n) in the programs;
    /// may be called from a signal handler.
    pub(super) fn contains(&self, pc: usize) -> bool {
        self.table().bodies.contain(pc)
    }

    /// Whether this is the address of compiled code of any kind. As [`GuestCode::contains`].
    pub(super) fn is_compiled(&self, pc: usize) -> bool {
        self.table().texts.contain(pc)
    }

    fn table(&self) -> &Table {
        // SAFETY: never null, and not freed while code of this thread reads it: `self` is changed
        // by this thread only, outside of signal handlers, and never while borrowed.
        unsafe { &*self.published.load(Ordering::Acquire) }
    }

    fn publish(&self, table: *mut Table) {
        let before = self.published.swap(table, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: from `Box::into_raw`, and no reference to it is left.
            drop(unsafe { Box::from_raw(before) });
        }
    }
}

fn position(programs: &[Rc<Known>], program: &Arc<dyn GuestProgram>) -> Option<usize> {
    let is_same = |known: &Rc<Known>| Arc::ptr_eq(&known.0, program);
    programs.iter().position(is_same)
}

impl Drop for GuestCode {
    fn drop(&mut self) {
        self.publish(ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::{Bodies, GuestCode, GuestProgram};
    use std::sync::Arc;

    #[derive(Debug)]
    struct Placed(Bodies);

    impl GuestProgram for Placed {
        fn bodies(&self) -> &Bodies {
            &self.0
        }
    }

    /// A program with one function of 16 bytes, 8 bytes into its code.
    fn at(start: usize) -> Arc<dyn GuestProgram> {
        Arc::new(Placed(Bodies {
            bodies: std::iter::once(start + 8..start + 24).collect(),
            text: start..start + 32,
        }))
    }

    #[test]
    fn only_the_bodies_of_functions_are_guests_code() {
        let code = GuestCode::new();
        let _guests = [at(4096), at(1024)].map(|program| code.add(program));
        let found = [1024, 1032, 1047, 1048, 4103, 4104, 8192].map(|pc| code.contains(pc));
        assert_eq!(found, [false, true, true, false, false, true, false]);
        assert!(code.is_compiled(1024) && !code.is_compiled(1056));
    }

    #[test]
    fn a_program_is_in_the_table_while_a_guest_runs_it_and_held_no_longer() {
        let code = GuestCode::new();
        let program = at(1024);
        let guests = [code.add(program.clone()), code.add(program.clone())];
        for guest in guests {
            code.remove(&program);
            assert!(code.contains(1032), "a guest runs it");
            drop(guest);
        }
        code.remove(&program);
        assert!(!code.contains(1032));
        assert_eq!(Arc::strong_count(&program), 1);
        let _again = code.add(program);
        assert!(code.contains(1032));
    }
}
