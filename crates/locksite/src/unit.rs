//! The debug information of one compilation unit: its functions with their variables, which code
//! was inlined where, its types, and the source line of each instruction.

use std::collections::HashMap;

use gimli::{AttributeValue, DebuggingInformationEntry};

use crate::image::Slice;

type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
type GimliUnit<'a> = gimli::Unit<Slice<'a>>;

/// A type of the unit: the offset of its entry.
pub(crate) type TypeId = usize;
/// A function of the unit: index into its functions.
pub(crate) type FunctionId = usize;

/// A variable or a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// `None` is `void`, which no variable has, or an entry without a type.
    pub(crate) type_id: Option<TypeId>,
    /// It has one address for all calls: a global, or a static one inside of a function.
    pub(crate) fixed: bool,
}

/// A function as its source declares it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) file: usize,
    pub(crate) line: u32,
    pub(crate) params: Vec<Variable>,
    pub(crate) locals: Vec<Variable>,
    pub(crate) returns: Option<TypeId>,
    /// The unit has its prototype only.
    pub(crate) declared_only: bool,
}

/// Code that belongs to one function: out of line, or inlined into the parent.
struct Extent {
    ranges: Vec<(u64, u64)>,
    /// The entry of the function, which may come later in the unit.
    function: usize,
    parent: Option<usize>,
    /// Where the inlined call is.
    call: Option<(usize, u32)>,
}

/// A member of a structure or union.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Empty for an anonymous structure or union, whose members count as the container's.
    pub(crate) name: String,
    pub(crate) type_id: Option<TypeId>,
    pub(crate) offset: u64,
}

/// A C type.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Aggregate {
        tag: Option<String>,
        members: Vec<Member>,
    },
    Pointer(Option<TypeId>),
    Typedef {
        name: String,
        target: Option<TypeId>,
    },
    Qualified(Option<TypeId>),
    Array(Option<TypeId>),
    Function {
        returns: Option<TypeId>,
    },
    Scalar,
}

/// The kind of a C type's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Naming {
    /// `struct x`, `union x`.
    Tag,
    /// A typedef.
    Typedef,
}

/// One step of a call chain by the debug information: a function, and the line in it that is being
/// executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) function: FunctionId,
    pub(crate) file: usize,
    pub(crate) line: u32,
}

/// Rows of the line table: the instructions from `address` on come from `line` of `file`.
struct Row {
    address: u64,
    file: usize,
    line: u32,
    /// The sequence ends here: the row speaks of no instruction.
    end: bool,
}

/// A compilation unit.
pub(crate) struct Unit {
    /// The source file, as the compiler was given it.
    pub(crate) name: String,
    files: Vec<String>,
    functions: Vec<Function>,
    by_name: HashMap<String, FunctionId>,
    by_entry: HashMap<usize, FunctionId>,
    extents: Vec<Extent>,
    types: HashMap<TypeId, Type>,
    named_types: HashMap<(Naming, String), TypeId>,
    globals: HashMap<String, Variable>,
    rows: Vec<Row>,
}

