//! The resources that a program takes before its first instruction, counted from its bytes.
//!
//! A lease is charged before anything is allocated, so the cell must know what instantiating a
//! program will allocate *without* instantiating it. A component makes this a question: it can
//! instantiate a nested component many times, which does the same in its turn, so that a file of
//! a few kilobytes can describe 10³⁰ instances. All sums here saturate, and the walk visits each
//! section once, however often it would be instantiated.

use std::collections::HashSet;

use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind, ComponentInstance,
    ComponentOuterAliasKind, ComponentType, ComponentTypeRef, DataKind, Element, ElementItems,
    ElementKind, Encoding, ExternalKind, Instance, Operator, Payload, TypeBounds, TypeRef, ValType,
};

use crate::declared::declared;
use crate::error::ProgramError;
use crate::limits::WASM_PAGE;

/// Engine memory per function, global and passive element of an instance: upper bounds of what
/// wasmtime 48 lays out in an instance (`VMFuncRef`, `VMFunctionImport`, `VMGlobalDefinition`,
/// `ValRaw`), and a fixed part for the instance itself.
const INSTANCE_BYTES: u64 = 1024;
const FUNCTION_BYTES: u64 = 64;
const GLOBAL_BYTES: u64 = 32;
const ELEMENT_BYTES: u64 = 16;

/// Elements of the shortest table that the heap has mapped by itself: 128 KiB, of 8 bytes an element at the most.
const SHORT_TABLE: u64 = (128 << 10) / 8;

/// Engine memory of an instance of a component: its handles, with none in them.
const COMPONENT_BYTES: u64 = 512;

/// Engine memory of an instance for a type of resources: its destructor, and the type in a list that doubles.
const RESOURCE_TYPE_BYTES: u64 = 128;

/// Engine memory of an instance for a canonical function: upper bounds of its `VMFuncRef` and its `VMLowering`, and of a place
/// for each of its options.
const CANONICAL_BYTES: u64 = 128;

/// The most imports of an adapter that others beside it do not have: the function that it calls,
/// what is called afterwards, and a `realloc` of either side.
const ADAPTER_IMPORTS: u64 = 4;

/// The imports that an instance of adapters has once: flags and memories of the components,
/// functions of the engine for strings and handles.
const ADAPTERS_IMPORTS: u64 = 24;

/// The resources that one run of a program takes before its first instruction.
///
/// Sums are over all core instances that instantiation makes, nested components included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Core module instances.
    pub instances: u64,
    /// Upper bound of the engine's own memory for these instances, in bytes.
    pub instance_bytes: u64,
    /// Linear memories: each takes a slot of the cell's pool.
    pub memories: u64,
    /// Heaps for exceptions, empty at first, which take what linear memories take: one if a module has tags, or
    /// keeps references that are none to functions, even if it never throws.
    pub heaps: u64,
    /// Initial size of all linear memories together, in bytes.
    pub memory_bytes: u64,
    /// Tables.
    pub tables: u64,
    /// Initial elements of all tables together.
    pub table_elements: u64,
    /// Those of tables that are shorter than 128 KiB: the engine has them in the heap, and fills them in the step that
    /// makes an instance. Longer ones are fresh pages of the system's, and zeros already.
    pub short_table_elements: u64,
    /// Bytes of active data segments, copied in one go when an instance is made.
    pub data_bytes: u64,
    /// Elements of active segments that are copied in one go when an instance is made: those that the
    /// compiler cannot lay out beforehand.
    pub elements: u64,
    /// Elements of passive segments, which the engine evaluates in the same step.
    pub passive_elements: u64,
    /// Globals and tags that are made with the instances, imported ones not counted.
    pub globals: u64,
    /// Segments that the engine looks at when an instance is made, one by one: those of elements, and
    /// passive ones of data.
    pub segments: u64,
    /// Imports of core instances, which the engine hands over one by one.
    pub imports: u64,
    /// Instances of components inside of the program.
    pub components: u64,
    /// Functions that components inside of the program may call of each other.
    pub adapters: u64,
    /// Types of resources that components define: the engine makes each for every instance.
    pub resource_types: u64,
    /// Canonical functions of components.
    pub canonical_functions: u64,
    /// Functions that the options of these name, each of which the engine looks up for every instance.
    pub canonical_options: u64,
}

impl Inventory {
    /// Numbers in an inventory.
    pub(crate) const WORDS: usize = 19;

