//! Checks of the epoch in code that has none: straight lines, and what follows a call.
//!
//! Where guests are preempted by epochs, the engine checks the epoch where a function begins and at the header of each loop.
//! Between two checks a guest is neither preempted nor ended. A function of 1 MiB may have 340,000 loads in a
//! row, which take 40 ms and more; a return runs no check, so that calls of the host in a row have none at all. So before a module is
//! compiled for such an engine, an empty loop is inserted where a check is due:
//!
//! ```text
//! loop end          or, in a function with many,          call $check
//! ```
//!
//! 1. *At most [`LIMIT`] instructions run without a check.* Loops have one at their header, and all other branches go forwards:
//!    the longest path since the last check is known in one pass. Where paths meet, the longest one counts.
//! 2. *The host, and what may be long, is followed by one.* A call of the host or through a table, and an instruction that goes into the
//!    engine, counts as `LIMIT` instructions, so that a check comes before the next one, and before a return. So does an
//!    exception where it is caught, which may come from anywhere.
//! 3. *Frames are left in so many instructions, or one by one.* A call of the module's own function counts as the longest path from
//!    a check in it to its return. Functions are gone through callees first; a call in a circle counts as `LIMIT`.
//! 4. *The meaning stays.* Operands are below the loop, which takes and leaves none. The function `$check` is empty, and checks
//!    where it begins.
//! 5. *The compiler's time stays linear.* A loop is three basic blocks, for which its time grows faster than their number in a
//!    function: 0.2 ms each where there are 200,000. So a function with many checks, and a module with very many, calls.
//! 6. *Nothing else changes.* A type and a function are appended, so that no index shifts, and all bytes are copied as they
//!    are. Only `metadata.code.*` sections are dropped, whose offsets into functions would be wrong.

use std::ops::Range;

use wasm_encoder::{BlockType, Encode, Function, Instruction};
use wasmparser::{BinaryReaderError, Catch, FunctionBody, Operator, Parser, Payload, TypeRef};

use crate::core_modules::{Rewritten, rewrite_core_modules};
use crate::in_place::{Site, encode_code};
use crate::sections::{grown, with_sections};

/// Instructions that run between two checks, at most. A load that misses caches and page tables takes some 0.4 µs, and so
/// many of them 0.1 ms.
const LIMIT: u32 = 256;

/// Checks of a function that are loops, at most: with more all of them are calls.
const LOOPS_OF_FUNCTION: usize = 256;

/// Checks of a module that are loops, at most: each takes the compiler some 20 µs.
const LOOPS_OF_MODULE: usize = 1 << 18;

/// Inserts the checks into a module, or every core module in a component. Bytes that need no change are returned as they are.
///
/// # Errors
///
/// The parser's, if `wasm` is not well-formed.
pub(crate) fn check_straight_lines(wasm: &[u8]) -> Rewritten<'_> {
    rewrite_core_modules(wasm, &mut rewrite_module)
}

/// The facts about a module that its rewriting needs.
#[derive(Default)]
struct Outline<'a> {
    types: u32,
    imported: u32,
    bodies: Vec<FunctionBody<'a>>,
    /// For each of these the functions of the module's own that it calls directly, by their place among them.
    callees: Vec<Vec<usize>>,
}

impl<'a> Outline<'a> {
    fn of(wasm: &'a [u8]) -> Result<Self, BinaryReaderError> {
        let mut outline = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        outline.types += group?.types().len() as u32;
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let ty = import?.ty;
                        let is_function = matches!(ty, TypeRef::Func(_) | TypeRef::FuncExact(_));
                        outline.imported += u32::from(is_function);
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    let callees = callees(&body, outline.imported)?;
                    outline.callees.push(callees);
                    outline.bodies.push(body);
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    /// All functions, each behind those that it calls, but for calls in a circle. O(functions and calls).
    fn callees_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.bodies.len());
        let mut is_seen = vec![false; self.bodies.len()];
        let mut on_path: Vec<(usize, std::slice::Iter<'_, usize>)> = Vec::new();
        for first in 0..self.bodies.len() {
            let mut next = Some(first);
            loop {
                if let Some(function) = next
                    && let Some(is_seen) = is_seen.get_mut(function)
                    && !std::mem::replace(is_seen, true)
                {
                    on_path.push((function, self.callees[function].iter()));
                }
                let Some((function, callees)) = on_path.last_mut() else {
                    break;
                };
                next = callees.next().copied();
                if next.is_none() {
                    order.push(*function);
                    on_path.pop();
                }
            }
        }
        order
    }
}

