//! One ELF file of a kernel, `vmlinux` or a module, with its debug sections ready to read.
//!
//! `vmlinux` is linked: its sections have addresses. A module is a relocatable object, in which
//! every section starts at zero and the debug sections still have relocations to be applied. Its
//! sections are laid out here one after the other, so that an address means one place in both.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gimli::{EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{
    Object, ObjectKind, ObjectSection, ObjectSymbol, RelocationTarget, SectionFlags, SectionIndex,
    SymbolKind,
};

use crate::error::Error;
use crate::unit::Unit;

/// A reader of debug sections.
pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A 64-bit file of the only processor that is supported, x86-64.
type Elf<'data> = ElfFile64<'data, object::LittleEndian>;

/// Where the first section of a relocatable file is put: no address of code is null.
const FIRST_SECTION: u64 = 0x1_0000;

/// Flag of sections that are in memory when the code runs (`SHF_ALLOC` of the ELF specification).
const ALLOCATED: u64 = object::elf::SHF_ALLOC as u64;

/// A function or a variable of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// Its name.
    pub(crate) name: String,
    /// Where it starts.
    pub(crate) address: u64,
    /// How many bytes it has.
    pub(crate) size: u64,
}

/// Which part of an image's debug information speaks of which code.
struct UnitRange {
    start: u64,
    end: u64,
    unit: usize,
}

/// `vmlinux` or a module, with debug information.
pub(crate) struct Image {
    path: PathBuf,
    debug: HashMap<SectionId, Vec<u8>>,
    functions: Vec<Symbol>,
    variables: Vec<Symbol>,
    named: HashMap<String, Vec<u64>>,
    build_id: String,
    /// Sorted by start.
    ranges: Vec<UnitRange>,
    headers: Vec<gimli::DebugInfoOffset>,
    units: RefCell<HashMap<usize, Rc<Unit>>>,
}

impl Image {
    /// Reads the file's symbols and debug sections, and which unit speaks of which code.
    ///
    /// Costs time and memory in proportion to the debug sections (a few hundred megabytes for
    /// `vmlinux`); units are parsed when they are asked for.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let data = fs::read(path).map_err(|source| Error::Read {
            path: path.into(),
            source,
        })?;
        let elf_error = |source| Error::Elf {
            path: path.into(),
            source,
        };
        let file = Elf::parse(&*data).map_err(elf_error)?;
        let layout = Layout::of(&file);

        let mut debug = HashMap::new();
        for id in USED_SECTIONS {
            if let Some(section) = file.section_by_name(id.name()) {
                let mut bytes = section.uncompressed_data().map_err(elf_error)?.into_owned();
                layout.relocate(&file, &section, &mut bytes);
                debug.insert(id, bytes);
            }
        }
        if !debug.contains_key(&SectionId::DebugInfo) {
            return Err(Error::Stripped { path: path.into() });
        }

        let mut image = Self {
            path: path.into(),
            debug,
            functions: Vec::new(),
            variables: Vec::new(),
            named: HashMap::new(),
            build_id: file
                .build_id()
                .ok()
                .flatten()
                .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect())
                .unwrap_or_default(),
            ranges: Vec::new(),
            headers: Vec::new(),
            units: RefCell::new(HashMap::new()),
        };
        image.read_symbols(&file, &layout);
        drop(data);
        image.index_units().map_err(|source| Error::Dwarf {
            path: path.into(),
            source,
        })?;
        Ok(image)
    }

    fn read_symbols(&mut self, file: &Elf<'_>, layout: &Layout) {
        for symbol in file.symbols().filter(|symbol| !symbol.is_undefined()) {
            let Ok(name) = symbol.name() else { continue };
            let address = layout.address(&symbol);
            let entry = Symbol {
                name: name.to_owned(),
                address,
                size: symbol.size(),
            };
            match symbol.kind() {
                SymbolKind::Text => self.functions.push(entry),
                SymbolKind::Data | SymbolKind::Unknown if !name.is_empty() => {
                    self.variables.push(entry);
                }
                _ => continue,
            }
            self.named.entry(name.to_owned()).or_default().push(address);
        }
        self.functions.sort_by_key(|symbol| symbol.address);
        self.variables.sort_by_key(|symbol| symbol.address);
    }

    fn index_units(&mut self) -> Result<(), gimli::Error> {
        let mut ranges = Vec::new();
        let mut headers = Vec::new();
        let dwarf = self.dwarf();
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let Some(offset) = header.debug_info_offset() else {
                continue;
            };
            let unit = dwarf.unit(header)?;
            let mut covered = dwarf.unit_ranges(&unit)?;
            while let Some(range) = covered.next()? {
                if range.begin < range.end {
                    let (start, end) = (range.begin, range.end);
                    ranges.push(UnitRange {
                        start,
                        end,
                        unit: headers.len(),
                    });
                }
            }
            headers.push(offset);
        }
        ranges.sort_by_key(|range| range.start);
        self.ranges = ranges;
        self.headers = headers;
        Ok(())
    }

    /// The debug sections.
    fn dwarf(&self) -> gimli::Dwarf<Slice<'_>> {
        let load = |id: SectionId| -> Result<Slice<'_>, std::convert::Infallible> {
            let bytes = self.debug.get(&id).map_or(&[][..], Vec::as_slice);
            Ok(EndianSlice::new(bytes, LittleEndian))
        };
        match gimli::Dwarf::load(load) {
            Ok(dwarf) => dwarf,
            Err(never) => match never {},
        }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The build id in hexadecimal, empty when there is none.
    pub(crate) fn build_id(&self) -> &str {
        &self.build_id
    }

    /// The addresses of functions and variables of that name; static ones can share one.
    pub(crate) fn addresses_of(&self, name: &str) -> &[u64] {
        self.named.get(name).map_or(&[], Vec::as_slice)
    }

    /// The function that contains the address.
    pub(crate) fn function_at(&self, address: u64) -> Option<&Symbol> {
        enclosing(&self.functions, address)
    }

    /// The variable that contains the address.
    pub(crate) fn variable_at(&self, address: u64) -> Option<&Symbol> {
        enclosing(&self.variables, address)
    }

    /// The unit that speaks of the code at an address.
    ///
    /// # Errors
    /// [`Error::Dwarf`] when it is malformed. `None` when no unit covers the address, as for
    /// assembly without debug information.
    pub(crate) fn unit_at(&self, address: u64) -> Result<Option<Rc<Unit>>, Error> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let covering = self.ranges[..after]
            .iter()
            .rev()
            .take(64)
            .find(|range| address < range.end);
        covering.map(|range| self.unit(range.unit)).transpose()
    }

    fn unit(&self, index: usize) -> Result<Rc<Unit>, Error> {
        if let Some(unit) = self.units.borrow().get(&index) {
            return Ok(Rc::clone(unit));
        }
        let dwarf = self.dwarf();
        let unit = dwarf
            .debug_info
            .header_from_offset(self.headers[index])
            .and_then(|header| Unit::parse(&dwarf, header))
            .map_err(|source| Error::Dwarf {
                path: self.path.clone(),
                source,
            })?;
        let unit = Rc::new(unit);
        self.units.borrow_mut().insert(index, Rc::clone(&unit));
        Ok(unit)
    }
}

