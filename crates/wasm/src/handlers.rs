//! The handlers that an exception of an instruction can reach.
//!
//! The compiler notes all handlers around an instruction that throws, and its time for a function
//! is quadratic in their number. Most of them are unreachable: an exception goes to the innermost
//! handler of its tag, or to the innermost handler of everything. C++ has one tag, so that two
//! handlers at the most are reached, however many are around.

use std::rc::Rc;

use wasmparser::{Catch, Operator};

use crate::exceptions::may_throw;

/// Most tags that a program may have.
pub(crate) const MOST_TAGS: usize = 4_096;

/// Handlers around the instructions of a function that are few enough to be left to the compiler.
const FEW: u64 = 1_024;

/// A clause of a `try_table`, or what [`catch_in_every_frame`](crate::exceptions::catch_in_every_frame) puts around a
/// function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handler {
    /// The exceptions that it catches; all if it is `None`.
    tag: Option<u32>,
    /// Whether it is given the exception itself.
    is_ref: bool,
    /// The blocks that are open inside of the one that it goes to, and that one: 1 is the function's, 0 stands
    /// outside of it.
    height: u32,
}

impl Handler {
    const OF_FRAME: Self = Self {
        tag: None,
        is_ref: true,
        height: 0,
    };

    fn of(clause: &Catch, height: u32) -> Self {
        let (tag, is_ref, label) = match *clause {
            Catch::One { tag, label } => (Some(tag), false, label),
            Catch::OneRef { tag, label } => (Some(tag), true, label),
            Catch::All { label } => (None, false, label),
            Catch::AllRef { label } => (None, true, label),
        };
        Self {
            tag,
            is_ref,
            height: height.saturating_sub(label),
        }
    }

    /// The clause that does the same in a `try_table` inside so many blocks.
    pub(crate) fn clause(self, height: u32) -> wasm_encoder::Catch {
        use wasm_encoder::Catch as C;
        let label = height - self.height;
        match (self.tag, self.is_ref) {
            (Some(tag), false) => C::One { tag, label },
            (Some(tag), true) => C::OneRef { tag, label },
            (None, false) => C::All { label },
            (None, true) => C::AllRef { label },
        }
    }
}

/// The blocks that are open at an instruction of a function, with their handlers.
#[derive(Debug)]
pub(crate) struct Scopes {
    open: Vec<Scope>,
    /// For each tag the last `try_table` that has looked for it.
    seen: Vec<u32>,
    tables: u32,
}

#[derive(Debug, Clone)]
struct Scope {
    /// The innermost first.
    reachable: Rc<[Handler]>,
    /// How many are around.
    all: u64,
}

impl Scopes {
    /// Those at the first instruction: the function's block, with a handler outside of it.
    pub(crate) fn of_function() -> Self {
        let frame = Scope {
            reachable: [Handler::OF_FRAME].into(),
            all: 1,
        };
        Self {
            open: vec![frame],
            seen: Vec::new(),
            tables: 0,
        }
    }

    /// How many blocks are open.
    pub(crate) fn height(&self) -> u32 {
        self.open.len() as u32
    }

    /// The handlers to which an exception of an instruction here may go, the innermost first.
    pub(crate) fn reachable(&self) -> &[Handler] {
        self.open.last().map_or(&[], |scope| &scope.reachable)
    }

    /// How many handlers are around an instruction here.
    fn all(&self) -> u64 {
        self.open.last().map_or(0, |scope| scope.all)
    }

