//! The host steps that a program can reach, and the longest of them.

use super::bounds::RowBounds;
use super::caps;
use super::pages::visited;
use super::table::{CELL, ENGINE, KERNEL, Longest, PREVIEW1, RowId, TABLE, step};
use crate::call_bytes::call_bytes;
use crate::engine_config::FEATURES;
use leasehold_lease::Lease;
use leasehold_wasm::code::Code;
use leasehold_wasm::error::ProgramError;
use leasehold_wasm::features::CONFIG_VERSION;
use leasehold_wasm::inventory::Inventory;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use wasmparser::component_types::ComponentEntityType;
use wasmparser::{Parser, ValidPayload, Validator};
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;

/// The row of lifting, which a lease's `call_bytes` makes longer.
const LIFT: RowId = step!("engine", "instruction");

/// The row of lowering arguments and lifting results of a call, which that makes longer, too.
const CALL: RowId = step!("engine", "call");

/// The rows of the cell that only programs reach which answer requests.
const OF_REQUESTS: [RowId; 5] = [
    step!("cell", "task end"),
    step!("cell", "serve: build"),
    step!("cell", "serve: request"),
    step!("cell", "serve: response"),
    step!("cell", "serve: stop"),
];

/// Whether only a program that answers requests reaches the row.
fn is_of_requests(id: RowId) -> bool {
    OF_REQUESTS[1..].contains(&id)
}

/// The row of making a program's instances.
const INSTANTIATE: RowId = step!("engine", "instantiate");
/// Leaving the frames of a stack.
const TRAP: RowId = step!("engine", "trap");

/// The rows that a program can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    rows: Vec<RowId>,
    /// How much longer than its row the step is that makes this program's instances, ns.
    making_ns: u64,
}

/// How many of something a program's instances have.
type Count = fn(&Inventory) -> u64;

/// What an instance is made of in that step, and the time that the engine takes for one of each, ns.
/// Stated, not calibrated: twice what was measured on a busy virtual machine of globals, segments
/// and imports; of instances, a few times what a start takes. Of memories, and of pages of tables, as much as was
/// measured there at the most: each page is a fault, where the heap has given it back. Of types of resources, which have
/// pages that are fresh, and of functions that options name, two and a half times what was measured; what a canonical function
/// takes by itself was measured with these only.
const PARTS: [(Count, u64); 10] = [
    (|of| of.globals, 170),
    (|of| of.segments, 1_400),
    (|of| of.imports, 500),
    (|of| of.instances, 10_000),
    (|of| of.components, 500),
    (|of| of.memories, 5_000),
    (|of| of.short_table_elements / PAGE_ELEMENTS, 5_000),
    (|of| of.resource_types, 100),
    (|of| of.canonical_functions, 100),
    (|of| of.canonical_options, 500),
];

/// Elements of a table in a page.
const PAGE_ELEMENTS: u64 = 4096 / 8;

/// The part of it that the row covers, ns.
const MADE_BY_ROW_NS: u64 = 50_000;

/// How much longer than its row the step is that makes the instances of a program, ns.
fn making_ns(inventory: &Inventory) -> u64 {
    let times = PARTS.map(|(count, each_ns)| count(inventory).saturating_mul(each_ns));
    let all_ns = times.into_iter().fold(0, u64::saturating_add);
    all_ns.saturating_sub(MADE_BY_ROW_NS)
}

impl Reach {
    /// Stands for how programs are read: another number wherever the rows, or the prices of parts, are others.
    pub(crate) fn reading() -> u64 {
        let mut reading = DefaultHasher::new();
        for row in RowId::all().map(RowId::row) {
            (row.interface, row.name).hash(&mut reading);
        }
        PARTS.map(|(_, each_ns)| each_ns).hash(&mut reading);
        (MADE_BY_ROW_NS, CONFIG_VERSION).hash(&mut reading);
        reading.finish()
    }

    /// For a note: how much longer its instances take, and the places of the rows in the table, least byte first.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let rows = self.rows.iter().flat_map(|row| row.0.to_le_bytes());
        self.making_ns
            .to_le_bytes()
            .into_iter()
            .chain(rows)
            .collect()
    }

    /// The inverse; `None` if it is none of this table.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (making_ns, rows) = bytes.split_first_chunk::<8>()?;
        let (rows, []) = rows.as_chunks::<2>() else {
            return None;
        };
        let count = RowId::all().count();
        let rows = rows.iter().map(|row| {
            let place = u16::from_le_bytes(*row);
            (usize::from(place) < count).then_some(RowId(place))
        });
        Some(Self {
            rows: rows.collect::<Option<_>>()?,
            making_ns: u64::from_le_bytes(*making_ns),
        })
    }
}

/// Imports that have no row: nothing here offers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing(pub Vec<String>);

