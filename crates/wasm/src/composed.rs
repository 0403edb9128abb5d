//! Bounds the strings that components of one program pass each other.
//!
//! Where one component calls another, the engine compiles an *adapter*: wasm that copies what is
//! passed from one memory to the other, lists element by element. It can be interrupted like a
//! guest's own code. Only a string is copied, and translated between encodings, by one call into
//! the engine, where nothing can interrupt it. Before that call the adapter asks the receiving
//! component for room: it calls the `realloc` that the function was lifted or lowered with. Each
//! such function whose type has strings therefore gets a `realloc` of its own, which traps above
//! the number of bytes that the engine may copy in one step:
//!
//! ```text
//! (func (param $old i32) (param $bytes i32) (param $align i32) (param $new i32) (result i32)
//!   (if (i32.and (i32.le_u (local.get $align) (i32.const ALIGN)) (i32.gt_u (local.get $new) (i32.const MOST)))
//!     (then unreachable))
//!   (call $realloc (local.get $old) (local.get $bytes) (local.get $align) (local.get $new)))
//! ```
//!
//! 1. *Every string is within its cap.* No string has more code units than bytes were asked for first.
//! 2. *What has no strings has no cap.* Functions without strings keep their `realloc`. Of those with strings,
//!    lists are limited, too, whose elements are aligned as those of strings are.
//! 3. *The meaning stays otherwise.* Core modules are copied as they are. Names of a component's items are
//!    dropped, but not those of what it imports and exports.

use std::collections::HashMap;
use std::convert::Infallible;

use wasm_encoder::reencode::component_utils as utils;
use wasm_encoder::reencode::{Error, Reencode, ReencodeComponent};
use wasm_encoder::{
    Alias, CanonicalFunctionSection, CanonicalOption, CodeSection, Component,
    ComponentAliasSection, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    ImportSection, InstanceSection, Instruction, Module, ModuleArg, ModuleSection, NameMap,
    NameSection, RawSection, TypeSection, ValType,
};
use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentDefinedTypeId, ComponentFuncTypeId,
    ComponentValType,
};
use wasmparser::types::TypesRef;
use wasmparser::{
    CanonicalFunction, ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind,
    ComponentTypeRef, Parser, Payload, PrimitiveValType, Validator,
};

use crate::error::ProgramError;
use crate::features::FEATURES;
use crate::limits::{STRING, WIDE_STRING};

/// The section of a component that holds a core module.
const MODULE_SECTION: u8 = 1;

/// A program whose components may call each other.
pub(crate) struct Composed {
    /// The program, with bounded strings.
    pub(crate) binary: Vec<u8>,
    /// Parts of the type of each function that is lifted or lowered, in the order of the binary, 0 for other
    /// canonical functions: what an adapter of it is made of.
    pub(crate) parts: Vec<u64>,
}

/// Bounds the strings that the components of a valid program pass each other.
///
/// # Errors
///
/// [`ProgramError::Corrupt`], if it is not valid after all, and [`ProgramError::Engine`] for what cannot be
/// encoded.
pub(crate) fn bound_strings(binary: &[u8]) -> Result<Composed, ProgramError> {
    let functions = Functions::of(binary)?;
    let mut rewriter = Rewriter {
        has_strings: functions.has_strings.into(),
        cap: match functions.is_wide {
            true => Cap {
                align: 2,
                most: WIDE_STRING.most,
            },
            false => Cap {
                align: 1,
                most: STRING.most,
            },
        },
        levels: vec![Level::default()],
        replaced: None,
    };
    let mut component = Component::new();
    match rewriter.parse_component(&mut component, Parser::new(0), binary) {
        Ok(()) => Ok(Composed {
            binary: component.finish(),
            parts: functions.parts,
        }),
        Err(Error::ParseError(error)) => Err(error.into()),
        Err(error) => Err(ProgramError::Engine(wasmtime::Error::msg(
            error.to_string(),
        ))),
    }
}