impl Unit {
    /// Reads the unit whole. Costs time in proportion to it: some ten milliseconds.
    pub(crate) fn parse<'a>(
        dwarf: &Dwarf<'a>,
        header: gimli::UnitHeader<Slice<'a>>,
    ) -> Result<Self, gimli::Error> {
        let source = dwarf.unit(header)?;
        let mut parser = Parser::new(dwarf, &source);
        parser.read_lines()?;
        parser.read_entries()?;
        Ok(parser.finish())
    }

    /// The path of a file, relative to where the compiler ran.
    pub(crate) fn file(&self, file: usize) -> &str {
        self.files.get(file).map_or("", String::as_str)
    }

    /// All files that the unit names.
    pub(crate) fn files(&self) -> &[String] {
        &self.files
    }

    pub(crate) fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id]
    }

    /// The function of that name; a definition before a prototype.
    pub(crate) fn function_named(&self, name: &str) -> Option<FunctionId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn global(&self, name: &str) -> Option<&Variable> {
        self.globals.get(name)
    }

    pub(crate) fn type_of(&self, id: TypeId) -> &Type {
        self.types.get(&id).unwrap_or(&Type::Scalar)
    }

    pub(crate) fn type_named(&self, naming: Naming, name: &str) -> Option<TypeId> {
        self.named_types.get(&(naming, name.to_owned())).copied()
    }

    /// The functions that the instruction at `address` belongs to, innermost inlined one first.
    pub(crate) fn steps_at(&self, address: u64) -> Vec<Step> {
        let Some(row) = self.row_at(address) else {
            return Vec::new();
        };
        let mut line = (row.file, row.line);
        let mut steps = Vec::new();
        let mut next = self.innermost_at(address);
        while let Some(extent) = next.map(|index| &self.extents[index]) {
            if let Some(&function) = self.by_entry.get(&extent.function) {
                steps.push(Step {
                    function,
                    file: line.0,
                    line: line.1,
                });
            }
            line = extent.call.unwrap_or(line);
            next = extent.parent;
        }
        steps
    }

    fn row_at(&self, address: u64) -> Option<&Row> {
        let after = self.rows.partition_point(|row| row.address <= address);
        self.rows[..after].last().filter(|row| !row.end)
    }

    /// The extent that covers the address and has the most extents around it.
    fn innermost_at(&self, address: u64) -> Option<usize> {
        let covers = |extent: &Extent| {
            extent
                .ranges
                .iter()
                .any(|&(start, end)| (start..end).contains(&address))
        };
        // A child comes after its parent, so the last one that covers is the innermost.
        self.extents.iter().rposition(covers)
    }
}

/// The entry around the current one.
#[derive(Clone, Copy)]
enum Context {
    /// A function that is declared here.
    Function(FunctionId),
    /// The type of that entry, for members and array bounds.
    Type(TypeId),
    /// Code of a function that is declared elsewhere.
    Instance,
    Other,
}

struct Parser<'a, 'd> {
    dwarf: &'d Dwarf<'a>,
    source: &'d GimliUnit<'a>,
    unit: Unit,
    /// For each depth of nesting: what is there, and the extent that encloses it.
    nesting: Vec<(Context, Option<usize>)>,
}