    /// For a file: the numbers in the order of the fields, least byte first.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [
            self.instances,
            self.instance_bytes,
            self.memories,
            self.heaps,
            self.memory_bytes,
            self.tables,
            self.table_elements,
            self.short_table_elements,
            self.data_bytes,
            self.elements,
            self.passive_elements,
            self.globals,
            self.segments,
            self.imports,
            self.components,
            self.adapters,
            self.resource_types,
            self.canonical_functions,
            self.canonical_options,
        ]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect()
    }

    /// The inverse; `None` if the length is wrong.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Inventory> {
        let (words, []) = bytes.as_chunks::<8>() else {
            return None;
        };
        let words: &[[u8; 8]; Inventory::WORDS] = words.try_into().ok()?;
        let [
            instances,
            instance_bytes,
            memories,
            heaps,
            memory_bytes,
            tables,
            table_elements,
            short_table_elements,
            data_bytes,
            elements,
            passive_elements,
            globals,
            segments,
            imports,
            components,
            adapters,
            resource_types,
            canonical_functions,
            canonical_options,
        ] = words.map(u64::from_le_bytes);
        Some(Inventory {
            instances,
            instance_bytes,
            memories,
            heaps,
            memory_bytes,
            tables,
            table_elements,
            short_table_elements,
            data_bytes,
            elements,
            passive_elements,
            globals,
            segments,
            imports,
            components,
            adapters,
            resource_types,
            canonical_functions,
            canonical_options,
        })
    }

    /// Tables of component-model handles of an execution: the program's own and one for each component inside. What
    /// components lend each other in a call is a list of as many.
    pub fn handle_tables(&self) -> u64 {
        let lends = u64::from(self.adapters > 0);
        self.components.saturating_add(1 + lends)
    }

    /// Counts a function that a component inside of the program may call of another.
    fn add_adapter(&mut self) {
        self.adapters = self.adapters.saturating_add(1);
        self.add_imports(ADAPTER_IMPORTS);
        self.instance_bytes = self.instance_bytes.saturating_add(FUNCTION_BYTES);
    }

    /// Counts a type of resources that a component defines.
    fn add_resource_type(&mut self) {
        self.resource_types = self.resource_types.saturating_add(1);
        self.instance_bytes = self.instance_bytes.saturating_add(RESOURCE_TYPE_BYTES);
    }

    /// Counts a canonical function.
    fn add_canonical_function(&mut self) {
        self.canonical_functions = self.canonical_functions.saturating_add(1);
        self.instance_bytes = self.instance_bytes.saturating_add(CANONICAL_BYTES);
    }

    /// Counts a core instance of adapters.
    fn add_adapter_instance(&mut self) {
        self.instances = self.instances.saturating_add(1);
        self.add_imports(ADAPTERS_IMPORTS);
        self.instance_bytes = self.instance_bytes.saturating_add(INSTANCE_BYTES);
    }

    fn add_imports(&mut self, imports: u64) {
        self.imports = self.imports.saturating_add(imports);
        self.instance_bytes = self.instance_bytes.saturating_add(FUNCTION_BYTES * imports);
    }

    fn add(&mut self, other: &Inventory) {
        self.instances = self.instances.saturating_add(other.instances);
        self.instance_bytes = self.instance_bytes.saturating_add(other.instance_bytes);
        self.memories = self.memories.saturating_add(other.memories);
        self.heaps = self.heaps.saturating_add(other.heaps);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.tables = self.tables.saturating_add(other.tables);
        self.table_elements = self.table_elements.saturating_add(other.table_elements);
        self.short_table_elements = self
            .short_table_elements
            .saturating_add(other.short_table_elements);
        self.data_bytes = self.data_bytes.saturating_add(other.data_bytes);
        self.elements = self.elements.saturating_add(other.elements);
        self.passive_elements = self.passive_elements.saturating_add(other.passive_elements);
        self.globals = self.globals.saturating_add(other.globals);
        self.segments = self.segments.saturating_add(other.segments);
        self.imports = self.imports.saturating_add(other.imports);
        self.components = self.components.saturating_add(other.components);
        self.adapters = self.adapters.saturating_add(other.adapters);
        self.resource_types = self.resource_types.saturating_add(other.resource_types);
        self.canonical_functions = self
            .canonical_functions
            .saturating_add(other.canonical_functions);
        self.canonical_options = self
            .canonical_options
            .saturating_add(other.canonical_options);
    }
}

