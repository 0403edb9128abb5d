//! What the instructions of a function come to.
//!
//! All of a program's code is read for this before anything of it is refused, so it is done by a visitor with a method for each
//! instruction: the method of one that counts for nothing is empty.

use wasmparser::{
    Catch, Operator, VisitOperator, VisitSimdOperator, for_each_visit_operator,
    for_each_visit_simd_operator,
};

use super::{Body, ModuleTypes};
use crate::atomics;
use crate::error::ProgramError;
use crate::exceptions;
use crate::refused::{self, SourcePosition};

/// What the instructions of a function come to.
#[derive(Default)]
pub(super) struct Instructions {
    /// Loops inside each other.
    pub(super) loop_depth: u64,
    /// Handlers of exceptions around an instruction.
    pub(super) handlers: u64,
    /// Targets of branch tables.
    pub(super) targets: u64,
    /// Values that calls and branches carry.
    pub(super) carried: u64,
    /// Basic blocks.
    pub(super) blocks: u64,
    /// Instructions that read a table.
    pub(super) table_uses: u64,
    /// It throws or catches exceptions.
    pub(super) exceptions: bool,
    /// It waits for other threads or notifies them.
    pub(super) waits: bool,
}

impl Instructions {
    /// Counts those of a function. O(n) in its bytes.
    ///
    /// # Errors
    /// [`ProgramError::Features`] at an instruction that is not on offer, [`ProgramError::Corrupt`] at what is none.
    pub(super) fn of(module: &ModuleTypes, body: &Body<'_>) -> Result<Self, ProgramError> {
        let mut count = Count::new(module, body.signature.1);
        let mut operators = body.code.get_operators_reader()?;
        while !operators.eof() {
            let offset = operators.original_position() as u64;
            if let Some(feature) = operators.visit_operator(&mut count)? {
                let function = None;
                return Err(refused::refusal(
                    feature,
                    SourcePosition { offset, function },
                ));
            }
        }
        let (mut has, labels) = (count.has, count.labels);
        has.loop_depth = labels.deepest;
        Ok(has)
    }
}

/// The count so far, at a point of a function.
struct Count<'m> {
    module: &'m ModuleTypes,
    /// Results of the function.
    results: u32,
    has: Instructions,
    labels: Labels,
}

impl<'m> Count<'m> {
    fn new(module: &'m ModuleTypes, results: u32) -> Self {
        let mut labels = Labels::default();
        labels.open(results, false, 0);
        let has = Instructions {
            blocks: 1,
            ..Instructions::default()
        };
        Count {
            module,
            results,
            has,
            labels,
        }
    }

    /// Counts an instruction. Inlined where that is known, it is reduced to what concerns it.
    #[inline(always)]
    fn add(&mut self, operator: &Operator<'_>) {
        let (has, labels, module) = (&mut self.has, &mut self.labels, self.module);
        let both = |(takes, leaves): (u32, u32)| u64::from(takes) + u64::from(leaves);
        has.table_uses += u64::from(uses_table(operator));
        has.exceptions |= exceptions::throws(operator);
        has.waits |= atomics::awaits(operator);
        match operator {
            Operator::Block { blockty } | Operator::If { blockty } => {
                let signature = module.block(*blockty);
                labels.open(signature.1, false, 0);
                has.blocks += 1;
                has.carried += both(signature);
            }
            Operator::TryTable { try_table } => {
                let signature = module.block(try_table.ty);
                for clause in &try_table.catches {
                    let (tag, label) = match *clause {
                        Catch::One { tag, label } | Catch::OneRef { tag, label } => {
                            (Some(tag), label)
                        }
                        Catch::All { label } | Catch::AllRef { label } => (None, label),
                    };
                    has.carried += tag.map_or(0, |tag| module.tag(tag)) + labels.carried(label);
                }
                let clauses = try_table.catches.len() as u64;
                labels.open(signature.1, false, clauses);
                has.exceptions = true;
                has.handlers = has.handlers.max(labels.handlers);
                has.blocks += 1 + clauses;
                has.carried += both(signature);
            }
            Operator::Throw { tag_index } => has.carried += module.tag(*tag_index),
            Operator::Loop { blockty } => {
                let signature = module.block(*blockty);
                labels.open(signature.0, true, 0);
                has.blocks += 1;
                has.carried += both(signature);
            }
            Operator::End => labels.close(),
            Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                has.blocks += 1;
                has.carried += labels.carried(*relative_depth);
            }
            Operator::BrTable { targets } => {
                has.targets += u64::from(targets.len());
                has.blocks += u64::from(targets.len());
                // The reader has seen that they are numbers.
                let outwards = targets.targets().map_while(Result::ok);
                for outwards in outwards.chain([targets.default()]) {
                    has.carried += labels.carried(outwards);
                }
            }
            Operator::Return => has.carried += u64::from(self.results),
            Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                has.carried += both(module.function(*function_index));
            }
            Operator::CallIndirect { type_index, .. }
            | Operator::ReturnCallIndirect { type_index, .. } => {
                has.carried += both(module.signature(*type_index));
            }
            _ => {}
        }
    }
}

macro_rules! counted {
    ($( @$proposal:ident $op:ident $({ $($arg:ident: $argty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {$(
        fn $visit(&mut self $($(, $arg: $argty)*)?) -> Self::Output {
            let refused = const { refused::proposal(stringify!($proposal)) };
            if refused.is_some() {
                return refused;
            }
            let operator = Operator::$op $({ $($arg),* })?;
            self.add(&operator);
            refused::immediate(&operator)
        }
    )*};
}

impl<'a> VisitOperator<'a> for Count<'_> {
    /// The feature that is needed for the instruction and is not on offer, if there is one.
    type Output = Option<&'static str>;

    fn simd_visitor(&mut self) -> Option<&mut dyn VisitSimdOperator<'a, Output = Self::Output>> {
        Some(self)
    }

    for_each_visit_operator!(counted);
}

impl VisitSimdOperator<'_> for Count<'_> {
    for_each_visit_simd_operator!(counted);
}

/// The blocks that are open at a point of a function.
#[derive(Default)]
struct Labels {
    open: Vec<Label>,
    loops: u64,
    deepest: u64,
    /// The clauses of all blocks that are open.
    handlers: u64,
}

/// A block that is open.
struct Label {
    /// How many values a branch to it carries.
    carried: u32,
    is_loop: bool,
    /// Its clauses that catch exceptions.
    handlers: u64,
}

impl Labels {
    fn open(&mut self, carried: u32, is_loop: bool, handlers: u64) {
        self.open.push(Label {
            carried,
            is_loop,
            handlers,
        });
        self.loops += u64::from(is_loop);
        self.deepest = self.deepest.max(self.loops);
        self.handlers += handlers;
    }

    fn close(&mut self) {
        if let Some(label) = self.open.pop() {
            self.loops -= u64::from(label.is_loop);
            self.handlers -= label.handlers;
        }
    }

    /// The values that a branch so many blocks outwards carries.
    fn carried(&self, outwards: u32) -> u64 {
        let at = self.open.len().checked_sub(1 + outwards as usize);
        at.map_or(0, |at| self.open[at].carried.into())
    }
}

/// Whether an instruction reads a table: the compiler's time for a function is quadratic in the
/// number of such instructions.
fn uses_table(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::CallIndirect { .. }
            | Operator::ReturnCallIndirect { .. }
            | Operator::TableGet { .. }
            | Operator::TableSet { .. }
            | Operator::TableGrow { .. }
            | Operator::TableSize { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
    )
}
