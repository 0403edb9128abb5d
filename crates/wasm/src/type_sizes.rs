//! Sizes of component types when each is counted as often as it is referred to.
//!
//! A component of 2 KB can have an instance that holds another one twice, which holds a third one twice, and so on: written
//! out, it has 2¹⁸ parts. The validator and the engine walk a type as a whole wherever it is used, and copy what
//! instances hold. So the parts of each item of a component are counted here, without writing it out, and a use costs as
//! many. An item's size is known from those that it refers to, so that this takes a step for each reference in the file.
//!
//! 1. *A use is a place where the validator or the engine walks an item*: where it is defined, imported, exported,
//!    aliased, bundled, passed, lifted or lowered, and where a component is instantiated.
//! 2. *Instantiating a component repeats all uses inside of it*, with what it is given in place of what it imports. An
//!    argument may hold more than the component asks for.
//! 3. *A component holds what it takes from outside* by aliases, wherever it goes.
//! 4. *The bytes need not be valid.* An item that does not exist has one part.

use std::collections::HashMap;
use std::rc::Rc;

use wasmparser::{
    BinaryReader, CanonicalFunction, ComponentAlias, ComponentDefinedType, ComponentExport,
    ComponentExternalKind, ComponentFuncType, ComponentImport, ComponentInstance,
    ComponentInstantiationArg, ComponentOuterAliasKind, ComponentType, ComponentTypeRef,
    ComponentValType, CoreType, Encoding, Instance, ModuleTypeDeclaration, Payload, TypeBounds,
};

use crate::error::ProgramError;

/// The first byte of a component type, and of an instance type.
const COMPONENT_TYPE: u8 = 0x41;
const INSTANCE_TYPE: u8 = 0x42;

/// What is counted, each as often as it is referred to. All sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// Types, fields, cases, parameters, imports and exports.
    parts: u64,
    /// Resources that are exported or imported.
    resources: u64,
    /// Arguments of the component in which it is: they may be larger than what the component asks for.
    arguments: u64,
    /// How deep its parts are inside each other. The validator panics above 127 levels, and recurses.
    depth: u64,
}

impl Size {
    const ONE: Size = Size::of(1);

    const RESOURCE: Size = Size {
        parts: 1,
        resources: 1,
        arguments: 0,
        depth: 1,
    };

    const fn of(parts: u64) -> Size {
        Size {
            parts,
            resources: 0,
            arguments: 0,
            depth: 1,
        }
    }

    /// Adds a name.
    fn add_one(&mut self) {
        self.parts = self.parts.saturating_add(1);
    }

    fn add(&mut self, more: Size) {
        self.parts = self.parts.saturating_add(more.parts);
        self.resources = self.resources.saturating_add(more.resources);
        self.arguments = self.arguments.saturating_add(more.arguments);
        self.depth = self.depth.max(more.depth.saturating_add(1));
    }

    fn times(self, factor: u64) -> Size {
        Size {
            parts: self.parts.saturating_mul(factor),
            resources: self.resources.saturating_mul(factor),
            arguments: self.arguments.saturating_mul(factor),
            depth: self.depth,
        }
    }

    /// Something of a component, with arguments that are larger by so much than what it asks for.
    fn with_arguments(self, excess: Size) -> Size {
        let mut all = Size {
            arguments: 0,
            ..self
        };
        all.add(excess.times(self.arguments));
        all.depth = match self.arguments {
            0 => self.depth,
            _ => self.depth.saturating_add(excess.depth),
        };
        all
    }
}

/// Uses of items.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// The sum of their sizes.
    size: Size,
    /// The sum of resources times parts of each: the engine looks each resource up in a copy of what has it.
    lookups: u64,
    /// The sums of arguments times parts, times resources, and times arguments, by which lookups grow with arguments.
    argument_parts: u64,
    argument_resources: u64,
    argument_squares: u64,
}