/// The outside of a program, and what it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    pub(crate) inventory: Inventory,
    /// Bytes of component sections, each counted as often as its component is instantiated; saturates.
    pub(crate) inlined_bytes: u64,
    /// Parts of the types of all adapters; saturates.
    pub(crate) adapted_parts: u64,
    /// The imports of the program: `module::name` of a module, the name of a component's import unless that is a known type.
    pub(crate) imports: Vec<String>,
    /// Names of the exports.
    pub(crate) exports: Vec<String>,
    /// Whether a function throws exceptions.
    pub(crate) throws: bool,
    /// Whether a function waits for other threads or notifies them.
    pub(crate) awaits: bool,
    /// Whether the engine may make a heap for a module.
    has_heap: bool,
    /// Tables that the module imports which is being walked.
    imported_tables: u32,
}

/// An index space entry: `None` is an item whose definition is not in the program.
type Known<T> = Option<T>;

/// A component: what instantiating it takes, and the bytes of sections that the engine then goes through.
#[derive(Clone, Copy)]
struct Instantiated {
    total: Inventory,
    inlined: u64,
    parts: u64,
}

#[derive(Default)]
struct ComponentFrame {
    modules: Vec<Known<Inventory>>,
    components: Vec<Known<Instantiated>>,
    total: Inventory,
    /// Bytes of its own sections, and of those of components that it instantiates.
    inlined: u64,
    /// Parts of the types of its adapters, and of those of components that it instantiates.
    parts: u64,
    /// For each core function, whether it was lowered: such may be adapters.
    lowered: Vec<bool>,
    /// Core functions that options of canonical functions name.
    named: HashSet<u32>,
    /// For each core instance, whether it is a list of exports with a function that was lowered.
    offers_lowered: Vec<bool>,
}

impl ComponentFrame {
    /// Records that something else than a core instance names a core function. If that was lowered,
    /// the engine may make its adapter in an instance of its own.
    fn use_lowered(&mut self, index: u32) {
        if self.lowered.get(index as usize) == Some(&true) {
            self.total.add_adapter_instance();
        }
    }
}

enum Frame {
    Module(Inventory),
    Component(ComponentFrame),
}

/// Walks a module or component that has been validated. Of a program whose components may call each other,
/// `parts` has those of the types of all canonical functions, in the order of the binary; of any other it is
/// empty.
///
/// # Errors
///
/// [`ProgramError::Opaque`] for what cannot be counted, [`ProgramError::Corrupt`] if the bytes are not
/// well-formed after all.
pub(crate) fn survey(bytes: &[u8], parts: &[u64]) -> Result<Survey, ProgramError> {
    let mut survey = Survey::default();
    let mut adapters = Adapters {
        is_composed: !parts.is_empty(),
        parts: parts.iter(),
    };
    let mut stack: Vec<Frame> = Vec::new();
    for payload in declared(bytes) {
        let payload = payload?;
        match payload {
            Payload::Version {
                encoding: Encoding::Module,
                ..
            } => {
                survey.imported_tables = 0;
                stack.push(Frame::Module(Inventory {
                    instances: 1,
                    instance_bytes: INSTANCE_BYTES,
                    ..Inventory::default()
                }));
                continue;
            }
            Payload::Version {
                encoding: Encoding::Component,
                ..
            } => {
                stack.push(Frame::Component(ComponentFrame::default()));
                continue;
            }
            Payload::End(_) => {
                let done = stack.pop();
                match (stack.last_mut(), done) {
                    (None, Some(Frame::Module(total))) => survey.inventory = total,
                    (None, Some(Frame::Component(root))) => {
                        survey.inlined_bytes = root.inlined;
                        survey.adapted_parts = root.parts;
                        survey.inventory = root.total;
                    }
                    (Some(Frame::Component(outer)), Some(Frame::Module(module))) => {
                        outer.modules.push(Some(module));
                    }
                    (Some(Frame::Component(outer)), Some(Frame::Component(inner))) => {
                        outer.components.push(Some(Instantiated {
                            total: inner.total,
                            inlined: inner.inlined,
                            parts: inner.parts,
                        }));
                    }
                    // A module nests nothing.
                    (Some(Frame::Module(_)), _) | (_, None) => {}
                }
                continue;
            }
            _ => {}
        }
        let outermost = stack.len() == 1;
        match stack.last_mut() {
            Some(Frame::Module(_)) => in_module(&mut stack, payload, outermost, &mut survey)?,
            Some(Frame::Component(_)) => {
                in_component(&mut stack, payload, outermost, &mut survey, &mut adapters)?;
            }
            None => {}
        }
    }
    survey.inventory.heaps = survey.has_heap.into();
    Ok(survey)
}

