//! An exported function, found in a program before it is called.

use super::values::{Shape, Way, counted, fits};
use crate::call_bytes::value_bytes;
use crate::program::{Code, Program};
use crate::steps::caps::POINTERS;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};
use wasmtime::component::{Component, ComponentExportIndex, Val};
use wasmtime::{ExternType, Module, ValType};

/// Why a function of a program cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// The program was loaded to be run, not to be called.
    #[error("the program was loaded as a command: `Cell::load_exports` loads one that is called")]
    Command,
    /// No export has this name.
    #[error("it exports no function {name:?}; there are: {}", list(exports))]
    Missing {
        /// The name that was asked for.
        name: String,
        /// Functions that it exports, as [`ExportedFunction::find`] takes them.
        exports: Vec<String>,
    },
    /// Several interfaces have a function of this name.
    #[error("several exports are called {name:?}: {}", list(exports))]
    Ambiguous {
        /// The name that was asked for.
        name: String,
        /// The name of each with its interface.
        exports: Vec<String>,
    },
    /// A parameter or result is a resource, a stream, a vector or a reference.
    #[error(
        "it takes or returns something else than values: a resource, a stream, a vector or a reference"
    )]
    Type,
    /// A result points to more strings and lists than [`POINTERS`], those within lists
    /// not counted.
    #[error(
        "its result has more than {} strings and lists that are not in a list",
        POINTERS.most
    )]
    Scattered,
    /// A parameter or result is nested more deeply than [`NESTED`](crate::steps::caps::NESTED).
    #[error("the type of a parameter or result is nested too deeply")]
    Nested,
}

/// Names, the first few of them.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = names.iter().take(SHOWN).map(String::as_str);
    let shown: Vec<&str> = shown.collect();
    match names.len().checked_sub(SHOWN) {
        _ if names.is_empty() => "none".to_owned(),
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// An exported function of a program that was loaded to be called. Cloning is cheap.
///
/// Core modules have numbers for arguments and results: they are [`Val::S32`], [`Val::S64`], [`Val::Float32`] and
/// [`Val::Float64`].
#[derive(Clone)]
pub struct ExportedFunction {
    found: Arc<Found>,
}

struct Found {
    program: Arc<Program>,
    name: String,
    parameters: Vec<(String, Type)>,
    results: Vec<Type>,
    /// The bytes that arguments and results may count as are divided by these.
    lower_weight: u64,
    lift_weight: u64,
    target: Target,
}

/// Where the function is in an instance.
pub(super) enum Target {
    Component(ComponentExportIndex),
    Module,
}

impl fmt::Debug for ExportedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportedFunction")
            .field("name", &self.found.name)
            .finish_non_exhaustive()
    }
}

impl ExportedFunction {
    /// Finds a function by its name, or by its interface and name: `ns:package/interface@1.0.0#name`. The name alone
    /// is enough if only one export has it.
    ///
    /// # Errors
    /// When the program has none, or one that cannot be called.
    pub fn find(program: &Arc<Program>, name: &str) -> Result<Self, FunctionError> {
        if !program.is_called() {
            return Err(FunctionError::Command);
        }
        let found = match program.code() {
            Code::Component(component) => in_component(program, component, name)?,
            Code::Module(module) => in_module(program, module, name)?,
        };
        Ok(Self {
            found: Arc::new(found),
        })
    }

    /// Its name, with its interface if it is in one.
    pub fn name(&self) -> &str {
        &self.found.name
    }

    /// Names and types of its parameters; those of a core module have no names.
    pub fn parameters(&self) -> &[(String, Type)] {
        &self.found.parameters
    }

    /// Types of its results: one of a component at the most.
    pub fn results(&self) -> &[Type] {
        &self.found.results
    }

    /// The program that exports it.
    pub fn program(&self) -> &Arc<Program> {
        &self.found.program
    }

    pub(super) fn target(&self) -> &Target {
        &self.found.target
    }

    /// Bytes that results may count as, under a lease with so many bytes for calls.
    pub(super) fn result_bytes(&self, call_bytes: u64) -> u64 {
        value_bytes(call_bytes) / self.found.lift_weight
    }

    /// Bytes that arguments may count as, under a lease with so many bytes for calls.
    pub(super) fn argument_bytes(&self, call_bytes: u64) -> u64 {
        value_bytes(call_bytes) / self.found.lower_weight
    }

    /// Whether the arguments are as many as it takes, each of its type.
    pub(super) fn takes(&self, arguments: &[Val]) -> bool {
        let types = self.found.parameters.iter();
        arguments.len() == types.len()
            && arguments
                .iter()
                .zip(types)
                .all(|(value, (_, ty))| fits(value, ty))
    }
}