impl Reach {
    /// The rows behind the imports of a program, and those of what the engine and the cell do by
    /// themselves for a program with this inventory.
    ///
    /// # Errors
    /// When an import has no row.
    pub fn of(engine: &Engine, code: &Code, inventory: &Inventory) -> Result<Self, Missing> {
        let mut found = Found::default();
        match code {
            Code::Module(module) => {
                for import in module.imports() {
                    found.add(import.module(), import.name());
                }
            }
            Code::Component(component) => {
                for (name, import) in component.component_type().imports(engine) {
                    let interface = unversioned(name);
                    match import.ty {
                        ComponentItem::ComponentInstance(instance) => {
                            for (name, export) in instance.exports(engine) {
                                match export.ty {
                                    ComponentItem::ComponentFunc(_) => found.add(interface, name),
                                    ComponentItem::Resource(_) => {
                                        found.add_resource(interface, name)
                                    }
                                    _ => {}
                                }
                            }
                        }
                        // What it is equal to has its row where it is imported.
                        ComponentItem::Type(_) | ComponentItem::Resource(_) => {}
                        _ => found.missing.push(name.to_owned()),
                    }
                }
            }
        }
        found.rows_with(inventory)
    }

    /// The same of a program that was not compiled. Its function bodies are not looked at.
    ///
    /// # Errors
    /// When the bytes are no program, or an import has no row.
    pub(crate) fn of_binary(binary: &[u8], inventory: &Inventory) -> Result<Self, ProgramError> {
        let mut found = Found::default();
        let mut names = Vec::new();
        let mut validator = Validator::new_with_features(FEATURES);
        let mut depth = 0;
        // The types of a module's imports need no validator.
        let has_types = Parser::is_component(binary);
        for payload in Parser::new(0).parse_all(binary) {
            let payload = payload?;
            let valid = match has_types {
                true => Some(validator.payload(&payload)?),
                false => None,
            };
            match payload {
                wasmparser::Payload::Version { .. } => depth += 1,
                wasmparser::Payload::ImportSection(section) if depth == 1 => {
                    for import in section.into_imports() {
                        let import = import?;
                        found.add(import.module, import.name);
                    }
                }
                wasmparser::Payload::ComponentImportSection(section) if depth == 1 => {
                    for import in section {
                        names.push(import?.name.name.to_owned());
                    }
                }
                _ => {}
            }
            let Some(ValidPayload::End(types)) = valid else {
                continue;
            };
            depth -= 1;
            if depth > 0 {
                continue;
            }
            for name in &names {
                match types
                    .as_ref()
                    .component_item_for_import(name)
                    .map(|item| item.ty)
                {
                    Some(ComponentEntityType::Instance(instance)) => {
                        let interface = unversioned(name);
                        for (name, export) in &types[instance].exports {
                            match export.ty {
                                ComponentEntityType::Func(_) => found.add(interface, name),
                                // Of types only resources have rows.
                                ComponentEntityType::Type { .. } => {
                                    found.add_resource(interface, name);
                                }
                                _ => {}
                            }
                        }
                    }
                    Some(ComponentEntityType::Type { .. }) => {}
                    _ => found.missing.push(name.clone()),
                }
            }
        }
        Ok(found.rows_with(inventory)?)
    }

    /// The same of a program whose exported functions are called.
    pub(crate) fn with_calls(mut self) -> Self {
        if let Err(place) = self.rows.binary_search(&CALL) {
            self.rows.insert(place, CALL);
        }
        self
    }

    /// The same of a program that answers requests.
    pub(crate) fn with_requests(mut self) -> Self {
        for row in OF_REQUESTS {
            if let Err(place) = self.rows.binary_search(&row) {
                self.rows.insert(place, row);
            }
        }
        self
    }

    /// Returns the reach of an unknown program that runs from its entry point, is not composed of
    /// components, and whose instances take no longer than their row: the whole table except the rows
    /// of calls and between components.
    pub fn any() -> Self {
        let others = [CALL, step!(ENGINE, "string")];
        let others = |id: &RowId| others.contains(id) || is_of_requests(*id);
        Self {
            rows: RowId::all().filter(|id| !others(id)).collect(),
            making_ns: 0,
        }
    }

    /// How much longer than its row the step may be that makes the program's instances, ns: it makes globals,
    /// segments, memories, tables and instances one by one.
    pub const fn making_ns(&self) -> u64 {
        self.making_ns
    }

    /// Whether a tenant that runs the program can have more than one execution: tasks or child tenants.
    pub fn starts_others(&self) -> bool {
        const STARTS: [RowId; 4] = [
            step!(KERNEL, "task_start"),
            step!(KERNEL, "tenant_start"),
            step!("leasehold:kernel/task", "start"),
            step!("leasehold:kernel/tenant", "start"),
        ];
        STARTS
            .iter()
            .any(|row| self.rows.binary_search(row).is_ok())
    }