/// Whether the engine keeps values of this type in a heap.
fn is_in_heap(ty: ValType) -> bool {
    matches!(ty, ValType::Ref(reference) if !reference.is_func_ref())
}

fn in_module(
    stack: &mut [Frame],
    payload: Payload<'_>,
    outermost: bool,
    survey: &mut Survey,
) -> Result<(), ProgramError> {
    let Some(Frame::Module(module)) = stack.last_mut() else {
        return Ok(());
    };
    match payload {
        Payload::ImportSection(section) => {
            for import in section.into_imports() {
                let import = import?;
                module.imports += 1;
                match import.ty {
                    TypeRef::Func(_) | TypeRef::FuncExact(_) => {
                        module.instance_bytes += FUNCTION_BYTES;
                    }
                    _ => module.instance_bytes += GLOBAL_BYTES,
                }
                survey.has_heap |= match import.ty {
                    TypeRef::Tag(_) => true,
                    TypeRef::Table(table) => is_in_heap(ValType::Ref(table.element_type)),
                    TypeRef::Global(global) => is_in_heap(global.content_type),
                    _ => false,
                };
                if matches!(import.ty, TypeRef::Table(_)) {
                    survey.imported_tables = survey.imported_tables.saturating_add(1);
                }
                if outermost {
                    survey
                        .imports
                        .push(format!("{}::{}", import.module, import.name));
                }
            }
        }
        Payload::FunctionSection(section) => {
            module.instance_bytes += FUNCTION_BYTES * u64::from(section.count());
        }
        Payload::GlobalSection(section) => {
            module.instance_bytes += GLOBAL_BYTES * u64::from(section.count());
            module.globals += u64::from(section.count());
            for global in section {
                survey.has_heap |= is_in_heap(global?.ty.content_type);
            }
        }
        Payload::TagSection(section) => {
            survey.has_heap = true;
            module.instance_bytes += GLOBAL_BYTES * u64::from(section.count());
            module.globals += u64::from(section.count());
        }
        Payload::MemorySection(section) => {
            for memory in section {
                let memory = memory?;
                module.memories += 1;
                module.memory_bytes = module
                    .memory_bytes
                    .saturating_add(memory.initial.saturating_mul(WASM_PAGE));
            }
        }
        Payload::TableSection(section) => {
            for table in section {
                let ty = table?.ty;
                module.tables += 1;
                module.table_elements = module.table_elements.saturating_add(ty.initial);
                if ty.initial < SHORT_TABLE {
                    module.short_table_elements =
                        module.short_table_elements.saturating_add(ty.initial);
                }
                survey.has_heap |= is_in_heap(ValType::Ref(ty.element_type));
            }
        }
        Payload::ElementSection(section) => {
            module.segments += u64::from(section.count());
            let mut is_laid_out = true;
            for element in section {
                let element = element?;
                // The compiler stops at the first segment that it does not understand.
                is_laid_out &= self::is_laid_out(&element, survey.imported_tables);
                let items = match element.items {
                    ElementItems::Functions(items) => items.count(),
                    ElementItems::Expressions(_, items) => items.count(),
                };
                match element.kind {
                    ElementKind::Passive => {
                        module.instance_bytes += ELEMENT_BYTES * u64::from(items);
                        module.passive_elements =
                            module.passive_elements.saturating_add(items.into());
                    }
                    ElementKind::Active { .. } if !is_laid_out => {
                        module.elements = module.elements.saturating_add(items.into());
                    }
                    ElementKind::Active { .. } | ElementKind::Declared => {}
                }
            }
        }
        Payload::DataSection(section) => {
            for data in section {
                let data = data?;
                match data.kind {
                    DataKind::Active { .. } => module.data_bytes += data.data.len() as u64,
                    DataKind::Passive => module.segments += 1,
                }
            }
        }
        Payload::ExportSection(section) if outermost => {
            for export in section {
                let export = export?;
                if matches!(export.kind, ExternalKind::Func) {
                    survey.exports.push(export.name.to_owned());
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The longest table that the compiler lays out.
const LAID_OUT: u64 = 1 << 20;

/// Whether the compiler knows where an element segment goes, and lays the table out itself: nothing is
/// copied for it when an instance is made. What is not active is not copied either.
pub(crate) fn is_laid_out(element: &Element<'_>, imported_tables: u32) -> bool {
    match &element.kind {
        ElementKind::Active { table_index, .. } => {
            table_index.unwrap_or(0) >= imported_tables && laid_out_top(element).is_some()
        }
        ElementKind::Passive | ElementKind::Declared => true,
    }
}

/// The end of an active element segment in its table, if the compiler can lay it out in a table of the module that is
/// long enough.
pub(crate) fn laid_out_top(element: &Element<'_>) -> Option<u64> {
    let (ElementKind::Active { offset_expr, .. }, ElementItems::Functions(items)) =
        (&element.kind, &element.items)
    else {
        return None;
    };
    let mut offset = offset_expr.get_operators_reader();
    match (offset.read(), offset.read()) {
        (Ok(Operator::I32Const { value }), Ok(Operator::End)) => {
            let top = u64::from(value.cast_unsigned()) + u64::from(items.count());
            (top <= LAID_OUT).then_some(top)
        }
        _ => None,
    }
}

/// The canonical functions that follow, in a program whose components may call each other.
struct Adapters<'p> {
    is_composed: bool,
    parts: std::slice::Iter<'p, u64>,
}

impl Adapters<'_> {
    /// Counts a canonical function of a component.
    fn count(&mut self, component: &mut ComponentFrame, function: &CanonicalFunction) {
        let parts = self.parts.next().copied().unwrap_or(0);
        component.total.add_canonical_function();
        let (lifted, options) = core_functions(function);
        for index in lifted.into_iter().chain(options.iter().copied()) {
            component.use_lowered(index);
        }
        for index in options {
            if component.named.insert(index) {
                let named = &mut component.total.canonical_options;
                *named = named.saturating_add(1);
            }
        }
        let lowered = matches!(function, CanonicalFunction::Lower { .. });
        // A lifted function is no core function.
        if !matches!(function, CanonicalFunction::Lift { .. }) {
            component.lowered.push(lowered && self.is_composed);
        }
        if lowered && self.is_composed {
            component.parts = component.parts.saturating_add(parts);
            component.total.add_adapter();
        }
    }
}

/// The core functions that a canonical function names: the one that it lifts, and those of its options.
fn core_functions(function: &CanonicalFunction) -> (Option<u32>, Vec<u32>) {
    let (lifted, options) = match function {
        CanonicalFunction::Lift {
            core_func_index,
            options,
            ..
        } => (Some(*core_func_index), options),
        CanonicalFunction::Lower { options, .. } => (None, options),
        _ => return (None, Vec::new()),
    };
    let named = options.iter().filter_map(|option| match option {
        CanonicalOption::Realloc(index)
        | CanonicalOption::PostReturn(index)
        | CanonicalOption::Callback(index) => Some(*index),
        _ => None,
    });
    (lifted, named.collect())
}

/// Records a core instance of a component. The engine makes the adapters that it is given in
/// instances of their own, at most one for each instance that is given any. (Those that something
/// else names have [one each](ComponentFrame::use_lowered).)
fn core_instance(
    component: &mut ComponentFrame,
    instance: &Instance<'_>,
) -> Result<(), ProgramError> {
    let offers_lowered = match instance {
        Instance::Instantiate { module_index, args } => {
            let modules = &component.modules;
            let module = modules.get(*module_index as usize).copied().flatten();
            component.total.add(&module.ok_or(ProgramError::Opaque)?);
            let is_lowered =
                |index: u32| component.offers_lowered.get(index as usize) == Some(&true);
            if args.iter().any(|arg| is_lowered(arg.index)) {
                component.total.add_adapter_instance();
            }
            false
        }
        Instance::FromExports(exports) => exports.iter().any(|export| {
            export.kind == ExternalKind::Func
                && component.lowered.get(export.index as usize) == Some(&true)
        }),
    };
    component.offers_lowered.push(offers_lowered);
    Ok(())
}

fn in_component(
    stack: &mut [Frame],
    payload: Payload<'_>,
    outermost: bool,
    survey: &mut Survey,
    adapters: &mut Adapters<'_>,
) -> Result<(), ProgramError> {
    if let (Some(Frame::Component(component)), Some((_, range))) =
        (stack.last_mut(), payload.as_section())
        && !matches!(
            payload,
            Payload::ModuleSection { .. }
                | Payload::ComponentSection { .. }
                | Payload::CustomSection(_)
        )
    {
        component.inlined = component.inlined.saturating_add(range.len() as u64);
    }
    if let Payload::ComponentAliasSection(section) = payload {
        for alias in section {
            alias_item(stack, alias?);
        }
        return Ok(());
    }
    let Some(Frame::Component(component)) = stack.last_mut() else {
        return Ok(());
    };
    match payload {
        Payload::ComponentImportSection(section) => {
            for import in section {
                let import = import?;
                match import.ty {
                    ComponentTypeRef::Module(_) => component.modules.push(None),
                    ComponentTypeRef::Component(_) => component.components.push(None),
                    _ => {}
                }
                // A type that is equal to one of the program's, or of its imports, is nothing that a host has.
                let is_known = matches!(import.ty, ComponentTypeRef::Type(TypeBounds::Eq(_)));
                if outermost && !is_known {
                    survey.imports.push(import.name.name.to_owned());
                }
            }
        }
        Payload::ComponentExportSection(section) => {
            for export in section {
                let export = export?;
                // An export is a new name for the item, and a new index.
                let index = export.index as usize;
                match export.kind {
                    ComponentExternalKind::Module => {
                        let item = component.modules.get(index).copied().flatten();
                        component.modules.push(item);
                    }
                    ComponentExternalKind::Component => {
                        let item = component.components.get(index).copied().flatten();
                        component.components.push(item);
                    }
                    _ => {}
                }
                if outermost {
                    survey.exports.push(export.name.name.to_owned());
                }
            }
        }
        Payload::ComponentTypeSection(section) => {
            for ty in section {
                let ComponentType::Resource { dtor, .. } = ty? else {
                    continue;
                };
                component.total.add_resource_type();
                if let (true, Some(index)) = (adapters.is_composed, dtor) {
                    component.use_lowered(index);
                }
            }
        }
        Payload::ComponentCanonicalSection(section) => {
            for function in section {
                adapters.count(component, &function?);
            }
        }
        Payload::InstanceSection(section) => {
            for instance in section {
                core_instance(component, &instance?)?;
            }
        }
        Payload::ComponentInstanceSection(section) => {
            for instance in section {
                if let ComponentInstance::Instantiate {
                    component_index, ..
                } = instance?
                {
                    let inner = component
                        .components
                        .get(component_index as usize)
                        .copied()
                        .flatten();
                    let inner = inner.ok_or(ProgramError::Opaque)?;
                    component.total.add(&inner.total);
                    let own = &mut component.total;
                    own.components = own.components.saturating_add(1);
                    own.instance_bytes = own.instance_bytes.saturating_add(COMPONENT_BYTES);
                    component.inlined = component.inlined.saturating_add(inner.inlined);
                    component.parts = component.parts.saturating_add(inner.parts);
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Adds the item that an alias names to the innermost component's index spaces.
fn alias_item(stack: &mut [Frame], alias: ComponentAlias<'_>) {
    let (mut module, mut component) = (None, None);
    let kind = match alias {
        ComponentAlias::InstanceExport { kind, .. } => kind,
        ComponentAlias::Outer { kind, count, index } => {
            let outer = stack
                .len()
                .checked_sub(1 + count as usize)
                .and_then(|at| stack.get(at));
            let Some(Frame::Component(outer)) = outer else {
                return;
            };
            let index = index as usize;
            match kind {
                ComponentOuterAliasKind::CoreModule => {
                    module = outer.modules.get(index).copied().flatten();
                    ComponentExternalKind::Module
                }
                ComponentOuterAliasKind::Component => {
                    component = outer.components.get(index).copied().flatten();
                    ComponentExternalKind::Component
                }
                _ => return,
            }
        }
        ComponentAlias::CoreInstanceExport {
            kind,
            instance_index,
            ..
        } => {
            if let (ExternalKind::Func, Some(Frame::Component(inner))) = (kind, stack.last_mut()) {
                let offered = inner.offers_lowered.get(instance_index as usize);
                inner.lowered.push(offered == Some(&true));
            }
            return;
        }
    };
    let Some(Frame::Component(inner)) = stack.last_mut() else {
        return;
    };
    match kind {
        ComponentExternalKind::Module => inner.modules.push(module),
        ComponentExternalKind::Component => inner.components.push(component),
        _ => {}
    }
}
