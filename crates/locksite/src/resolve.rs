//! From a call chain to the lock that is taken at its end.
//!
//! The argument of the lock function is an expression in the text of a function. It is followed to
//! the place of the lock: through members, through variables to their assigned values, through
//! functions that return a pointer to a lock, and, when it is a parameter, to the caller. So a
//! function around a lock function need not be listed as a wrapper: it is one if the lock is its
//! parameter (LockScope §4.2 finds 335 of them).

use std::cell::Cell;
use std::rc::Rc;

use crate::body::Call;
use crate::ctype::CType;
use crate::expr::{Base, Expr, Let, TypeName};
use crate::intrinsic;
use crate::kernel::Kernel;
use crate::origin::Origin;
use crate::scope::{Caller, Meaning, Scope};
use crate::site::Reason;

/// Expressions that are followed for one lock, at most.
const MAX_EVALUATIONS: u32 = 4_000;

/// The longest chain of expressions that lead to each other.
const MAX_DEPTH: u32 = 48;

/// Functions that a call chain may lack between two of its steps (tail calls), at most.
const MAX_MISSING: u32 = 3;

/// The greatest distance of a call from the line in the debug information, which can be the line of
/// the statement.
const MAX_LINES_OFF: u32 = 12;

/// The function of a step, and the line in it that calls the step before.
pub(crate) struct ChainStep {
    pub(crate) scope: Rc<Scope>,
    pub(crate) file: usize,
    pub(crate) line: u32,
}

/// A call chain, innermost step first.
pub(crate) struct Resolver<'k> {
    kernel: &'k Kernel,
    chain: Vec<ChainStep>,
    evaluations: Cell<u32>,
    /// An argument was needed whose caller is not in the chain.
    left_chain: Cell<bool>,
}

/// A call, by the function that makes it and the arguments.
struct Found {
    scope: Rc<Scope>,
    arguments: Vec<Expr>,
}

impl<'k> Resolver<'k> {
    pub(crate) fn new(kernel: &'k Kernel, chain: Vec<ChainStep>) -> Self {
        Self {
            kernel,
            chain,
            evaluations: Cell::new(0),
            left_chain: Cell::new(false),
        }
    }

    /// The lock that the chain takes by calling `primitive`, whose first argument it is.
    pub(crate) fn lock(&self, primitive: &str) -> Result<Origin, Reason> {
        let Some(first) = self.chain.first() else {
            return Err(Reason::NoDebugInformation);
        };
        let mut reason = Reason::NoCall;
        if first.scope.body.is_none() {
            reason = Reason::NoSource;
        }
        for call in self.calls(&first.scope, Some(first.line), primitive, MAX_MISSING) {
            reason = Reason::Expression;
            if let Some(argument) = call.arguments.first()
                && let Some(origin) = self.target(argument, &call.scope, &[], 0)
                && origin.lock().is_some()
            {
                return Ok(origin);
            }
        }
        self.only_parameter(&first.scope).ok_or(match reason {
            Reason::Expression if self.left_chain.get() => Reason::NoCaller,
            other => other,
        })
    }

    /// The lock of a function whose text says nothing, but which has one parameter that is a
    /// pointer to a lock: it is that lock's wrapper.
    fn only_parameter(&self, scope: &Rc<Scope>) -> Option<Origin> {
        let parameters = scope.parameters();
        let is_lock = |ctype: &Option<CType>| ctype.as_ref().is_some_and(CType::is_lock_pointer);
        let mut locks = (0..parameters.len()).filter(|&index| is_lock(&parameters[index].1));
        let only = locks.next().filter(|_| locks.next().is_none())?;
        let origin = self.argument(scope, only, 0)?;
        origin.lock().is_some().then_some(origin)
    }