/// The canonical functions of a program in the order of the binary.
#[derive(Default)]
struct Functions {
    /// Whether it is lifted or lowered and passes strings.
    has_strings: Vec<bool>,
    /// Parts of its type.
    parts: Vec<u64>,
    /// Whether any of them has strings that are not in UTF-8.
    is_wide: bool,
}

impl Functions {
    fn of(binary: &[u8]) -> Result<Self, ProgramError> {
        let mut functions = Self::default();
        let mut known = Known::default();
        let mut validator = Validator::new_with_features(FEATURES);
        for payload in Parser::new(0).parse_all(binary) {
            let payload = payload?;
            // Function bodies are left out: they were validated before.
            validator.payload(&payload)?;
            let Payload::ComponentCanonicalSection(section) = payload else {
                continue;
            };
            for function in section {
                let function = function?;
                let parts = match validator.types(0) {
                    Some(types) => known.function(types, &function),
                    None => Parts::default(),
                };
                functions.has_strings.push(parts.has_strings);
                functions.parts.push(parts.count);
                if let CanonicalFunction::Lift { options, .. }
                | CanonicalFunction::Lower { options, .. } = function
                {
                    functions.is_wide |= options.iter().any(|option| {
                        matches!(
                            option,
                            wasmparser::CanonicalOption::UTF16
                                | wasmparser::CanonicalOption::CompactUTF16
                        )
                    });
                }
            }
        }
        Ok(functions)
    }
}

/// The parts of a type.
#[derive(Clone, Copy, Default)]
struct Parts {
    /// How many, each as often as it occurs; saturates.
    count: u64,
    has_strings: bool,
}

impl Parts {
    const ONE: Parts = Parts {
        count: 1,
        has_strings: false,
    };

    /// A loop over elements, which takes the compiler as much as so many numbers.
    const LOOP: Parts = Parts {
        count: 40,
        has_strings: false,
    };

    const STRING: Parts = Parts {
        has_strings: true,
        ..Parts::LOOP
    };

    fn add(&mut self, more: Parts) {
        self.count = self.count.saturating_add(more.count);
        self.has_strings |= more.has_strings;
    }
}

/// The types that were looked at: they may name each other many times.
#[derive(Default)]
struct Known(HashMap<ComponentDefinedTypeId, Parts>);

impl Known {
    fn function(&mut self, types: TypesRef<'_>, function: &CanonicalFunction) -> Parts {
        let ty: ComponentFuncTypeId = match *function {
            CanonicalFunction::Lift { type_index, .. } => {
                match types.component_any_type_at(type_index) {
                    ComponentAnyTypeId::Func(ty) => ty,
                    // Not valid.
                    _ => return Parts::default(),
                }
            }
            CanonicalFunction::Lower { func_index, .. } => types.component_function_at(func_index),
            _ => return Parts::default(),
        };
        let ty = &types[ty];
        let mut parts = Parts::ONE;
        for (_, param) in &ty.params {
            parts.add(self.value(types, *param));
        }
        if let Some(result) = ty.result {
            parts.add(self.value(types, result));
        }
        parts
    }