/// The bytes that arguments count as.
pub(super) fn argument_size(arguments: &[Val]) -> u64 {
    arguments.iter().map(counted).sum()
}

fn in_component(
    program: &Arc<Program>,
    component: &Component,
    name: &str,
) -> Result<Found, FunctionError> {
    let functions = functions(component);
    let exact = functions.iter().position(|(title, _)| title == name);
    let at = match exact {
        Some(at) => at,
        None => {
            let is_called =
                |title: &str| title.rsplit_once('#').is_some_and(|(_, own)| own == name);
            let named = functions
                .iter()
                .enumerate()
                .filter(|(_, (title, _))| is_called(title));
            let named: Vec<(usize, &String)> = named.map(|(at, (title, _))| (at, title)).collect();
            match &named[..] {
                [(at, _)] => *at,
                [] => {
                    return Err(FunctionError::Missing {
                        name: name.to_owned(),
                        exports: functions.into_iter().map(|(title, _)| title).collect(),
                    });
                }
                several => {
                    return Err(FunctionError::Ambiguous {
                        name: name.to_owned(),
                        exports: several.iter().map(|(_, title)| (*title).clone()).collect(),
                    });
                }
            }
        }
    };
    let (title, ty) = &functions[at];
    let index = match title.split_once('#') {
        None => component.get_export_index(None, title.as_str()),
        Some((interface, own)) => component
            .get_export_index(None, interface)
            .and_then(|interface| component.get_export_index(Some(&interface), own)),
    };
    let index = index.ok_or(FunctionError::Type)?;
    if ty.async_() {
        return Err(FunctionError::Type);
    }
    let parameters: Vec<(String, Type)> = ty
        .params()
        .map(|(name, ty)| (name.to_owned(), ty))
        .collect();
    let results: Vec<Type> = ty.results().collect();
    let lower_weight = weight(parameters.iter().map(|(_, ty)| ty), Way::Lower)?;
    let lift_weight = weight(results.iter(), Way::Lift)?;
    Ok(Found {
        program: program.clone(),
        name: title.clone(),
        parameters,
        results,
        lower_weight,
        lift_weight,
        target: Target::Component(index),
    })
}

/// The weight of the heaviest type, if all may be passed in one call.
fn weight<'a>(types: impl Iterator<Item = &'a Type>, way: Way) -> Result<u64, FunctionError> {
    let (mut weight, mut pointers) = (1, 0_u64);
    for ty in types {
        let shape = Shape::of(ty, way, 0, false)?;
        weight = weight.max(shape.weight());
        pointers = pointers.saturating_add(shape.pointers());
    }
    match way {
        Way::Lift if pointers > POINTERS.most => Err(FunctionError::Scattered),
        _ => Ok(weight),
    }
}

/// The functions that a component exports, at its root and in the interfaces there.
fn functions(component: &Component) -> Vec<(String, ComponentFunc)> {
    let engine = component.engine();
    let mut functions = Vec::new();
    for (name, export) in component.component_type().exports(engine) {
        match export.ty {
            ComponentItem::ComponentFunc(function) => functions.push((name.to_owned(), function)),
            ComponentItem::ComponentInstance(instance) => {
                for (own, export) in instance.exports(engine) {
                    if let ComponentItem::ComponentFunc(function) = export.ty {
                        functions.push((format!("{name}#{own}"), function));
                    }
                }
            }
            _ => {}
        }
    }
    functions
}

fn in_module(program: &Arc<Program>, module: &Module, name: &str) -> Result<Found, FunctionError> {
    let export = module.get_export(name);
    let Some(ty) = export.as_ref().and_then(ExternType::func) else {
        let functions = module
            .exports()
            .filter(|export| export.ty().func().is_some());
        return Err(FunctionError::Missing {
            name: name.to_owned(),
            exports: functions.map(|export| export.name().to_owned()).collect(),
        });
    };
    let parameters = ty.params().map(|ty| Ok((String::new(), number(&ty)?)));
    let parameters: Vec<(String, Type)> = parameters.collect::<Result<_, _>>()?;
    let results = ty.results().map(|ty| number(&ty));
    let results: Vec<Type> = results.collect::<Result<_, _>>()?;
    Ok(Found {
        program: program.clone(),
        name: name.to_owned(),
        parameters,
        results,
        lower_weight: 1,
        lift_weight: 1,
        target: Target::Module,
    })
}

/// The type of a component's values with which a number of a core module is given and taken.
fn number(ty: &ValType) -> Result<Type, FunctionError> {
    match ty {
        ValType::I32 => Ok(Type::S32),
        ValType::I64 => Ok(Type::S64),
        ValType::F32 => Ok(Type::Float32),
        ValType::F64 => Ok(Type::Float64),
        ValType::V128 | ValType::Ref(_) => Err(FunctionError::Type),
    }
}