impl Used {
    fn once(size: Size) -> Self {
        let Size {
            parts,
            resources,
            arguments,
            ..
        } = size;
        Used {
            size,
            lookups: resources.saturating_mul(parts),
            argument_parts: arguments.saturating_mul(parts),
            argument_resources: arguments.saturating_mul(resources),
            argument_squares: arguments.saturating_mul(arguments),
        }
    }

    fn add(&mut self, more: Used) {
        self.size.add(more.size);
        for (sum, more) in [
            (&mut self.lookups, more.lookups),
            (&mut self.argument_parts, more.argument_parts),
            (&mut self.argument_resources, more.argument_resources),
            (&mut self.argument_squares, more.argument_squares),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// The same in a component that is given arguments which are larger by so much than what it asks for.
    fn with_arguments(self, excess: Size) -> Used {
        let squares = |factor: u64| self.argument_squares.saturating_mul(factor);
        let of_parts = self.argument_parts.saturating_add(squares(excess.parts));
        let of_resources = self
            .argument_resources
            .saturating_add(squares(excess.resources));
        let again = excess.arguments;
        Used {
            size: self.size.with_arguments(excess),
            lookups: self
                .lookups
                .saturating_add(self.argument_resources.saturating_mul(excess.parts))
                .saturating_add(of_parts.saturating_mul(excess.resources)),
            argument_parts: of_parts.saturating_mul(again),
            argument_resources: of_resources.saturating_mul(again),
            argument_squares: squares(again.saturating_mul(again)),
        }
    }
}

/// An item of an index space.
#[derive(Clone, Default)]
struct Item<'a> {
    size: Size,
    /// Of an instance, a component, or the type of one.
    shape: Option<Rc<Shape<'a>>>,
    /// Whether an argument may be in its place that has more.
    is_argument: bool,
}

impl Item<'_> {
    fn of(size: Size) -> Self {
        Item {
            size,
            ..Item::default()
        }
    }
}

/// What an instance or a component has.
#[derive(Default)]
struct Shape<'a> {
    exports: HashMap<&'a str, Item<'a>>,
    /// The sizes of a component's imports.
    imports: HashMap<&'a str, Size>,
    /// All uses inside of a component.
    uses: Used,
}

/// The index spaces of a component or of a type that is being read.
#[derive(Default)]
struct Frame<'a> {
    types: Vec<Item<'a>>,
    core_types: Vec<Item<'a>>,
    functions: Vec<Item<'a>>,
    instances: Vec<Item<'a>>,
    components: Vec<Item<'a>>,
    modules: Vec<Item<'a>>,
    shape: Shape<'a>,
    /// Its imports and exports, and what it takes from outside.
    size: Size,
}

