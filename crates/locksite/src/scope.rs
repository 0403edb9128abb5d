//! A function that is examined: its text, its variables, and where its parameters come from.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::body::Body;
use crate::ctype::CType;
use crate::expr::{Base, Expr, Let, TypeName};
use crate::image::Image;
use crate::unit::{Function, Naming, Unit, Variable};

/// The place of a function's arguments.
pub(crate) enum Caller {
    /// In the step of the call chain with that number, further out.
    Step(usize),
    /// In a call that was found in the text.
    Call {
        scope: Rc<Scope>,
        arguments: Vec<Expr>,
    },
}

/// A function that is examined.
pub(crate) struct Scope {
    pub(crate) image: Rc<Image>,
    pub(crate) unit: Rc<Unit>,
    pub(crate) function: Function,
    pub(crate) body: Option<Rc<Body>>,
    pub(crate) caller: Caller,
    declared: OnceCell<Vec<Let>>,
    params: OnceCell<Vec<Let>>,
}

/// The meaning of a name in a function.
pub(crate) enum Meaning {
    /// The parameter with that number.
    Parameter(usize),
    /// A variable of one call of the function.
    Local,
    /// A variable that exists once.
    Global,
}

impl Scope {
    pub(crate) fn new(
        image: &Rc<Image>,
        unit: &Rc<Unit>,
        function: Function,
        body: Option<Rc<Body>>,
        caller: Caller,
    ) -> Self {
        Self {
            image: Rc::clone(image),
            unit: Rc::clone(unit),
            function,
            body,
            caller,
            declared: OnceCell::new(),
            params: OnceCell::new(),
        }
    }

    /// Whether the name is a type's.
    pub(crate) fn is_type(&self, name: &str) -> bool {
        self.unit.type_named(Naming::Typedef, name).is_some()
    }

    /// The meaning of the name, and its type if that is known. The debug information comes first
    /// and then the text, because the compiler leaves out variables that it optimised away.
    pub(crate) fn meaning(&self, name: &str) -> Option<(Meaning, Option<CType>)> {
        let named = |list: &[Variable]| list.iter().position(|variable| variable.name == name);
        let ctype =
            |variable: &Variable| variable.type_id.map(|id| CType::new(&self.unit, Some(id)));
        let function = &self.function;
        if let Some(index) = named(&function.locals) {
            let local = &function.locals[index];
            let meaning = if local.fixed {
                Meaning::Global
            } else {
                Meaning::Local
            };
            return Some((meaning, ctype(local)));
        }
        if let Some(index) = named(&function.params) {
            return Some((Meaning::Parameter(index), ctype(&function.params[index])));
        }
        let spelt = |list: &[Let]| list.iter().position(|one| &*one.name == name);
        if let Some(index) = spelt(self.params()) {
            return Some((
                Meaning::Parameter(index),
                self.spelt(&self.params()[index].type_name),
            ));
        }
        if let Some(index) = spelt(self.declared()) {
            return Some((
                Meaning::Local,
                self.spelt(&self.declared()[index].type_name),
            ));
        }
        if let Some(global) = self.unit.global(name) {
            return Some((Meaning::Global, ctype(global)));
        }
        (!self.image.addresses_of(name).is_empty()).then_some((Meaning::Global, None))
    }

    /// The name and the type of each parameter.
    pub(crate) fn parameters(&self) -> Vec<(String, Option<CType>)> {
        if self.function.params.is_empty() {
            let spelt = self.params().iter();
            return spelt
                .map(|one| (one.name.to_string(), self.spelt(&one.type_name)))
                .collect();
        }
        let known = self.function.params.iter();
        known
            .map(|param| {
                (
                    param.name.clone(),
                    param.type_id.map(|id| CType::new(&self.unit, Some(id))),
                )
            })
            .collect()
    }

    /// A type by its name, unless it is made with `typeof`.
    pub(crate) fn spelt(&self, name: &TypeName) -> Option<CType> {
        match &name.base {
            Base::Tag(tag) => CType::named(&self.unit, Naming::Tag, tag, name.pointers),
            Base::Name(typedef) => {
                CType::named(&self.unit, Naming::Typedef, typedef, name.pointers)
            }
            Base::Same(inner) => {
                let inner = self.spelt(inner)?;
                Some((0..name.pointers).fold(inner, |ctype, _| ctype.pointer_to()))
            }
            Base::TypeOf(_) => None,
        }
    }

    fn params(&self) -> &[Let] {
        self.params.get_or_init(|| match &self.body {
            Some(body) => body.params(&|name| self.is_type(name)),
            None => Vec::new(),
        })
    }

    fn declared(&self) -> &[Let] {
        self.declared.get_or_init(|| match &self.body {
            Some(body) => body.variables(&|name| self.is_type(name)),
            None => Vec::new(),
        })
    }
}