    /// The calls of `callee` in a function that can be meant, best first: those nearest to the
    /// line and, if there is none, those in functions called there.
    fn calls(
        &self,
        scope: &Rc<Scope>,
        line: Option<u32>,
        callee: &str,
        missing: u32,
    ) -> Vec<Found> {
        let Some(body) = &scope.body else {
            return Vec::new();
        };
        let off = |call: &Call<'_>| line.map_or(0, |line| call.line.abs_diff(line));
        let is_type = |name: &str| scope.is_type(name);
        let mut direct: Vec<Call<'_>> =
            body.calls().filter(|call| **call.name == *callee).collect();
        direct.sort_by_key(off);
        if !direct.is_empty() {
            let found = direct.into_iter().map(|call| Found {
                scope: Rc::clone(scope),
                arguments: body.arguments(call, &is_type),
            });
            return found.take(4).collect();
        }
        if missing == 0 {
            return Vec::new();
        }
        let mut others: Vec<Call<'_>> = body
            .calls()
            .filter(|call| off(call) <= MAX_LINES_OFF)
            .collect();
        others.sort_by_key(off);
        let mut found = Vec::new();
        for call in others.into_iter().take(24) {
            let arguments = body.arguments(call, &is_type);
            if let Some(inner) = self.enter(scope, call.name, arguments) {
                found.extend(self.calls(&inner, None, callee, missing - 1));
            }
            if found.len() >= 4 {
                break;
            }
        }
        found
    }

    /// A function that is called from `scope`.
    fn enter(&self, scope: &Rc<Scope>, name: &str, arguments: Vec<Expr>) -> Option<Rc<Scope>> {
        self.spend()?;
        let caller = Caller::Call {
            scope: Rc::clone(scope),
            arguments,
        };
        self.kernel
            .function(&scope.image, &scope.unit, name, caller)
            .map(Rc::new)
    }

    fn spend(&self) -> Option<()> {
        self.evaluations.set(self.evaluations.get() + 1);
        (self.evaluations.get() < MAX_EVALUATIONS).then_some(())
    }

    /// The object that the value of an expression points to.
    fn target(&self, expr: &Expr, scope: &Rc<Scope>, lets: &[Let], depth: u32) -> Option<Origin> {
        self.spend()?;
        if depth > MAX_DEPTH {
            return None;
        }
        let deeper = depth + 1;
        match expr {
            Expr::AddressOf(inner) => self.place(inner, scope, lets, deeper),
            Expr::Sum(left, right) => self
                .target(left, scope, lets, deeper)
                .or_else(|| self.target(right, scope, lets, deeper)),
            Expr::Comma(parts) => self.target(parts.last()?, scope, lets, deeper),
            Expr::Assign { value, .. } => self.target(value, scope, lets, deeper),
            Expr::Block { lets: own, last } => self.target(last, scope, &joined(lets, own), deeper),
            Expr::Conditional { condition, yes, no } => {
                let yes = yes.as_deref().unwrap_or(condition);
                self.target(yes, scope, lets, deeper)
                    .filter(|origin| origin.lock().is_some())
                    .or_else(|| self.target(no, scope, lets, deeper))
            }
            Expr::Cast { to, value } => self.cast(to, value, scope, lets, deeper),
            Expr::Name(name) => self.named(name, expr, scope, lets, deeper),
            Expr::Call {
                function,
                arguments,
            } => self.returned(function, arguments, expr, scope, lets, deeper),
            Expr::Member { field, .. } => self.stored(expr, Some(field), scope, lets, deeper),
            Expr::Index { .. } | Expr::Follow(_) => self.stored(expr, None, scope, lets, deeper),
            Expr::Constant | Expr::Number(_) | Expr::Type(_) => None,
        }
    }

    /// The origin of a pointer by its type alone: that it points to an object, unless it points to
    /// a lock, which can be anywhere.
    fn by_type(&self, ctype: Option<CType>) -> Option<Origin> {
        let target = ctype?.target()?;
        (target.is_aggregate() && !target.is_lock()).then(Origin::pointed)
    }

    fn cast(
        &self,
        to: &TypeName,
        value: &Expr,
        scope: &Rc<Scope>,
        lets: &[Let],
        depth: u32,
    ) -> Option<Origin> {
        let to = self.type_named(to, scope, lets, depth);
        let from = self
            .type_of(value, scope, lets, depth)
            .and_then(|ctype| ctype.target());
        let to_target = to.as_ref().and_then(CType::target);
        let same = match (&from, &to_target) {
            (Some(from), Some(to)) => from.name() == to.name(),
            _ => false,
        };
        if same || to_target.is_some_and(|target| target.is_lock()) {
            return self
                .target(value, scope, lets, depth)
                .or_else(|| self.by_type(to));
        }
        self.by_type(to)
            .or_else(|| self.target(value, scope, lets, depth))
    }