    /// The rows, in the order of the [`TABLE`].
    pub fn rows(&self) -> impl Iterator<Item = RowId> {
        self.rows.iter().copied()
    }

    /// The longest step of a tenant with this lease on this host, and its time, ns: the longest of the
    /// rows, and of lifting in proportion if the lease lets a call have more bytes than the cap. If the
    /// lease pages, a step takes a fault for each page that it visits besides. Where guests are preempted by epochs, the
    /// frames of a whole stack may be left in a step.
    pub fn longest_under(&self, bounds: &RowBounds, lease: &Lease) -> (RowId, u64) {
        let pages = lease.memory.paging.is_some();
        let bytes = call_bytes(lease, self.is_of_component());
        let timed = |row: RowId| {
            let times = match row {
                LIFT | CALL => bytes.div_ceil(caps::CALL.most).max(1),
                _ => 1,
            };
            let beyond_ns = match row {
                INSTANTIATE => self.making_ns,
                TRAP => bounds.leaving_ns(lease.memory.stack.get()),
                _ => 0,
            };
            let faults_ns = match pages {
                true => visited(row.row(), bytes).saturating_mul(bounds.fault_ns()),
                false => 0,
            };
            let work_ns = bounds
                .ns(row)
                .saturating_mul(times)
                .saturating_add(beyond_ns);
            (row, work_ns.saturating_add(faults_ns))
        };
        let reached = self.rows().filter(|row| pages || !is_paging(*row));
        longest(reached.map(timed))
    }

    /// Whether a component reaches them, or anything might.
    fn is_of_component(&self) -> bool {
        let of_core = [ENGINE, CELL, KERNEL, PREVIEW1];
        self.rows()
            .any(|row| !of_core.contains(&row.row().interface))
    }
}

/// The longest of these steps, the first of equals.
fn longest(timed: impl Iterator<Item = (RowId, u64)>) -> (RowId, u64) {
    let longest = timed.reduce(|longest, row| if row.1 > longest.1 { row } else { longest });
    longest.unwrap_or((RowId(0), 0))
}

/// Whether only tenants that page reach the row.
fn is_paging(id: RowId) -> bool {
    let row = id.row();
    let of_cell =
        row.interface == CELL && matches!(row.name, "fault" | "detach" | "withdraw regions");
    of_cell || row.longest == Longest::Fault
}

/// An interface without the version that a component asks for.
fn unversioned(interface: &str) -> &str {
    interface
        .split_once('@')
        .map_or(interface, |(interface, _)| interface)
}

#[derive(Default)]
struct Found {
    rows: BTreeSet<RowId>,
    missing: Vec<String>,
}

impl Found {
    /// The rows of the imports, and those that every program with this inventory has.
    fn rows_with(mut self, inventory: &Inventory) -> Result<Reach, Missing> {
        if !self.missing.is_empty() {
            return Err(Missing(self.missing));
        }
        let tasks = [(KERNEL, "task_start"), ("leasehold:kernel/task", "start")];
        let starts_tasks = tasks
            .iter()
            .filter_map(|(interface, name)| RowId::find(interface, name))
            .any(|row| self.rows.contains(&row));
        self.rows.extend(RowId::all().filter(|id| {
            let row = id.row();
            match (row.interface, row.name) {
                (ENGINE, "memory.grow") => inventory.memories > 0 || inventory.heaps > 0,
                (ENGINE, "throw") => inventory.heaps > 0,
                (ENGINE, "string") => inventory.adapters > 0,
                (ENGINE, "data segments") => inventory.data_bytes > 0,
                (ENGINE, "table.grow" | "element segments") => inventory.tables > 0,
                (CELL, "task end") => starts_tasks,
                // Of programs that answer requests.
                (CELL, _) if is_of_requests(*id) => false,
                // Of programs that are called.
                (ENGINE, "call") => false,
                (ENGINE | CELL, _) => true,
                _ => false,
            }
        }));
        Ok(Reach {
            rows: self.rows.into_iter().collect(),
            making_ns: making_ns(inventory),
        })
    }

    fn add(&mut self, interface: &str, name: &str) {
        match RowId::find(interface, name) {
            // The rows of the engine and the cell themselves cannot be imported.
            Some(row) if !matches!(TABLE[row.0 as usize].interface, ENGINE | CELL) => {
                self.rows.insert(row);
            }
            _ => self.missing.push(format!("{interface} {name}")),
        }
    }

    fn add_resource(&mut self, interface: &str, name: &str) {
        // Types that an interface uses of another one come with it, and are dropped by that one.
        let dropped = format!("[resource-drop]{name}");
        if let Some(row) = RowId::find(interface, &dropped) {
            self.rows.insert(row);
        }
    }
}