impl<'a> Frame<'a> {
    fn space(&mut self, kind: ComponentExternalKind) -> Option<&mut Vec<Item<'a>>> {
        match kind {
            ComponentExternalKind::Module => Some(&mut self.modules),
            ComponentExternalKind::Func => Some(&mut self.functions),
            ComponentExternalKind::Type => Some(&mut self.types),
            ComponentExternalKind::Instance => Some(&mut self.instances),
            ComponentExternalKind::Component => Some(&mut self.components),
            // Not offered.
            ComponentExternalKind::Value => None,
        }
    }

    fn item(&mut self, kind: ComponentExternalKind, index: u32) -> Item<'a> {
        self.space(kind)
            .map_or(Item::of(Size::ONE), |space| at(space, index))
    }

    fn push(&mut self, kind: ComponentExternalKind, item: Item<'a>) {
        if let Some(space) = self.space(kind) {
            space.push(item);
        }
    }

    fn value(&self, ty: ComponentValType) -> Size {
        match ty {
            ComponentValType::Primitive(_) => Size::ONE,
            ComponentValType::Type(index) => without_resources(at(&self.types, index).size),
        }
    }

    fn values(&self, types: impl IntoIterator<Item = Option<ComponentValType>>) -> Size {
        let mut all = Size::ONE;
        for ty in types {
            all.add(ty.map_or(Size::ONE, |ty| self.value(ty)));
        }
        all
    }

    fn defined(&self, ty: &ComponentDefinedType<'_>) -> Size {
        use ComponentDefinedType as D;
        match ty {
            D::Primitive(_) | D::Own(_) | D::Borrow(_) => Size::ONE,
            D::Record(fields) => self.values(fields.iter().map(|(_, ty)| Some(*ty))),
            D::Variant(cases) => self.values(cases.iter().map(|case| case.ty)),
            D::Tuple(types) => self.values(types.iter().map(|ty| Some(*ty))),
            D::Flags(names) | D::Enum(names) => Size::of(1 + names.len() as u64),
            D::List(ty) | D::FixedLengthList(ty, _) | D::Option(ty) => self.values([Some(*ty)]),
            D::Map(key, value) => self.values([Some(*key), Some(*value)]),
            D::Result { ok, err } => self.values([*ok, *err]),
            D::Future(ty) | D::Stream(ty) => self.values([*ty]),
        }
    }

    fn function(&self, ty: &ComponentFuncType<'_>) -> Size {
        let params = ty.params.iter().map(|(_, ty)| Some(*ty));
        self.values(params.chain([ty.result]))
    }

    /// The item that an import, or an export of a type, declares.
    fn declared(&self, ty: ComponentTypeRef) -> Item<'a> {
        match ty {
            ComponentTypeRef::Module(index) => at(&self.core_types, index),
            ComponentTypeRef::Value(ty) => Item::of(self.value(ty)),
            ComponentTypeRef::Type(TypeBounds::SubResource) => Item::of(Size::RESOURCE),
            ComponentTypeRef::Func(index)
            | ComponentTypeRef::Type(TypeBounds::Eq(index))
            | ComponentTypeRef::Instance(index)
            | ComponentTypeRef::Component(index) => at(&self.types, index),
        }
    }

    fn export(&mut self, name: &'a str, item: Item<'a>) {
        self.size.add_one();
        self.size.add(item.size);
        self.shape.exports.insert(name, item);
    }

    /// Adds an import, and returns its size.
    fn import(&mut self, import: &ComponentImport<'a>) -> Size {
        let mut item = self.declared(import.ty);
        let size = item.size;
        self.size.add_one();
        self.size.add(size);
        self.shape.imports.insert(import.name.name, size);
        item.size.arguments = 1;
        item.is_argument = true;
        self.push(import.ty.kind(), item);
        size
    }

    fn finish(self) -> Item<'a> {
        let mut size = self.size;
        size.add_one();
        size.depth = size.depth.max(1);
        // What it is given is counted where it is instantiated.
        size.arguments = 0;
        Item {
            size,
            shape: Some(Rc::new(self.shape)),
            is_argument: false,
        }
    }

    /// An instance of these exports.
    fn bundle(&mut self, exports: &[ComponentExport<'a>]) -> Item<'a> {
        let (mut size, mut shape) = (Size::ONE, Shape::default());
        for export in exports {
            let item = self.item(export.kind, export.index);
            size.add_one();
            size.add(item.size);
            shape.exports.insert(export.name.name, item);
        }
        Item {
            size,
            shape: Some(Rc::new(shape)),
            is_argument: false,
        }
    }

    /// An instance of a component, and what making it uses.
    fn instantiate(
        &mut self,
        component: u32,
        args: &[ComponentInstantiationArg<'a>],
    ) -> (Item<'a>, Used) {
        let component = at(&self.components, component);
        let mut passed = component.size;
        let no_shape = Shape::default();
        let shape = component.shape.as_deref().unwrap_or(&no_shape);
        // By how much the largest argument exceeds its import.
        let mut excess = Size::default();
        for arg in args {
            let given = self.item(arg.kind, arg.index).size;
            passed.add(given);
            let wanted = shape.imports.get(arg.name).copied().unwrap_or_default();
            excess = Size {
                parts: excess.parts.max(given.parts.saturating_sub(wanted.parts)),
                resources: excess
                    .resources
                    .max(given.resources.saturating_sub(wanted.resources)),
                arguments: excess.arguments.max(given.arguments),
                depth: excess.depth.max(given.depth),
            };
        }
        let mut used = shape.uses.with_arguments(excess);
        used.add(Used::once(passed));
        let mut size = Size::ONE;
        let exports = shape.exports.iter().map(|(name, item)| {
            let mut item = item.clone();
            item.size = item.size.with_arguments(excess);
            item.is_argument = item.size.arguments > 0;
            size.add_one();
            size.add(item.size);
            (*name, item)
        });
        let shape = Shape {
            exports: exports.collect(),
            ..Shape::default()
        };
        let instance = Item {
            size,
            shape: Some(Rc::new(shape)),
            is_argument: false,
        };
        (instance, used)
    }

    /// The export of an instance.
    fn export_of(&self, instance: u32, name: &str) -> Item<'a> {
        let instance = at(&self.instances, instance);
        let shape = instance.shape.as_ref();
        let found = shape.and_then(|shape| shape.exports.get(name)).cloned();
        let mut item = found.unwrap_or_else(|| Item::of(Size::ONE));
        if instance.is_argument {
            item.is_argument = true;
            item.size.arguments = item.size.arguments.max(1);
        }
        item
    }
}

/// A value refers to a resource that something else exports.
fn without_resources(size: Size) -> Size {
    Size {
        resources: 0,
        ..size
    }
}

fn at<'a>(space: &[Item<'a>], index: u32) -> Item<'a> {
    let item = space.get(index as usize).cloned();
    item.unwrap_or_else(|| Item::of(Size::ONE))
}