    /// Goes on behind an instruction. O(1), or O(handlers around it) for a `try_table`.
    pub(crate) fn pass(&mut self, operator: &Operator<'_>) {
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                self.open.extend(self.open.last().cloned());
            }
            Operator::TryTable { try_table } => {
                let scope = self.inside(&try_table.catches);
                self.open.push(scope);
            }
            Operator::End => {
                self.open.pop();
            }
            _ => {}
        }
    }

    fn inside(&mut self, clauses: &[Catch]) -> Scope {
        let all = self.all() + clauses.len() as u64;
        if self.seen.is_empty() {
            self.seen.resize(MOST_TAGS, 0);
        }
        self.tables += 1;
        let (height, table, seen) = (self.height(), self.tables, &mut self.seen);
        let mut is_closed = false;
        let mut is_reachable = |handler: &Handler| {
            let is_first = match handler.tag {
                None => true,
                // A valid program has no unknown tag.
                Some(tag) => {
                    let last = &mut seen[(tag as usize).min(MOST_TAGS - 1)];
                    std::mem::replace(last, table) != table
                }
            };
            let is_reachable = is_first && !is_closed;
            is_closed |= handler.tag.is_none();
            is_reachable
        };
        let own = clauses.iter().map(|clause| Handler::of(clause, height));
        let mut reachable: Vec<_> = own.filter(&mut is_reachable).collect();
        let outer = self.open.last().map_or(&[][..], |scope| &scope.reachable);
        reachable.extend(outer.iter().copied().filter(is_reachable));
        Scope {
            reachable: reachable.into(),
            all,
        }
    }
}

/// The handlers around all instructions of a function that throw.
#[derive(Debug, Default)]
pub(crate) struct HandlerCount {
    locals: u64,
    all: u64,
    reachable: u64,
    /// The most that an instruction reaches.
    deepest: u64,
    /// The open blocks, with the values that went to each.
    blocks: Vec<Block>,
    /// Instructions that set a local.
    sets: u64,
    /// For each block the locals that it may set, times the instructions that throw to its end.
    merged: u64,
}

#[derive(Debug, Default)]
struct Block {
    /// Instructions before it that set a local.
    sets_before: u64,
    /// Instructions that throw to its end.
    throws: u64,
}

impl HandlerCount {
    /// That of a function with so many locals.
    pub(crate) fn new(locals: u64) -> Self {
        Self {
            locals,
            ..Self::default()
        }
    }

    /// Adds an instruction, at which the blocks are these. O(handlers that it reaches) if it throws.
    pub(crate) fn add(&mut self, operator: &Operator<'_>, scopes: &Scopes) {
        let sets_before = self.sets;
        self.blocks.resize_with(scopes.open.len(), || Block {
            sets_before,
            throws: 0,
        });
        match operator {
            Operator::LocalSet { .. } | Operator::LocalTee { .. } => self.sets += 1,
            Operator::End => {
                // After the end of a function no local is used.
                if let Some(block) = self.blocks.pop().filter(|_| !self.blocks.is_empty()) {
                    let sets = (self.sets - block.sets_before).min(self.locals);
                    self.merged = self
                        .merged
                        .saturating_add(sets.saturating_mul(block.throws));
                }
            }
            operator if may_throw(operator) => {
                self.all += scopes.all();
                let reachable = scopes.reachable();
                self.reachable += reachable.len() as u64;
                self.deepest = self.deepest.max(reachable.len() as u64);
                for handler in reachable {
                    let at = (handler.height as usize).checked_sub(1);
                    if let Some(block) = at.and_then(|at| self.blocks.get_mut(at)) {
                        block.throws += 1;
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether each instruction gets a `try_table` of its own, with the handlers that its exceptions reach.
    pub(crate) fn are_parted(&self) -> bool {
        self.all > FEW && self.all > 2 * self.reachable
    }

    /// How many of them the compiler is given.
    pub(crate) fn compiled(&self) -> u64 {
        match self.are_parted() {
            true => self.reachable,
            false => self.all,
        }
    }

    /// Returns the compiler's approximate work for merging the values of locals at the instructions
    /// that throw: it compares each with all others.
    pub(crate) fn merging(&self) -> u64 {
        let deepest = self.locals.saturating_mul(self.deepest);
        // Where each instruction has its own, a handler takes a fourth of what it does otherwise.
        let handlers = match self.are_parted() {
            true => self.reachable / 4,
            false => self.all,
        };
        let each = handlers.saturating_add(deepest);
        self.merged.saturating_mul(each)
    }
}