fn callees(body: &FunctionBody<'_>, imported: u32) -> Result<Vec<usize>, BinaryReaderError> {
    let mut callees = Vec::new();
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        if let Operator::Call { function_index } | Operator::ReturnCall { function_index } =
            operators.read()?
            && let Some(own) = function_index.checked_sub(imported)
        {
            callees.push(own as usize);
        }
    }
    callees.sort_unstable();
    callees.dedup();
    Ok(callees)
}

fn rewrite_module(wasm: &[u8]) -> Rewritten<'_> {
    let outline = Outline::of(wasm)?;
    let mut returns = Returns {
        imported: outline.imported,
        known: vec![LIMIT; outline.bodies.len()],
    };
    let check = outline.imported + outline.bodies.len() as u32;
    let mut bodies: Vec<(Range<usize>, Vec<Site>)> = Vec::new();
    bodies.extend(outline.bodies.iter().map(|body| (body.range(), Vec::new())));
    let (mut loops, mut calls) = (0, 0);
    for function in outline.callees_first() {
        let (due, returned) = due(&outline.bodies[function], &returns)?;
        returns.known[function] = returned;
        let are_loops = due.len() <= LOOPS_OF_FUNCTION && loops + due.len() <= LOOPS_OF_MODULE;
        let inserted = match are_loops {
            true => vec![Instruction::Loop(BlockType::Empty), Instruction::End],
            false => vec![Instruction::Call(check)],
        };
        *(if are_loops { &mut loops } else { &mut calls }) += due.len();
        bodies[function].1 = due
            .into_iter()
            .map(|at| (at..at, inserted.clone()))
            .collect();
    }
    if loops + calls == 0 {
        return Ok(wasm.into());
    }
    let appended = (calls > 0).then(|| {
        let mut empty = Function::new([]);
        empty.instruction(&Instruction::End);
        empty
    });
    with_sections(wasm, |section, content| match section {
        Payload::TypeSection(section) if appended.is_some() => {
            let mut data = grown(content, section.count(), 1);
            data.extend_from_slice(&EMPTY_TYPE);
            Some(data)
        }
        Payload::FunctionSection(section) if appended.is_some() => {
            let mut data = grown(content, section.count(), 1);
            outline.types.encode(&mut data);
            Some(data)
        }
        Payload::CodeSectionStart { .. } => Some(encode_code(wasm, &bodies, appended.as_ref())),
        _ => None,
    })
}

/// A function's type without parameters and results.
const EMPTY_TYPE: [u8; 3] = [0x60, 0, 0];

/// How many instructions a function has run since its last check when it returns, at most.
struct Returns {
    imported: u32,
    /// Those of the module's own; `LIMIT` where that is not known.
    known: Vec<u32>,
}

impl Returns {
    fn of(&self, function: u32) -> u32 {
        let own = function.checked_sub(self.imported);
        let known = own.and_then(|own| self.known.get(own as usize));
        known.copied().unwrap_or(LIMIT)
    }
}

/// The places in a function body before which a check is due, and how many instructions after a check it returns. O(n) in
/// its instructions.
fn due(body: &FunctionBody<'_>, returns: &Returns) -> Result<(Vec<usize>, u32), BinaryReaderError> {
    let mut paths = Paths::of_function(returns);
    let mut due = Vec::new();
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        let at = operators.original_position();
        if paths.is_due_before(&operators.read()?) {
            due.push(at);
        }
    }
    Ok((due, paths.returned))
}

/// How far the last check is at a point of a function, on the longest path to it.
struct Paths<'r> {
    returns: &'r Returns,
    /// Instructions since then. Zero where no path arrives.
    since: u32,
    /// The same of a return.
    returned: u32,
    /// The blocks that are open, the function's first.
    open: Vec<Open>,
}

/// A block that is open.
struct Open {
    /// A branch to it goes to a check.
    is_loop: bool,
    /// Instructions since the last check with which a branch to its end arrives.
    arriving: u32,
    /// The same of an `if` for what does not take its first half.
    otherwise: Option<u32>,
}

impl<'r> Paths<'r> {
    /// Those at the first instruction, before which the engine has a check.
    fn of_function(returns: &'r Returns) -> Self {
        let mut paths = Self {
            returns,
            since: 0,
            returned: 0,
            open: Vec::new(),
        };
        paths.open(false, None);
        paths
    }