    /// The object that a variable points to, or, if it is an array, the variable.
    fn named(
        &self,
        name: &Rc<str>,
        expr: &Expr,
        scope: &Rc<Scope>,
        lets: &[Let],
        depth: u32,
    ) -> Option<Origin> {
        if let Some(index) = lets.iter().rposition(|one| one.name == *name) {
            let one = &lets[index];
            let value = one.value.as_ref();
            let value = value.and_then(|value| self.target(value, scope, &lets[..index], depth));
            let ctype = || self.type_named(&one.type_name, scope, &lets[..index], depth);
            return value.or_else(|| self.by_type(ctype()));
        }
        let (meaning, ctype) = scope.meaning(name)?;
        if ctype
            .as_ref()
            .is_some_and(|ctype| ctype.is_array() && !matches!(meaning, Meaning::Parameter(_)))
        {
            return self.place(expr, scope, lets, depth);
        }
        let to_lock = ctype.as_ref().is_some_and(CType::is_lock_pointer);
        let followed = match meaning {
            Meaning::Parameter(index) => self.argument(scope, index, depth),
            Meaning::Local => self.assigned(name, scope, to_lock, depth),
            Meaning::Global if to_lock => Some(Origin::variable(name).loaded()),
            Meaning::Global => None,
        };
        // A pointer to an object that came from an unknown place is as good as its type says.
        let followed = followed.filter(|origin| to_lock || !origin.is_bare());
        followed.or_else(|| self.by_type(ctype))
    }

    /// The object that the argument for a parameter points to.
    fn argument(&self, scope: &Rc<Scope>, index: usize, depth: u32) -> Option<Origin> {
        match &scope.caller {
            Caller::Call {
                scope: outer,
                arguments,
            } => self.target(arguments.get(index)?, outer, &[], depth + 1),
            Caller::Step(step) => {
                let Some(next) = self.chain.get(*step) else {
                    self.left_chain.set(true);
                    return None;
                };
                let name = &scope.function.name;
                let parameters = scope.parameters();
                let (_, ctype) = parameters.get(index)?;
                let wrapper = ctype.as_ref().is_some_and(CType::is_lock_pointer);
                let calls = self.calls(&next.scope, Some(next.line), name, MAX_MISSING - 1);
                let found = calls.iter().find_map(|call| {
                    self.target(call.arguments.get(index)?, &call.scope, &[], depth + 1)
                });
                let found = found.or_else(|| {
                    if wrapper {
                        self.only_parameter(&next.scope)
                    } else {
                        None
                    }
                })?;
                Some(if wrapper {
                    found.named_in(*step)
                } else {
                    found
                })
            }
        }
    }

    /// The object that was assigned to a pointer variable.
    fn assigned(&self, name: &str, scope: &Rc<Scope>, to_lock: bool, depth: u32) -> Option<Origin> {
        let body = scope.body.as_ref()?;
        let is_type = |name: &str| scope.is_type(name);
        let good = |origin: &Origin| {
            if to_lock {
                origin.lock().is_some()
            } else {
                !origin.is_bare()
            }
        };
        // The last assignment counts; if the last one is not known, any does.
        let mut values = body.assigned(name, &is_type);
        let line = self.line_in(scope);
        values.sort_by_key(|(assigned, _)| (*assigned > line, std::cmp::Reverse(*assigned)));
        let assigned = values
            .iter()
            .take(6)
            .find_map(|(_, value)| self.target(value, scope, &[], depth).filter(good));
        if assigned.is_some() || !to_lock {
            return assigned;
        }
        body.given_address_of(name)
            .into_iter()
            .take(3)
            .find_map(|(call, index)| {
                let arguments = body.arguments(call, &is_type);
                let inner = self.enter(scope, call.name, arguments)?;
                self.stored_by(&inner, index, depth).filter(good)
            })
    }