/// The debug sections that the analysis reads.
const USED_SECTIONS: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

fn enclosing(symbols: &[Symbol], address: u64) -> Option<&Symbol> {
    let after = symbols.partition_point(|symbol| symbol.address <= address);
    symbols[..after]
        .iter()
        .rev()
        .take(8)
        .find(|symbol| address - symbol.address < symbol.size)
}

/// Where the sections of a file are, or are put when it is relocatable.
struct Layout {
    relocatable: bool,
    starts: HashMap<SectionIndex, u64>,
}

impl Layout {
    fn of(file: &Elf<'_>) -> Self {
        let relocatable = file.kind() == ObjectKind::Relocatable;
        let mut next = FIRST_SECTION;
        let mut starts = HashMap::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                continue;
            };
            if sh_flags & ALLOCATED == 0 {
                continue;
            }
            let start = if relocatable {
                let start = next.next_multiple_of(section.align().max(1));
                next = start + section.size();
                start
            } else {
                section.address()
            };
            starts.insert(section.index(), start);
        }
        Self {
            relocatable,
            starts,
        }
    }

    fn start(&self, section: SectionIndex) -> Option<u64> {
        self.starts.get(&section).copied()
    }

    fn address<'data>(&self, symbol: &impl ObjectSymbol<'data>) -> u64 {
        let base = symbol
            .section_index()
            .and_then(|section| self.start(section))
            .unwrap_or(0);
        if self.relocatable {
            base + symbol.address()
        } else {
            symbol.address()
        }
    }

    /// Fills in what a linker would. References between debug sections are to section symbols,
    /// and those sections start at zero.
    fn relocate(
        &self,
        file: &Elf<'_>,
        section: &object::read::elf::ElfSection64<'_, '_, object::LittleEndian>,
        bytes: &mut [u8],
    ) {
        if !self.relocatable {
            return;
        }
        for (offset, relocation) in section.relocations() {
            let target = match relocation.target() {
                RelocationTarget::Symbol(index) => match file.symbol_by_index(index) {
                    Ok(symbol) => self.address(&symbol),
                    Err(_) => continue,
                },
                RelocationTarget::Section(index) => self.start(index).unwrap_or(0),
                _ => continue,
            };
            let value = target
                .wrapping_add_signed(relocation.addend())
                .to_le_bytes();
            let width = usize::from(relocation.size() / 8).min(value.len());
            let start = offset as usize;
            if let Some(place) = bytes.get_mut(start..start + width) {
                place.copy_from_slice(&value[..width]);
            }
        }
    }
}