/// Takes note of uses, and fails when they are too many.
pub(crate) trait Uses {
    /// Counts the parts of what is used, and resources times parts.
    ///
    /// # Errors
    /// The limit that is exceeded.
    fn count(&mut self, parts: u64, lookups: u64) -> Result<(), ProgramError>;

    /// Records how deep a type is, or is inside of others.
    ///
    /// # Errors
    /// The limit that is exceeded.
    fn count_depth(&mut self, depth: u64) -> Result<(), ProgramError>;
}

/// Follows the sections of a program.
#[derive(Default)]
pub(crate) struct TypeSizes<'a> {
    /// The component that is being read, and those around it, the innermost last; types that are being read, too.
    frames: Vec<Frame<'a>>,
    /// Imports and exports of the core module that is being read.
    module: Option<u64>,
}

impl<'a> TypeSizes<'a> {
    /// Follows the next part of the binary.
    ///
    /// # Errors
    /// Those of `uses`, and the parser's.
    pub(crate) fn follow(
        &mut self,
        binary: &'a [u8],
        payload: &Payload<'a>,
        uses: &mut impl Uses,
    ) -> Result<(), ProgramError> {
        match payload {
            Payload::Version { encoding, .. } => match encoding {
                Encoding::Module => self.module = Some(1),
                Encoding::Component => self.frames.push(Frame::default()),
            },
            Payload::End(_) => return self.end(uses),
            Payload::ImportSection(section) => self.add_to_module(section.count()),
            Payload::ExportSection(section) => self.add_to_module(section.count()),
            Payload::CoreTypeSection(section) => {
                for ty in section.clone() {
                    let item = Item::of(core_type(&ty?));
                    self.used(item.size, uses)?;
                    self.frame().core_types.push(item);
                }
            }
            Payload::ComponentTypeSection(section) => {
                let range = section.range();
                let mut reader = BinaryReader::new(&binary[range.clone()], range.start);
                for _ in 0..reader.read_var_u32()? {
                    self.ty(&mut reader, 1, uses)?;
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    let size = self.frame().import(&import?);
                    self.used(size, uses)?;
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export?;
                    let frame = self.frame();
                    let item = frame.item(export.kind, export.index);
                    let mut size = item.size;
                    if let Some(ty) = export.ty {
                        size.add(frame.declared(ty).size);
                    }
                    frame.export(export.name.name, item.clone());
                    frame.push(export.kind, item);
                    self.used(size, uses)?;
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    let frame = self.frame();
                    let (item, repeated) = match instance? {
                        ComponentInstance::Instantiate {
                            component_index,
                            args,
                        } => frame.instantiate(component_index, &args),
                        ComponentInstance::FromExports(exports) => {
                            (frame.bundle(&exports), Used::default())
                        }
                    };
                    self.used(item.size, uses)?;
                    self.add(repeated, uses)?;
                    self.frame().instances.push(item);
                }
            }
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        let size = at(&self.frame().modules, module_index).size;
                        self.used(size, uses)?;
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    self.alias(&alias?, uses)?;
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section.clone() {
                    let frame = self.frame();
                    let size = match function? {
                        CanonicalFunction::Lift { type_index, .. } => {
                            let item = at(&frame.types, type_index);
                            frame.functions.push(item.clone());
                            item.size
                        }
                        CanonicalFunction::Lower { func_index, .. } => {
                            at(&frame.functions, func_index).size
                        }
                        _ => Size::ONE,
                    };
                    self.used(size, uses)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn frame(&mut self) -> &mut Frame<'a> {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Counts a use in the innermost component.
    fn used(&mut self, size: Size, uses: &mut impl Uses) -> Result<(), ProgramError> {
        uses.count_depth(size.depth)?;
        self.add(Used::once(size), uses)
    }

    fn add(&mut self, used: Used, uses: &mut impl Uses) -> Result<(), ProgramError> {
        self.frame().shape.uses.add(used);
        uses.count(used.size.parts, used.lookups)
    }

    fn add_to_module(&mut self, count: u32) {
        if let Some(module) = &mut self.module {
            *module += u64::from(count);
        }
    }

    /// Ends a module or a component, which the one around it then has.
    fn end(&mut self, uses: &mut impl Uses) -> Result<(), ProgramError> {
        let (kind, item) = match self.module.take() {
            Some(size) => (ComponentExternalKind::Module, Item::of(Size::of(size))),
            None => {
                let frame = self.frames.pop().unwrap_or_default();
                (ComponentExternalKind::Component, frame.finish())
            }
        };
        if self.frames.is_empty() {
            return Ok(());
        }
        let size = item.size;
        self.frame().push(kind, item);
        self.used(size, uses)
    }

    fn alias(
        &mut self,
        alias: &ComponentAlias<'a>,
        uses: &mut impl Uses,
    ) -> Result<(), ProgramError> {
        let (kind, item) = match *alias {
            ComponentAlias::InstanceExport {
                kind,
                instance_index,
                name,
            } => (kind, self.frame().export_of(instance_index, name)),
            // No type is walked.
            ComponentAlias::CoreInstanceExport { .. } => return Ok(()),
            ComponentAlias::Outer { kind, count, index } => {
                let mut item = self.outer(kind, count as usize, index);
                // Arguments of the component around it: they have the size that it asks for, there.
                item.is_argument = false;
                item.size.arguments = 0;
                if kind == ComponentOuterAliasKind::CoreType {
                    self.used(item.size, uses)?;
                    self.frame().core_types.push(item);
                    return Ok(());
                }
                let kind = match kind {
                    ComponentOuterAliasKind::CoreModule => ComponentExternalKind::Module,
                    ComponentOuterAliasKind::Component => ComponentExternalKind::Component,
                    _ => ComponentExternalKind::Type,
                };
                if kind != ComponentExternalKind::Type {
                    // Each component in between holds it, too.
                    let held = self.frames.len().saturating_sub(count as usize);
                    for frame in self.frames.iter_mut().skip(held) {
                        frame.size.add(item.size);
                    }
                }
                (kind, item)
            }
        };
        let size = item.size;
        self.frame().push(kind, item);
        self.used(size, uses)
    }

    /// An item of the component so many levels outwards.
    fn outer(&mut self, kind: ComponentOuterAliasKind, count: usize, index: u32) -> Item<'a> {
        let depth = self.frames.len().checked_sub(1 + count);
        let Some(frame) = depth.and_then(|at| self.frames.get(at)) else {
            return Item::of(Size::ONE);
        };
        let space = match kind {
            ComponentOuterAliasKind::CoreModule => &frame.modules,
            ComponentOuterAliasKind::CoreType => &frame.core_types,
            ComponentOuterAliasKind::Type => &frame.types,
            ComponentOuterAliasKind::Component => &frame.components,
        };
        at(space, index)
    }

    /// Reads a type, and adds it. Types are inside each other as deep as `uses` allows: the parser's own
    /// reader has no limit.
    fn ty(
        &mut self,
        reader: &mut BinaryReader<'a>,
        depth: u64,
        uses: &mut impl Uses,
    ) -> Result<(), ProgramError> {
        let first = reader.clone().read_u8()?;
        let item = match first {
            COMPONENT_TYPE | INSTANCE_TYPE => {
                uses.count_depth(depth)?;
                reader.read_u8()?;
                self.frames.push(Frame::default());
                for _ in 0..reader.read_var_u32()? {
                    self.declaration(reader, depth, uses)?;
                }
                self.frames.pop().unwrap_or_default().finish()
            }
            _ => Item::of(match reader.read::<ComponentType<'a>>()? {
                ComponentType::Defined(ty) => self.frame().defined(&ty),
                ComponentType::Func(ty) => self.frame().function(&ty),
                ComponentType::Resource { .. } => Size::RESOURCE,
                // Read above.
                ComponentType::Component(_) | ComponentType::Instance(_) => Size::ONE,
            }),
        };
        let size = item.size;
        self.frame().types.push(item);
        self.used(size, uses)
    }

    /// Reads what a component or instance type declares.
    fn declaration(
        &mut self,
        reader: &mut BinaryReader<'a>,
        depth: u64,
        uses: &mut impl Uses,
    ) -> Result<(), ProgramError> {
        match reader.read_u8()? {
            0x00 => {
                let item = Item::of(core_type(&reader.read::<CoreType<'a>>()?));
                self.used(item.size, uses)?;
                self.frame().core_types.push(item);
                Ok(())
            }
            0x01 => self.ty(reader, depth + 1, uses),
            0x02 => {
                let alias = reader.read::<ComponentAlias<'a>>()?;
                self.alias(&alias, uses)
            }
            0x03 => {
                let import = reader.read::<ComponentImport<'a>>()?;
                let size = self.frame().import(&import);
                self.used(size, uses)
            }
            0x04 => {
                // A declared export reads as an import does.
                let export = reader.read::<ComponentImport<'a>>()?;
                let frame = self.frame();
                let item = frame.declared(export.ty);
                let size = item.size;
                frame.export(export.name.name, item.clone());
                frame.push(export.ty.kind(), item);
                self.used(size, uses)
            }
            first => Err(ProgramError::Corrupt {
                offset: reader.original_position() as u64 - 1,
                message: format!("invalid leading byte (0x{first:x}) for a declaration of a type"),
            }),
        }
    }
}

fn core_type(ty: &CoreType<'_>) -> Size {
    match ty {
        CoreType::Rec(_) => Size::ONE,
        CoreType::Module(declarations) => {
            let is_item = |it: &&ModuleTypeDeclaration<'_>| {
                matches!(
                    it,
                    ModuleTypeDeclaration::Export { .. } | ModuleTypeDeclaration::Import(_)
                )
            };
            Size::of(1 + declarations.iter().filter(is_item).count() as u64)
        }
    }
}