    /// The object that a function stores through its parameter.
    fn stored_by(&self, scope: &Rc<Scope>, index: usize, depth: u32) -> Option<Origin> {
        let body = scope.body.as_ref()?;
        let (name, _) = scope.parameters().into_iter().nth(index)?;
        let is_type = |name: &str| scope.is_type(name);
        let stored = body.stored_through(&name, &is_type);
        let found = stored
            .iter()
            .find_map(|(_, value)| self.target(value, scope, &[], depth + 1));
        found.or_else(|| {
            // It may hand the pointer on.
            body.calls().take(64).find_map(|call| {
                let arguments = body.arguments(call, &is_type);
                let position = arguments.iter().position(
                    |argument| matches!(argument, Expr::Name(passed) if **passed == *name),
                )?;
                if depth > MAX_DEPTH / 4 {
                    return None;
                }
                let inner = self.enter(scope, call.name, arguments)?;
                self.stored_by(&inner, position, depth + 4)
            })
        })
    }

    /// The line that is being executed in a scope that is a step of the chain; elsewhere, the end.
    fn line_in(&self, scope: &Rc<Scope>) -> u32 {
        let step = self
            .chain
            .iter()
            .find(|step| Rc::ptr_eq(&step.scope, scope));
        step.map_or(u32::MAX, |step| step.line)
    }

    /// The object that a function's result points to.
    fn returned(
        &self,
        function: &Expr,
        arguments: &[Expr],
        call: &Expr,
        scope: &Rc<Scope>,
        lets: &[Let],
        depth: u32,
    ) -> Option<Origin> {
        let Expr::Name(name) = function else {
            return self.by_type(self.type_of(call, scope, lets, depth));
        };
        if let Some(meaning) = intrinsic::meaning(name) {
            return match meaning {
                intrinsic::Meaning::Argument(index) => {
                    self.target(arguments.get(index)?, scope, lets, depth)
                }
                intrinsic::Meaning::PerCpu => self
                    .target(arguments.first()?, scope, lets, depth)
                    .map(Origin::per_cpu),
                _ => self.by_type(self.type_of(call, scope, lets, depth)),
            };
        }
        let ctype = self.type_of(call, scope, lets, depth);
        let to_lock = ctype.as_ref().is_none_or(CType::is_lock_pointer);
        let found = if to_lock {
            let inner = self.enter(scope, name, substituted(arguments, lets))?;
            let body = inner.body.as_ref()?;
            let values = body.returned(&|name| inner.is_type(name));
            let found = values
                .iter()
                .filter_map(|value| self.target(value, &inner, &[], depth));
            let mut found = found.filter(|origin| origin.lock().is_some());
            found.next()
        } else {
            None
        };
        found.or_else(|| self.by_type(ctype))
    }

    /// The object that a pointer stored in an object points to.
    fn stored(
        &self,
        expr: &Expr,
        field: Option<&str>,
        scope: &Rc<Scope>,
        lets: &[Let],
        depth: u32,
    ) -> Option<Origin> {
        let ctype = self.type_of(expr, scope, lets, depth);
        if ctype.as_ref().is_some_and(CType::is_array) {
            return self.place(expr, scope, lets, depth);
        }
        if !ctype.as_ref().is_some_and(CType::is_lock_pointer) {
            return self.by_type(ctype);
        }
        // An object of this very function, such as that of a lock guard, was filled in here.
        if let (Some(field), Some(body)) = (field, &scope.body) {
            let values = body.assigned_to_member(field, &|name| scope.is_type(name));
            let made = values.iter().find_map(|(_, value)| {
                let origin = self.target(value, scope, &[], depth)?;
                origin.lock().is_some().then_some(origin)
            });
            if made.is_some() {
                return made;
            }
        }
        self.place(expr, scope, lets, depth).map(Origin::loaded)
    }