    /// Goes on behind an instruction, with a check before it if it is due: whether it is.
    fn is_due_before(&mut self, operator: &Operator<'_>) -> bool {
        let more = self.instructions(operator);
        let is_due = self.since + more > LIMIT;
        if is_due {
            self.since = 0;
        }
        self.since += more;
        self.pass(operator);
        is_due
    }

    /// How many instructions one counts as before it has run.
    fn instructions(&self, operator: &Operator<'_>) -> u32 {
        match operator {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::TryTable { .. }
            | Operator::Else => 0,
            // The function's is its return.
            Operator::End => u32::from(self.open.len() == 1),
            _ => 1,
        }
    }

    fn pass(&mut self, operator: &Operator<'_>) {
        match operator {
            Operator::Block { .. } => self.open(false, None),
            Operator::Loop { .. } => {
                self.since = 0;
                self.open(true, None);
            }
            Operator::If { .. } => self.open(false, Some(self.since)),
            Operator::TryTable { try_table } => {
                for clause in &try_table.catches {
                    let (Catch::One { label, .. }
                    | Catch::OneRef { label, .. }
                    | Catch::All { label }
                    | Catch::AllRef { label }) = *clause;
                    self.arrive(label, LIMIT);
                }
                self.open(false, None);
            }
            Operator::Else => {
                self.arrive(0, self.since);
                let otherwise = self.open.last_mut().and_then(|open| open.otherwise.take());
                self.since = otherwise.unwrap_or(LIMIT);
            }
            Operator::End => {
                if let Some(closed) = self.open.pop() {
                    let others = closed.arriving.max(closed.otherwise.unwrap_or(0));
                    self.since = self.since.max(others);
                }
                if self.open.is_empty() {
                    self.returned = self.returned.max(self.since);
                }
            }
            Operator::Br { relative_depth } => {
                self.arrive(*relative_depth, self.since);
                self.since = 0;
            }
            Operator::BrIf { relative_depth }
            | Operator::BrOnNull { relative_depth }
            | Operator::BrOnNonNull { relative_depth } => self.arrive(*relative_depth, self.since),
            Operator::BrTable { targets } => {
                // The reader has seen that they are numbers.
                let labels = targets.targets().map_while(Result::ok);
                for label in labels.chain([targets.default()]) {
                    self.arrive(label, self.since);
                }
                self.since = 0;
            }
            Operator::Return => {
                self.returned = self.returned.max(self.since);
                self.since = 0;
            }
            Operator::ReturnCall { function_index } => {
                self.returned = self.returned.max(self.returns.of(*function_index));
                self.since = 0;
            }
            Operator::ReturnCallIndirect { .. } | Operator::ReturnCallRef { .. } => {
                self.returned = LIMIT;
                self.since = 0;
            }
            Operator::Call { function_index } => self.since = self.returns.of(*function_index),
            _ if is_last(operator) => self.since = 0,
            _ if may_be_long(operator) => self.since = LIMIT,
            _ => {}
        }
    }

    fn open(&mut self, is_loop: bool, otherwise: Option<u32>) {
        self.open.push(Open {
            is_loop,
            arriving: 0,
            otherwise,
        });
    }

    /// A path goes to a label, so many instructions after the last check.
    fn arrive(&mut self, label: u32, since: u32) {
        let at = self.open.len().checked_sub(1 + label as usize);
        if let Some(open) = at.and_then(|at| self.open.get_mut(at))
            && !open.is_loop
        {
            open.arriving = open.arriving.max(since);
        }
    }
}

/// Whether an instruction ends the function, and its caller does not go on behind the call.
fn is_last(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::Unreachable | Operator::Throw { .. } | Operator::ThrowRef
    )
}