impl<'a, 'd> Parser<'a, 'd> {
    fn new(dwarf: &'d Dwarf<'a>, source: &'d GimliUnit<'a>) -> Self {
        let text = |slice: &Option<Slice<'a>>| {
            slice
                .as_ref()
                .map(|slice| slice.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let unit = Unit {
            name: text(&source.name),
            files: Vec::new(),
            functions: Vec::new(),
            by_name: HashMap::new(),
            by_entry: HashMap::new(),
            extents: Vec::new(),
            types: HashMap::new(),
            named_types: HashMap::new(),
            globals: HashMap::new(),
            rows: Vec::new(),
        };
        Self {
            dwarf,
            source,
            unit,
            nesting: Vec::new(),
        }
    }

    fn finish(self) -> Unit {
        self.unit
    }

    fn read_lines(&mut self) -> Result<(), gimli::Error> {
        let Some(program) = self.source.line_program.clone() else {
            return Ok(());
        };
        let header = program.header();
        // Files are numbered from 0 since version 5 and from 1 before.
        let count = header.file_names().len() as u64 + u64::from(header.version() < 5);
        for index in 0..count {
            let mut path = String::new();
            if let Some(file) = header.file(index) {
                if let Some(directory) = file.directory(header) {
                    path = self.text(directory).unwrap_or_default();
                }
                let name = self.text(file.path_name()).unwrap_or_default();
                if name.starts_with('/') {
                    path = name;
                } else {
                    path.push('/');
                    path.push_str(&name);
                }
            }
            self.unit.files.push(path);
        }
        let mut rows = program.rows();
        while let Some((_, row)) = rows.next_row()? {
            self.unit.rows.push(Row {
                address: row.address(),
                file: row.file_index() as usize,
                line: row.line().map_or(0, |line| line.get() as u32),
                end: row.end_sequence(),
            });
        }
        // A sequence may begin where another ends: its end comes first, so that the other counts.
        self.unit.rows.sort_by_key(|row| (row.address, !row.end));
        Ok(())
    }

    fn read_entries(&mut self) -> Result<(), gimli::Error> {
        let mut entries = self.source.entries_raw(None)?;
        let mut entry = Entry::null();
        while !entries.is_empty() {
            if !entries.read_entry(&mut entry)? {
                continue;
            }
            let depth = usize::try_from(entry.depth()).unwrap_or(0);
            self.nesting.truncate(depth);
            let here = self.read_entry(&entry)?;
            self.nesting.resize(depth, (Context::Other, None));
            self.nesting.push(here);
        }
        Ok(())
    }

    /// Records the entry, and returns its context for the entries inside.
    fn read_entry(&mut self, entry: &Entry<'a>) -> Result<(Context, Option<usize>), gimli::Error> {
        let (outer, extent) = self
            .nesting
            .last()
            .copied()
            .unwrap_or((Context::Other, None));
        let id = entry.offset().0;
        let context = match entry.tag() {
            gimli::DW_TAG_subprogram => return self.read_function(entry),
            gimli::DW_TAG_inlined_subroutine => return self.read_inlined(entry, extent),
            gimli::DW_TAG_lexical_block => outer,
            gimli::DW_TAG_formal_parameter | gimli::DW_TAG_variable => {
                self.read_variable(entry, outer);
                Context::Other
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type => {
                let tag = self.name(entry);
                let whole = entry.attr_value(gimli::DW_AT_declaration).is_none();
                if let (Some(name), true) = (&tag, whole) {
                    self.unit
                        .named_types
                        .insert((Naming::Tag, name.clone()), id);
                }
                self.add_type(
                    id,
                    Type::Aggregate {
                        tag,
                        members: Vec::new(),
                    },
                )
            }
            gimli::DW_TAG_member => {
                self.read_member(entry, outer);
                Context::Other
            }
            gimli::DW_TAG_pointer_type => self.add_type(id, Type::Pointer(self.target(entry))),
            gimli::DW_TAG_typedef => {
                let name = self.name(entry).unwrap_or_default();
                self.unit
                    .named_types
                    .entry((Naming::Typedef, name.clone()))
                    .or_insert(id);
                self.add_type(
                    id,
                    Type::Typedef {
                        name,
                        target: self.target(entry),
                    },
                )
            }
            gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type => self.add_type(id, Type::Qualified(self.target(entry))),
            gimli::DW_TAG_array_type => self.add_type(id, Type::Array(self.target(entry))),
            gimli::DW_TAG_subroutine_type => self.add_type(
                id,
                Type::Function {
                    returns: self.target(entry),
                },
            ),
            _ => Context::Other,
        };
        Ok((context, extent))
    }

    fn add_type(&mut self, id: TypeId, this: Type) -> Context {
        self.unit.types.insert(id, this);
        Context::Type(id)
    }

    fn read_member(&mut self, entry: &Entry<'a>, outer: Context) {
        let member = Member {
            name: self.name(entry).unwrap_or_default(),
            type_id: self.target(entry),
            offset: number(entry, gimli::DW_AT_data_member_location).unwrap_or(0),
        };
        if let Context::Type(id) = outer
            && let Some(Type::Aggregate { members, .. }) = self.unit.types.get_mut(&id)
        {
            members.push(member);
        }
    }

    fn read_variable(&mut self, entry: &Entry<'a>, outer: Context) {
        let Some(name) = self.name(entry) else { return };
        let parameter = entry.tag() == gimli::DW_TAG_formal_parameter;
        let located = matches!(
            entry.attr_value(gimli::DW_AT_location),
            Some(AttributeValue::Exprloc(expression))
                if expression.0.first().is_some_and(|&op| op == gimli::DW_OP_addr.0)
        );
        let external = entry.attr_value(gimli::DW_AT_external).is_some();
        let variable = Variable {
            name,
            type_id: self.target(entry),
            fixed: located || external,
        };
        match outer {
            Context::Function(id) if parameter => self.unit.functions[id].params.push(variable),
            Context::Function(id) => self.unit.functions[id].locals.push(variable),
            Context::Instance | Context::Type(_) => {}
            Context::Other if self.nesting.len() > 1 => {}
            Context::Other => {
                let known = self.unit.globals.entry(variable.name.clone());
                known.or_insert(Variable {
                    fixed: true,
                    ..variable
                });
            }
        }
    }

    fn read_function(
        &mut self,
        entry: &Entry<'a>,
    ) -> Result<(Context, Option<usize>), gimli::Error> {
        let id = entry.offset().0;
        let origin = self
            .reference(entry, gimli::DW_AT_abstract_origin)
            .or_else(|| self.reference(entry, gimli::DW_AT_specification));
        let context = match self.name(entry) {
            Some(name) => Context::Function(self.add_function(entry, name)),
            None => Context::Instance,
        };
        let extent = self.add_extent(entry, origin.unwrap_or(id), None, None)?;
        Ok((context, extent))
    }

    fn add_function(&mut self, entry: &Entry<'a>, name: String) -> FunctionId {
        let function = Function {
            name: name.clone(),
            file: number(entry, gimli::DW_AT_decl_file).unwrap_or(0) as usize,
            line: number(entry, gimli::DW_AT_decl_line).unwrap_or(0) as u32,
            returns: self.target(entry),
            declared_only: entry.attr_value(gimli::DW_AT_declaration).is_some(),
            ..Function::default()
        };
        let id = self.unit.functions.len();
        let declared_only = function.declared_only;
        self.unit.functions.push(function);
        self.unit.by_entry.insert(entry.offset().0, id);
        let known = self.unit.by_name.entry(name).or_insert(id);
        if !declared_only && self.unit.functions[*known].declared_only {
            *known = id;
        }
        id
    }

    fn read_inlined(
        &mut self,
        entry: &Entry<'a>,
        parent: Option<usize>,
    ) -> Result<(Context, Option<usize>), gimli::Error> {
        let Some(origin) = self.reference(entry, gimli::DW_AT_abstract_origin) else {
            return Ok((Context::Instance, parent));
        };
        let call = number(entry, gimli::DW_AT_call_file)
            .zip(number(entry, gimli::DW_AT_call_line))
            .map(|(file, line)| (file as usize, line as u32));
        let extent = self.add_extent(entry, origin, parent, call)?;
        Ok((Context::Instance, extent.or(parent)))
    }

    fn add_extent(
        &mut self,
        entry: &Entry<'a>,
        function: usize,
        parent: Option<usize>,
        call: Option<(usize, u32)>,
    ) -> Result<Option<usize>, gimli::Error> {
        let mut covered = self.dwarf.die_ranges(self.source, entry)?;
        let mut ranges = Vec::new();
        while let Some(range) = covered.next()? {
            if range.begin < range.end {
                ranges.push((range.begin, range.end));
            }
        }
        if ranges.is_empty() {
            return Ok(None);
        }
        self.unit.extents.push(Extent {
            ranges,
            function,
            parent,
            call,
        });
        Ok(Some(self.unit.extents.len() - 1))
    }

    fn name(&self, entry: &Entry<'a>) -> Option<String> {
        entry
            .attr_value(gimli::DW_AT_name)
            .and_then(|value| self.text(value))
    }

    fn text(&self, value: AttributeValue<Slice<'a>>) -> Option<String> {
        let slice = self.dwarf.attr_string(self.source, value).ok()?;
        Some(slice.to_string_lossy().into_owned())
    }

    fn target(&self, entry: &Entry<'a>) -> Option<TypeId> {
        self.reference(entry, gimli::DW_AT_type)
    }

    /// The entry of this unit that an attribute refers to. Kernels are neither linked with
    /// link-time optimisation nor compressed by `dwz`, so other units are not referred to.
    fn reference(&self, entry: &Entry<'a>, attribute: gimli::DwAt) -> Option<usize> {
        match entry.attr_value(attribute)? {
            AttributeValue::UnitRef(offset) => Some(offset.0),
            AttributeValue::DebugInfoRef(offset) => offset
                .to_unit_offset(&self.source.header)
                .map(|offset| offset.0),
            _ => None,
        }
    }
}

fn number(entry: &Entry<'_>, attribute: gimli::DwAt) -> Option<u64> {
    match entry.attr_value(attribute)? {
        AttributeValue::FileIndex(index) => Some(index),
        value => value.udata_value(),
    }
}