    /// Where the object is that an expression denotes.
    fn place(&self, expr: &Expr, scope: &Rc<Scope>, lets: &[Let], depth: u32) -> Option<Origin> {
        self.spend()?;
        if depth > MAX_DEPTH {
            return None;
        }
        let deeper = depth + 1;
        match expr {
            Expr::Name(name) => match scope.meaning(name)?.0 {
                Meaning::Global => Some(Origin::variable(name)),
                Meaning::Local | Meaning::Parameter(_) => Some(Origin::on_stack(name)),
            },
            Expr::Member {
                base,
                field,
                arrow: true,
            } => {
                let owner = self.type_of(base, scope, lets, deeper)?.target()?;
                let at = self.target(base, scope, lets, deeper);
                let at = match at {
                    None if owner.is_lock() => return None,
                    None => Origin::pointed(),
                    Some(at) => at,
                };
                at.member(&owner, field).map(|(origin, _)| origin)
            }
            Expr::Member {
                base,
                field,
                arrow: false,
            } => {
                let owner = self.type_of(base, scope, lets, deeper)?;
                let at = self.place(base, scope, lets, deeper);
                let at = if owner.is_lock() {
                    at?
                } else {
                    at.unwrap_or_else(Origin::pointed)
                };
                at.member(&owner, field).map(|(origin, _)| origin)
            }
            Expr::Index { base, .. } => {
                let array = self.type_of(base, scope, lets, deeper)?.is_array();
                let at = if array {
                    self.place(base, scope, lets, deeper)
                } else {
                    self.target(base, scope, lets, deeper)
                };
                at.map(Origin::element)
            }
            Expr::Follow(inner) => self.target(inner, scope, lets, deeper),
            Expr::Comma(parts) => self.place(parts.last()?, scope, lets, deeper),
            Expr::Cast { value, .. } => self.place(value, scope, lets, deeper),
            Expr::Block { lets: own, last } => self.place(last, scope, &joined(lets, own), deeper),
            Expr::Conditional { condition, yes, no } => {
                let yes = yes.as_deref().unwrap_or(condition);
                self.place(yes, scope, lets, deeper)
                    .or_else(|| self.place(no, scope, lets, deeper))
            }
            Expr::Call {
                function,
                arguments,
            } => {
                let Expr::Name(name) = &**function else {
                    return None;
                };
                match intrinsic::meaning(name)? {
                    intrinsic::Meaning::Argument(index) => {
                        self.place(arguments.get(index)?, scope, lets, deeper)
                    }
                    intrinsic::Meaning::PerCpu => self
                        .place(arguments.first()?, scope, lets, deeper)
                        .map(Origin::per_cpu),
                    intrinsic::Meaning::Pointee => {
                        self.target(arguments.first()?, scope, lets, deeper)
                    }
                    intrinsic::Meaning::PrivateMember => {
                        self.place(&private_member(arguments)?, scope, lets, deeper)
                    }
                    intrinsic::Meaning::Container => None,
                }
            }
            _ => None,
        }
    }

    /// The type of an expression.
    fn type_of(&self, expr: &Expr, scope: &Rc<Scope>, lets: &[Let], depth: u32) -> Option<CType> {
        self.spend()?;
        if depth > MAX_DEPTH {
            return None;
        }
        let deeper = depth + 1;
        match expr {
            Expr::Name(name) => match lets.iter().rposition(|one| one.name == *name) {
                Some(index) => {
                    self.type_named(&lets[index].type_name, scope, &lets[..index], deeper)
                }
                None => self.type_of_name(name, scope, deeper),
            },
            Expr::Member { base, field, arrow } => {
                let base = self.type_of(base, scope, lets, deeper)?;
                let owner = if *arrow { base.target()? } else { base };
                owner.member(field).map(|found| found.ctype)
            }
            Expr::Index { base, .. } | Expr::Follow(base) => {
                self.type_of(base, scope, lets, deeper)?.target()
            }
            Expr::AddressOf(inner) => self
                .type_of(inner, scope, lets, deeper)
                .map(CType::pointer_to),
            Expr::Sum(left, right) => {
                let left = self.type_of(left, scope, lets, deeper);
                left.filter(|ctype| ctype.is_pointer() || ctype.is_array())
                    .or_else(|| self.type_of(right, scope, lets, deeper))
            }
            Expr::Conditional { condition, yes, no } => {
                let yes = yes.as_deref().unwrap_or(condition);
                self.type_of(yes, scope, lets, deeper)
                    .or_else(|| self.type_of(no, scope, lets, deeper))
            }
            Expr::Assign { to, .. } => self.type_of(to, scope, lets, deeper),
            Expr::Comma(parts) => self.type_of(parts.last()?, scope, lets, deeper),
            Expr::Cast { to, value } => self
                .type_named(to, scope, lets, deeper)
                .or_else(|| self.type_of(value, scope, lets, deeper)),
            Expr::Block { lets: own, last } => {
                self.type_of(last, scope, &joined(lets, own), deeper)
            }
            Expr::Call {
                function,
                arguments,
            } => self.type_of_call(function, arguments, scope, lets, deeper),
            Expr::Type(name) => self.type_named(name, scope, lets, deeper),
            Expr::Constant | Expr::Number(_) => None,
        }
    }