    /// As deep as types may be inside each other, which validation limits to 100.
    fn value(&mut self, types: TypesRef<'_>, ty: ComponentValType) -> Parts {
        let id = match ty {
            ComponentValType::Primitive(ty) => return primitive(ty),
            ComponentValType::Type(id) => id,
        };
        if let Some(parts) = self.0.get(&id) {
            return *parts;
        }
        let mut parts = Parts::ONE;
        match &types[id] {
            ComponentDefinedType::Primitive(ty) => parts = primitive(*ty),
            ComponentDefinedType::Record(record) => {
                for ty in record.fields.values() {
                    parts.add(self.value(types, *ty));
                }
            }
            ComponentDefinedType::Variant(variant) => {
                for case in variant.cases.values() {
                    parts.add(Parts::ONE);
                    if let Some(ty) = case.ty {
                        parts.add(self.value(types, ty));
                    }
                }
            }
            ComponentDefinedType::Tuple(tuple) => {
                for ty in &tuple.types {
                    parts.add(self.value(types, *ty));
                }
            }
            ComponentDefinedType::Flags(names) => parts.count += names.len() as u64 / 32,
            ComponentDefinedType::Enum(names) => parts.count += names.len() as u64,
            ComponentDefinedType::List { element, .. } => {
                parts = Parts::LOOP;
                parts.add(self.value(types, *element));
            }
            ComponentDefinedType::FixedLengthList {
                element, length, ..
            } => {
                let mut all = self.value(types, *element);
                all.count = all.count.saturating_mul((*length).into());
                parts.add(all);
            }
            ComponentDefinedType::Map { key, value, .. } => {
                parts = Parts::LOOP;
                parts.add(self.value(types, *key));
                parts.add(self.value(types, *value));
            }
            ComponentDefinedType::Option { ty, .. } => parts.add(self.value(types, *ty)),
            ComponentDefinedType::Result { ok, err, .. } => {
                for ty in [ok, err].into_iter().flatten() {
                    parts.add(self.value(types, *ty));
                }
            }
            ComponentDefinedType::Own(_) | ComponentDefinedType::Borrow(_) => {}
            ComponentDefinedType::Future { ty, .. } | ComponentDefinedType::Stream { ty, .. } => {
                if let Some(ty) = ty {
                    parts.add(self.value(types, *ty));
                }
            }
        }
        self.0.insert(id, parts);
        parts
    }
}

fn primitive(ty: PrimitiveValType) -> Parts {
    match ty {
        PrimitiveValType::String => Parts::STRING,
        _ => Parts::ONE,
    }
}

/// The limit on a request to a `realloc` for strings.
#[derive(Clone, Copy)]
struct Cap {
    /// The largest alignment that strings have, in bytes.
    align: u32,
    /// In bytes.
    most: u64,
}

impl Cap {
    /// The module that bounds a `realloc`: imports it and exports another one.
    fn module(self) -> Module {
        let mut types = TypeSection::new();
        types.ty().function([ValType::I32; 4], [ValType::I32]);
        let mut imports = ImportSection::new();
        imports.import("", REALLOC, EntityType::Function(0));
        let mut functions = FunctionSection::new();
        functions.function(0);
        let mut exports = ExportSection::new();
        exports.export(REALLOC, ExportKind::Func, 1);
        let mut function = Function::new([]);
        for instruction in [
            Instruction::LocalGet(2),
            Instruction::I32Const(self.align as i32),
            Instruction::I32LeU,
            Instruction::LocalGet(3),
            Instruction::I32Const(self.most as i32),
            Instruction::I32GtU,
            Instruction::I32And,
            Instruction::If(wasm_encoder::BlockType::Empty),
            Instruction::Unreachable,
            Instruction::End,
            Instruction::LocalGet(0),
            Instruction::LocalGet(1),
            Instruction::LocalGet(2),
            Instruction::LocalGet(3),
            Instruction::Call(0),
            Instruction::End,
        ] {
            function.instruction(&instruction);
        }
        let mut code = CodeSection::new();
        code.function(&function);
        // A backtrace says what has trapped.
        let mut function_names = NameMap::new();
        function_names.append(
            1,
            &format!(
                "a string between components has more than {} bytes",
                self.most
            ),
        );
        let mut names = NameSection::new();
        names.module("leasehold");
        names.functions(&function_names);
        let mut module = Module::new();
        module
            .section(&types)
            .section(&imports)
            .section(&functions)
            .section(&exports)
            .section(&code)
            .section(&names);
        module
    }
}

/// The name by which a `realloc` is passed.
const REALLOC: &str = "realloc";