/// Whether an instruction calls what is not known, which may be the host, goes into the engine, or visits more than a few words.
fn may_be_long(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::CallIndirect { .. }
            | Operator::CallRef { .. }
            | Operator::MemoryGrow { .. }
            | Operator::MemoryFill { .. }
            | Operator::MemoryCopy { .. }
            | Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
            | Operator::TableGrow { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
            | Operator::MemoryAtomicNotify { .. }
            | Operator::MemoryAtomicWait32 { .. }
            | Operator::MemoryAtomicWait64 { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, LOOPS_OF_FUNCTION, check_straight_lines, may_be_long};
    use crate::features::FEATURES;
    use proptest::prelude::{
        Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest,
    };
    use std::borrow::Cow;
    use wasmparser::{Catch, FunctionBody, Operator, Parser, Payload, Validator};
    use wasmtime::{Caller, Config, Engine, Linker, Module, Store, Trap};

    fn rewritten(wasm: &[u8]) -> Cow<'_, [u8]> {
        let rewritten = check_straight_lines(wasm).expect("well-formed");
        Validator::new_with_features(FEATURES)
            .validate_all(&rewritten)
            .expect("valid");
        rewritten
    }

    fn bodies(wasm: &[u8]) -> Vec<FunctionBody<'_>> {
        let payloads = Parser::new(0).parse_all(wasm);
        let body = |payload| match payload {
            Ok(Payload::CodeSectionEntry(body)) => Some(body),
            _ => None,
        };
        payloads.filter_map(body).collect()
    }

    /// The instructions of a function that may come after each one, as a graph.
    struct Graph<'a> {
        operators: Vec<Operator<'a>>,
        next: Vec<Vec<usize>>,
        /// Where an exception goes that is thrown inside of a `try_table`.
        caught: Vec<usize>,
    }

    impl<'a> Graph<'a> {
        fn of(body: &FunctionBody<'a>) -> Self {
            let operators: Result<Vec<_>, _> = body
                .get_operators_reader()
                .expect("operators")
                .into_iter()
                .collect();
            let operators = operators.expect("well-formed");
            let last = operators.len() - 1;
            // For each instruction that opens a block its `else` and its `end`.
            let (mut ends, mut elses) = (vec![last; last + 1], vec![None; last + 1]);
            let mut open = Vec::new();
            for (at, operator) in operators.iter().enumerate() {
                match operator {
                    Operator::Block { .. }
                    | Operator::Loop { .. }
                    | Operator::If { .. }
                    | Operator::TryTable { .. } => open.push(at),
                    Operator::Else => elses[*open.last().expect("an if")] = Some(at),
                    Operator::End if at < last => ends[open.pop().expect("a block")] = at,
                    _ => {}
                }
            }
            let mut graph = Graph {
                next: vec![Vec::new(); last + 1],
                operators,
                caught: Vec::new(),
            };
            let mut open = Vec::new();
            for (at, operator) in graph.operators.iter().enumerate() {
                let target = |label: u32| {
                    let Some(outer) = open.len().checked_sub(1 + label as usize) else {
                        return last;
                    };
                    let opened: usize = open[outer];
                    match graph.operators[opened] {
                        Operator::Loop { .. } => opened,
                        _ => ends[opened],
                    }
                };
                graph.next[at] = match operator {
                    Operator::Unreachable | Operator::Return | Operator::Throw { .. } => Vec::new(),
                    Operator::Br { relative_depth } => vec![target(*relative_depth)],
                    Operator::BrIf { relative_depth } => vec![at + 1, target(*relative_depth)],
                    Operator::BrTable { targets } => targets
                        .targets()
                        .map(|label| target(label.expect("a label")))
                        .chain([target(targets.default())])
                        .collect(),
                    Operator::If { .. } => {
                        vec![at + 1, elses[at].map_or(ends[at], |other| other + 1)]
                    }
                    // Reached from the first half.
                    Operator::Else => vec![ends[*open.last().expect("an if")]],
                    _ if at == last => Vec::new(),
                    _ => vec![at + 1],
                };
                match operator {
                    Operator::TryTable { try_table } => {
                        for clause in &try_table.catches {
                            let (Catch::One { label, .. }
                            | Catch::OneRef { label, .. }
                            | Catch::All { label }
                            | Catch::AllRef { label }) = *clause;
                            graph.caught.push(target(label));
                        }
                        open.push(at);
                    }
                    Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                        open.push(at);
                    }
                    Operator::End => drop(open.pop()),
                    _ => {}
                }
            }
            graph
        }

        fn is_structure(&self, at: usize) -> bool {
            matches!(
                self.operators[at],
                Operator::Block { .. }
                    | Operator::Loop { .. }
                    | Operator::TryTable { .. }
                    | Operator::Else
            ) || matches!(self.operators[at], Operator::End) && at + 1 < self.operators.len()
        }

        /// The most instructions that run without a check, and the most since the last one at a return, if calls return as
        /// `returns` says. All edges but those to loops go forwards, and loops have checks: the order of the instructions is a
        /// topological one.
        fn longest(&self, imported: u32, returns: &[u32]) -> (u32, u32) {
            let mut since = vec![None::<u32>; self.operators.len()];
            since[0] = Some(0);
            let (mut longest, mut returned) = (0, 0);
            for &at in &self.caught {
                since[at] = Some(LIMIT);
            }
            let own = |function: u32| {
                let own = function.checked_sub(imported);
                own.map_or(LIMIT, |own| returns[own as usize])
            };
            for at in 0..self.operators.len() {
                let Some(before) = since[at] else {
                    continue;
                };
                let ran = before + u32::from(!self.is_structure(at));
                let after = match &self.operators[at] {
                    Operator::Loop { .. } => 0,
                    _ if self.is_structure(at) => before,
                    operator => {
                        longest = longest.max(ran);
                        match operator {
                            Operator::Call { function_index } => own(*function_index),
                            operator if may_be_long(operator) => LIMIT,
                            _ => ran,
                        }
                    }
                };
                match &self.operators[at] {
                    Operator::Return => returned = returned.max(after),
                    Operator::ReturnCall { function_index } => {
                        returned = returned.max(own(*function_index));
                        continue;
                    }
                    _ if at + 1 == self.operators.len() => returned = returned.max(after),
                    _ => {}
                }
                for &next in &self.next[at] {
                    if next > at {
                        since[next] = Some(since[next].unwrap_or(0).max(after));
                    }
                }
            }
            (longest, returned)
        }
    }

    /// Asserts that no path through the functions of a rewritten module is longer without a check, those through calls and
    /// returns of its own functions included: the smallest solution, from below.
    fn assert_checked(wasm: &[u8]) {
        let bodies = bodies(wasm);
        let graphs: Vec<_> = bodies.iter().map(Graph::of).collect();
        let imported = imported(wasm);
        let mut returns = vec![0; graphs.len()];
        loop {
            let each = graphs.iter().map(|graph| graph.longest(imported, &returns));
            let each: Vec<_> = each.collect();
            for (longest, _) in &each {
                assert!(
                    *longest <= LIMIT + FEW,
                    "{longest} instructions without a check"
                );
            }
            let after: Vec<_> = each.into_iter().map(|(_, returned)| returned).collect();
            if after == returns {
                return;
            }
            returns = after;
        }
    }

    /// The instructions of a check that is a call, and the return behind a branch.
    const FEW: u32 = 2;

    fn imported(wasm: &[u8]) -> u32 {
        let payloads = Parser::new(0).parse_all(wasm);
        let count = |payload| match payload {
            Ok(Payload::ImportSection(section)) => section.into_imports().count() as u32,
            _ => 0,
        };
        payloads.map(count).sum()
    }

    fn checked(text: &str) -> usize {
        let wasm = wat::parse_str(text).expect("a program");
        let rewritten = rewritten(&wasm);
        assert_checked(&rewritten);
        let loops = |wasm: &[u8]| {
            let operators = |body: FunctionBody<'_>| Graph::of(&body).operators.len();
            bodies(wasm).into_iter().map(operators).sum::<usize>()
        };
        (loops(&rewritten) - loops(&wasm)) / 2
    }

    fn loads(count: usize) -> String {
        "(local.set 0 (i32.load (local.get 0)))".repeat(count)
    }

    #[test]
    fn a_straight_line_has_a_check_every_so_many_instructions() {
        let line = |loads: usize| {
            let loads = "i32.load ".repeat(loads);
            format!("(module (memory 1) (func (param i32) local.get 0 {loads} drop))")
        };
        assert_eq!(checked(&line(10_000)), 10_003 / LIMIT as usize);
        assert_eq!(checked(&line(100)), 0);
    }

    #[test]
    fn a_program_that_needs_no_check_is_left_as_it_is() {
        let text = "(module (func (result i32) (loop (br_if 0 (i32.const 0))) (i32.const 1)))";
        let wasm = wat::parse_str(text).expect("a program");
        assert!(matches!(rewritten(&wasm), Cow::Borrowed(_)));
    }

    #[test]
    fn calls_of_the_host_and_in_circles_have_a_check_before_the_next_instruction_and_before_the_return()
     {
        let text = r#"(module
            (import "a" "b" (func $host)) (memory 1) (table 1 funcref) (type $t (func))
            (func (call $host) (call $host) (call_indirect (type $t) (i32.const 0)))
            (func $own (block (call $host)))
            (func (call $own) (call $own) (drop (i32.const 1)))
            (func $circle (call $circle))
            (func (result i32) (memory.grow (i32.const 0)))
            (func (memory.fill (i32.const 0) (i32.const 0) (i32.const 9)) (nop))
            (func (return_call $host)))"#;
        assert_eq!(checked(text), 3 + 1 + 1 + 1 + 1);
    }

    #[test]
    fn a_loop_is_the_check_behind_a_call_before_it() {
        let text = r#"(module (import "a" "b" (func $host))
            (func (call $host) (loop (br_if 0 (i32.const 0)))))"#;
        assert_eq!(checked(text), 0);
    }

    #[test]
    fn branches_jump_over_no_more_checks_than_they_may() {
        let chain = format!("(block (br_if 0 (local.get 0)) {})", loads(50)).repeat(30);
        let table = format!(
            "(block (block (block (br_table 0 1 2 (local.get 0))) {}) {}) {}",
            loads(60),
            loads(40),
            loads(80)
        );
        let halves = format!(
            "(if (local.get 0) (then {}) (else {})) (if (local.get 0) (then {}))",
            loads(40),
            loads(70),
            loads(90)
        );
        let out = format!(
            "(block (block {} (br_if 1 (local.get 0)) {} (br 1)) {}) {}",
            loads(60),
            loads(60),
            loads(10),
            loads(80)
        );
        for part in [chain, table, halves, out] {
            let body = part.repeat(3);
            checked(&format!(
                "(module (memory 1) (func (param i32) {body} {}))",
                loads(90)
            ));
        }
    }

    #[test]
    fn what_is_caught_has_a_check_behind_it() {
        let text = format!(
            r#"(module (memory 1) (tag $t)
            (func $throws (param i32) {loads} (throw $t))
            (func (param i32)
                (block $caught (try_table (catch $t $caught) {loads} (call $throws (i32.const 0)) {loads}))
                (nop))
            (func (param i32) (result exnref)
                (block $caught (result exnref)
                    (try_table (catch_all_ref $caught) {loads} (throw $t)) unreachable)))"#,
            loads = loads(20)
        );
        assert_eq!(checked(&text), 2);
    }

    #[test]
    fn a_chain_of_returns_has_a_check_every_so_many_instructions() {
        let functions: String = (1..2000)
            .map(|at| {
                format!(
                    "(func (param i32) (call {} (local.get 0)) {})",
                    at - 1,
                    loads(3)
                )
            })
            .collect();
        let text = format!("(module (memory 1) (func (param i32)) {functions})");
        let checks = checked(&text);
        let ran = 2000 * (3 * 3 + 1);
        assert!((ran / LIMIT as usize..2 * ran / LIMIT as usize).contains(&checks));
    }

    #[test]
    fn a_function_with_many_checks_calls_them() {
        let text = |calls: usize| {
            let calls = "(call $host)".repeat(calls);
            format!(r#"(module (import "a" "b" (func $host)) (func {calls}))"#)
        };
        for (calls, functions) in [(LOOPS_OF_FUNCTION, 1), (LOOPS_OF_FUNCTION + 1, 2)] {
            let wasm = wat::parse_str(text(calls)).expect("a program");
            let rewritten = rewritten(&wasm);
            assert_checked(&rewritten);
            assert_eq!(bodies(&rewritten).len(), functions);
        }
    }

    #[test]
    fn modules_of_components_are_rewritten() {
        let module = r#"(core module (import "a" "b" (func $f)) (func (call $f) (call $f)))"#;
        let text = format!("(component {module} (component {module}))");
        let wasm = wat::parse_str(text).expect("a component");
        let rewritten = rewritten(&wasm);
        assert_eq!(rewritten.len(), wasm.len() + 2 * 2 * 3);
    }

    /// A piece of a program, in text. Branches go to a block around it, or out of the function.
    fn piece() -> impl Strategy<Value = String> {
        // Every branch burns fuel, so that all loops end.
        let burn = "(call $burn)";
        let leaf = prop_oneof![
            (1_usize..90).prop_map(loads),
            any::<u8>().prop_map(|by| format!("(local.set 0 (i32.add (local.get 0) (i32.const {by})))")),
            any::<u8>().prop_map(|at| format!("(i32.store8 (i32.const {at}) (local.get 0))")),
            always("(call $host)"),
            always("(call $own)"),
            always("(drop (memory.grow (i32.const 0)))"),
            always("(memory.fill (i32.const 8) (local.get 0) (i32.const 5))"),
            (0_u32..4).prop_map(move |label| format!("{burn} (br {label})")),
            (0_u32..4, 0_u8..5).prop_map(move |(label, bit)| format!(
                "{burn} (br_if {label} (i32.and (i32.const 1) (i32.shr_u (local.get 0) (i32.const {bit}))))"
            )),
            (0_u32..4, 0_u32..4, 0_u32..4).prop_map(move |(a, b, c)| format!(
                "{burn} (br_table {a} {b} {c} (i32.and (local.get 0) (i32.const 3)))"
            )),
            always("(throw $t)"),
            always("(return)"),
        ];
        leaf.prop_recursive(5, 60, 6, |inner| {
            let body = proptest::collection::vec(inner, 0..6).prop_map(|pieces| pieces.concat());
            let body = body.boxed();
            let two = (body.clone(), body.clone());
            prop_oneof![
                body.clone().prop_map(|body| format!("(block {body})")),
                body.clone().prop_map(|body| format!("(loop {body})")),
                two.prop_map(|(then, other)| format!(
                    "(if (i32.and (local.get 0) (i32.const 1)) (then {then}) (else {other}))"
                )),
                body.clone().prop_map(|then| format!(
                    "(if (i32.and (local.get 0) (i32.const 2)) (then {then}))"
                )),
                body.clone()
                    .prop_map(|body| format!("(block (try_table (catch $t 0) {body}))")),
                body.prop_map(|body| format!("(i32.const 5) (block {body}) (local.set 0)")),
            ]
        })
    }

    fn always(text: &'static str) -> Just<String> {
        Just(text.to_owned())
    }

    /// What a run comes to: its result, or the trap; its memory; and how often it called.
    fn run(engine: &Engine, wasm: &[u8], argument: i32) -> (Result<i32, String>, Vec<u8>, u32) {
        let module = Module::new(engine, wasm).expect("valid");
        let mut linker = Linker::new(engine);
        linker
            .func_wrap("a", "host", |mut caller: Caller<'_, u32>| {
                *caller.data_mut() += 1;
            })
            .expect("linked");
        let mut store = Store::new(engine, 0);
        let instance = linker.instantiate(&mut store, &module).expect("linked");
        let run = instance.get_typed_func::<i32, i32>(&mut store, "run");
        let result = run.expect("exported").call(&mut store, argument);
        let result = result.map_err(|error| match error.downcast_ref::<Trap>() {
            Some(trap) => trap.to_string(),
            None => "thrown".to_owned(),
        });
        let memory = instance.get_memory(&mut store, "memory");
        let bytes = memory.expect("exported").data(&store)[..512].to_vec();
        (result, bytes, *store.data())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn a_rewritten_program_means_the_same_and_no_path_is_long(
            pieces in proptest::collection::vec(piece(), 1..8),
            argument in 0_i32..32,
        ) {
            let body = pieces.concat();
            let text = format!(r#"(module
                (import "a" "host" (func $host)) (tag $t) (memory (export "memory") 1)
                (global $fuel (mut i32) (i32.const 300))
                (data (i32.const 0) "\01\20\03\05\08\0d\15\22\37\59\00\11\04\04\04\09")
                (func $burn
                    (if (i32.eqz (global.get $fuel)) (then unreachable))
                    (global.set $fuel (i32.sub (global.get $fuel) (i32.const 1))))
                (func $own (local i32) (call $burn) {})
                (func $body (param i32) (block (block (block (block {body}))))
                    (i32.store (i32.const 100) (local.get 0)))
                (func (export "run") (param i32) (result i32)
                    (call $body (local.get 0)) (i32.load (i32.const 100))))"#, loads(25));
            let wasm = wat::parse_str(&text).expect("a program");
            let rewritten = rewritten(&wasm);
            assert_checked(&rewritten);
            let mut config = Config::new();
            config.wasm_features(FEATURES, true);
            let engine = Engine::new(&config).expect("an engine");
            prop_assert_eq!(run(&engine, &wasm, argument), run(&engine, &rewritten, argument));
        }
    }
}