    /// The type of a variable, also of one that is declared with `typeof` or not at all.
    fn type_of_name(&self, name: &str, scope: &Rc<Scope>, depth: u32) -> Option<CType> {
        let (meaning, ctype) = scope.meaning(name)?;
        if ctype.is_some() {
            return ctype;
        }
        if let (Meaning::Local, Some(body)) = (&meaning, &scope.body) {
            let values = body.assigned(name, &|name| scope.is_type(name));
            return values
                .iter()
                .find_map(|(_, value)| self.type_of(value, scope, &[], depth));
        }
        None
    }

    fn type_of_call(
        &self,
        function: &Expr,
        arguments: &[Expr],
        scope: &Rc<Scope>,
        lets: &[Let],
        depth: u32,
    ) -> Option<CType> {
        let Expr::Name(name) = function else {
            return self.type_of(function, scope, lets, depth)?.returned();
        };
        match intrinsic::meaning(name) {
            Some(intrinsic::Meaning::Argument(index)) => {
                self.type_of(arguments.get(index)?, scope, lets, depth)
            }
            Some(intrinsic::Meaning::PerCpu) => {
                self.type_of(arguments.first()?, scope, lets, depth)
            }
            Some(intrinsic::Meaning::Pointee) => self
                .type_of(arguments.first()?, scope, lets, depth)?
                .target(),
            Some(intrinsic::Meaning::Container) => match arguments.get(1)? {
                Expr::Type(name) => self
                    .type_named(name, scope, lets, depth)
                    .map(CType::pointer_to),
                _ => None,
            },
            Some(intrinsic::Meaning::PrivateMember) => {
                self.type_of(&private_member(arguments)?, scope, lets, depth)
            }
            None => self.type_returned(name, arguments, scope, lets, depth),
        }
    }

    fn type_returned(
        &self,
        name: &str,
        arguments: &[Expr],
        scope: &Rc<Scope>,
        lets: &[Let],
        depth: u32,
    ) -> Option<CType> {
        if let Some(id) = scope.unit.function_named(name) {
            return Some(CType::new(&scope.unit, scope.unit.function(id).returns));
        }
        // A variable can be a pointer to a function.
        if let Some(ctype) = scope.meaning(name).and_then(|(_, ctype)| ctype) {
            return ctype.returned();
        }
        let inner = self.enter(scope, name, substituted(arguments, lets))?;
        if inner.function.returns.is_some() {
            return Some(CType::new(&inner.unit, inner.function.returns));
        }
        let body = inner.body.as_ref()?;
        let values = body.returned(&|name| inner.is_type(name));
        values
            .iter()
            .find_map(|value| self.type_of(value, &inner, &[], depth))
    }

    fn type_named(
        &self,
        name: &TypeName,
        scope: &Rc<Scope>,
        lets: &[Let],
        depth: u32,
    ) -> Option<CType> {
        let base = match &name.base {
            Base::TypeOf(expr) => self.type_of(expr, scope, lets, depth + 1)?,
            Base::Same(inner) if depth < MAX_DEPTH => {
                self.type_named(inner, scope, lets, depth + 1)?
            }
            _ => return scope.spelt(name),
        };
        Some((0..name.pointers).fold(base, |ctype, _| ctype.pointer_to()))
    }
}

fn joined(outer: &[Let], inner: &[Let]) -> Vec<Let> {
    outer.iter().chain(inner).cloned().collect()
}

/// Arguments in which variables of a block are replaced by their values, where there are any:
/// the function that gets them does not know the block.
fn substituted(arguments: &[Expr], lets: &[Let]) -> Vec<Expr> {
    let block = |argument: &Expr| Expr::Block {
        lets: lets.to_vec(),
        last: Box::new(argument.clone()),
    };
    if lets.is_empty() {
        return arguments.to_vec();
    }
    arguments.iter().map(block).collect()
}

/// `ACCESS_PRIVATE(p, member)` is `p->member`.
fn private_member(arguments: &[Expr]) -> Option<Expr> {
    let [base, Expr::Name(field)] = arguments else {
        return None;
    };
    Some(Expr::Member {
        base: Box::new(base.clone()),
        field: Rc::clone(field),
        arrow: true,
    })
}