/// An index space of a component, in which items are inserted.
#[derive(Default)]
struct Space {
    /// Items of the binary so far.
    seen: u32,
    /// Before which items of the binary one was inserted, in order.
    inserted: Vec<u32>,
}

impl Space {
    /// The new index of an item of the binary.
    fn moved(&self, index: u32) -> u32 {
        index + self.inserted.partition_point(|before| *before <= index) as u32
    }

    /// The index of an item that is inserted here.
    fn insert(&mut self) -> u32 {
        let index = self.seen + self.inserted.len() as u32;
        self.inserted.push(self.seen);
        index
    }
}

/// A component or a type, and what was inserted in it.
#[derive(Default)]
struct Level {
    modules: Space,
    instances: Space,
    functions: Space,
    /// The module that bounds, if there is one by now.
    module: Option<u32>,
    /// The first alias of each function of a core instance.
    aliases: HashMap<(u32, String), u32>,
    /// Further aliases of a function, and the first.
    again: HashMap<u32, u32>,
    /// The bounded function of each `realloc`, by its index in the binary.
    bounded: HashMap<u32, u32>,
}

impl Level {
    /// Records the next core function of the binary, an alias.
    fn alias(&mut self, instance: u32, name: &str) {
        let next = self.functions.seen;
        let first = self.aliases.entry((instance, name.to_owned()));
        let first = *first.or_insert(next);
        if first != next {
            self.again.insert(next, first);
        }
        self.functions.seen += 1;
    }

    /// A core function of the binary, by the same number whatever alias it is.
    fn origin(&self, function: u32) -> u32 {
        self.again.get(&function).copied().unwrap_or(function)
    }
}

struct Rewriter {
    /// For the canonical functions that follow.
    has_strings: std::collections::VecDeque<bool>,
    cap: Cap,
    /// The component that is being rewritten, and those around it, the innermost last.
    levels: Vec<Level>,
    /// The bounded `realloc` of the function that is being encoded.
    replaced: Option<u32>,
}

impl Rewriter {
    fn level(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    /// Records the items that a section defines. Their indices change nowhere inside of a section.
    fn note(&mut self, payload: &Payload<'_>) -> Result<(), Error<Infallible>> {
        let level = self.level();
        match payload {
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    let is_module = matches!(import?.ty, ComponentTypeRef::Module(_));
                    level.modules.seen += u32::from(is_module);
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let is_module = export?.kind == ComponentExternalKind::Module;
                    level.modules.seen += u32::from(is_module);
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    match alias? {
                        ComponentAlias::InstanceExport {
                            kind: ComponentExternalKind::Module,
                            ..
                        }
                        | ComponentAlias::Outer {
                            kind: ComponentOuterAliasKind::CoreModule,
                            ..
                        } => level.modules.seen += 1,
                        ComponentAlias::CoreInstanceExport {
                            kind: wasmparser::ExternalKind::Func,
                            instance_index,
                            name,
                        } => level.alias(instance_index, name),
                        _ => {}
                    }
                }
            }
            Payload::InstanceSection(section) => level.instances.seen += section.count(),
            _ => {}
        }
        Ok(())
    }

    /// The bounded function of a `realloc`, which is made if there is none yet.
    fn bound(&mut self, component: &mut Component, realloc: u32) -> u32 {
        let cap = self.cap;
        let level = self.level();
        if let Some(bounded) = level.bounded.get(&realloc) {
            return *bounded;
        }
        let module = match level.module {
            Some(module) => module,
            None => {
                component.section(&ModuleSection(&cap.module()));
                let module = level.modules.insert();
                level.module = Some(module);
                module
            }
        };
        let mut instances = InstanceSection::new();
        let given = level.instances.insert();
        let function = level.functions.moved(realloc);
        instances.export_items([(REALLOC, ExportKind::Func, function)]);
        let instance = level.instances.insert();
        instances.instantiate(module, [("", ModuleArg::Instance(given))]);
        component.section(&instances);
        let mut aliases = ComponentAliasSection::new();
        aliases.alias(Alias::CoreInstanceExport {
            instance,
            kind: ExportKind::Func,
            name: REALLOC,
        });
        component.section(&aliases);
        let bounded = level.functions.insert();
        level.bounded.insert(realloc, bounded);
        bounded
    }

    fn canonical_functions(
        &mut self,
        component: &mut Component,
        section: wasmparser::ComponentCanonicalSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        let mut encoded = CanonicalFunctionSection::new();
        for function in section {
            let function = function?;
            let has_strings = self.has_strings.pop_front().unwrap_or(false);
            self.replaced = None;
            if let (true, Some(realloc)) = (has_strings, realloc_of(&function)) {
                let realloc = self.level().origin(realloc);
                if !self.level().bounded.contains_key(&realloc) && !encoded.is_empty() {
                    component.section(&encoded);
                    encoded = CanonicalFunctionSection::new();
                }
                self.replaced = Some(self.bound(component, realloc));
            }
            let is_lifted = matches!(function, CanonicalFunction::Lift { .. });
            utils::parse_component_canonical(self, &mut encoded, function)?;
            // A lifted function is no core function.
            self.level().functions.seen += u32::from(!is_lifted);
        }
        self.replaced = None;
        if !encoded.is_empty() {
            component.section(&encoded);
        }
        Ok(())
    }
}

