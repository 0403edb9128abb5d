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

/// The function bodies of all programs that may run on a thread.
#[derive(Debug)]
pub(super) struct GuestCode {
    /// From [`Box::into_raw`].
    published: AtomicPtr<Table>,
    /// The programs; holding one keeps its code where it is.
    programs: RefCell<Vec<Arc<dyn GuestProgram>>>,
}

impl GuestCode {
    pub(super) fn new() -> Self {
        Self {
            published: AtomicPtr::new(Box::into_raw(Box::default())),
            programs: RefCell::default(),
        }
    }

    /// Puts a program in, if it is not in yet. Some nanoseconds if it is.
    pub(super) fn add(&self, program: &Arc<dyn GuestProgram>) {
        let mut programs = self.programs.borrow_mut();
        if programs.iter().any(|known| Arc::ptr_eq(known, program)) {
            return;
        }
        // Programs that only the table holds cannot be started.
        programs.retain(|known| Arc::strong_count(known) > 1);
        programs.push(program.clone());
        let code = || programs.iter().map(|program| program.bodies());
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

impl Drop for GuestCode {
    fn drop(&mut self) {
        self.publish(ptr::null_mut());
    }
}