/// The `realloc` with which a function is lifted or lowered.
fn realloc_of(function: &CanonicalFunction) -> Option<u32> {
    let (CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. }) =
        function
    else {
        return None;
    };
    options.iter().find_map(|option| match option {
        wasmparser::CanonicalOption::Realloc(realloc) => Some(*realloc),
        _ => None,
    })
}

impl Reencode for Rewriter {
    type Error = Infallible;

    fn function_index(&mut self, function: u32) -> Result<u32, Error<Infallible>> {
        Ok(self.level().functions.moved(function))
    }
}

impl ReencodeComponent for Rewriter {
    fn module_index(&mut self, module: u32) -> u32 {
        self.level().modules.moved(module)
    }

    fn outer_module_index(&mut self, count: u32, module: u32) -> u32 {
        let at = self.levels.len().checked_sub(1 + count as usize);
        at.map_or(module, |at| self.levels[at].modules.moved(module))
    }

    fn instance_index(&mut self, instance: u32) -> u32 {
        self.level().instances.moved(instance)
    }

    fn push_depth(&mut self) {
        self.levels.push(Level::default());
    }

    fn pop_depth(&mut self) {
        self.levels.pop();
    }

    fn canonical_option(
        &mut self,
        option: wasmparser::CanonicalOption,
    ) -> Result<CanonicalOption, Error<Infallible>> {
        match (option, self.replaced) {
            (wasmparser::CanonicalOption::Realloc(_), Some(bounded)) => {
                Ok(CanonicalOption::Realloc(bounded))
            }
            _ => utils::canonical_option(self, option),
        }
    }

    fn parse_component_payload(
        &mut self,
        component: &mut Component,
        payload: Payload<'_>,
        whole_component: &[u8],
    ) -> Result<(), Error<Infallible>> {
        self.note(&payload)?;
        match payload {
            Payload::ComponentCanonicalSection(section) => {
                self.canonical_functions(component, section)
            }
            payload => utils::parse_component_payload(self, component, payload, whole_component),
        }
    }

    fn parse_component_submodule(
        &mut self,
        component: &mut Component,
        _: Parser,
        data: &[u8],
    ) -> Result<(), Error<Infallible>> {
        let id = MODULE_SECTION;
        component.section(&RawSection { id, data });
        self.level().modules.seen += 1;
        Ok(())
    }

    fn parse_component_custom_section(
        &mut self,
        _: &mut Component,
        _: wasmparser::CustomSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        Ok(())
    }
}
