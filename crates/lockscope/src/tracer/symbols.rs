//! The kernel's symbol table, `/proc/kallsyms`.

use std::collections::HashSet;
use std::fs;

use crate::trace::{Module, Symbol};
use crate::tracer::error::TracerError;

/// First address after the kernel's image on x86-64 (`Documentation/arch/x86/x86_64/mm.rst`):
/// where modules and compiled BPF programs begin.
pub(crate) const IMAGE_END: u64 = 0xffff_ffff_c000_0000;

/// Names of the running kernel's addresses.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Sorted by address; several names for one address as they were listed.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    address: u64,
    name: String,
    module: Option<String>,
}

impl Symbols {
    /// Those of the running kernel.
    ///
    /// # Errors
    /// They cannot be read, or the kernel hides the addresses.
    pub(crate) fn of_the_kernel() -> Result<Self, TracerError> {
        const FILE: &str = "/proc/kallsyms";
        let text = fs::read_to_string(FILE).map_err(|source| TracerError::Io {
            what: FILE.into(),
            source,
        })?;
        let symbols = Self::parse(&text);
        match symbols.entries.last() {
            Some(last) if last.address != 0 => Ok(symbols),
            _ => Err(TracerError::HiddenAddresses),
        }
    }

    fn parse(text: &str) -> Self {
        let mut entries: Vec<_> = text.lines().filter_map(Entry::parse).collect();
        entries.sort_by_key(|entry| entry.address);
        Self { entries }
    }

    /// The symbol that a *return* address lies in: the instruction before it made the call, and
    /// after a call that never returns comes another function.
    pub(crate) fn of_return(&self, address: u64) -> Option<Symbol> {
        let mut symbol = self.of(address.checked_sub(1)?)?;
        symbol.address = address;
        symbol.offset += 1;
        Some(symbol)
    }

    /// The symbol that `address` lies in or after.
    pub(crate) fn of(&self, address: u64) -> Option<Symbol> {
        let after = self
            .entries
            .partition_point(|entry| entry.address <= address);
        let last = self.entries.get(after.checked_sub(1)?)?;
        // The first name of several.
        let first = self
            .entries
            .partition_point(|entry| entry.address < last.address);
        let entry = &self.entries[first];
        if entry.module.is_none() && address >= IMAGE_END {
            // A program or a module that was loaded after the table was read.
            return None;
        }
        Some(Symbol {
            address,
            name: entry.name.clone(),
            offset: address - entry.address,
            module: entry.module.clone(),
        })
    }

    /// Address of the symbol `name` of the kernel's image. O(symbols).
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        let named = |entry: &&Entry| entry.module.is_none() && entry.name == name;
        self.entries.iter().find(named).map(|entry| entry.address)
    }

    /// The names of the kernel's image.
    pub(crate) fn names(&self) -> HashSet<&str> {
        let own = |entry: &&Entry| entry.module.is_none();
        let names = self.entries.iter().filter(own);
        names.map(|entry| entry.name.as_str()).collect()
    }
}

impl Entry {
    /// `ffffffff81000000 T _text`, and `\t[module]` behind the names of modules.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let _kind = words.next()?;
        let name = words.next()?.to_owned();
        let module = words.next().map(|word| word.trim_matches(['[', ']']));
        Some(Self {
            address,
            name,
            module: module.map(str::to_owned),
        })
    }
}

/// The loaded modules, from the text of `/proc/modules`, sorted by address.
pub(crate) fn parse_modules(text: &str) -> Vec<Module> {
    let parse = |line: &str| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let base = words.get(5)?.trim_start_matches("0x");
        Some(Module {
            name: (*words.first()?).to_owned(),
            base: u64::from_str_radix(base, 16).ok()?,
            size: words.get(1)?.parse().ok()?,
        })
    };
    let mut modules: Vec<_> = text.lines().filter_map(parse).collect();
    modules.sort_by_key(|module| module.base);
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81001000 T pipe_write
ffffffff81001200 t pipe_read
ffffffffc0400010 t ext4_map_blocks\t[ext4]
";

    #[test]
    fn an_address_is_named_by_the_symbol_before_it() {
        let symbols = Symbols::parse(TEXT);
        let found = symbols.of(0xffff_ffff_8100_1010).unwrap();
        assert_eq!((found.name.as_str(), found.offset), ("pipe_write", 0x10));
        assert_eq!(symbols.of(0xffff_ffff_8000_0000), None);
        assert_eq!(symbols.of(0xffff_ffff_8100_0004).unwrap().name, "_text");
        assert!(symbols.names().contains("_stext"));
        assert_eq!(symbols.address("pipe_read"), Some(0xffff_ffff_8100_1200));
        let module = symbols.of(0xffff_ffff_c040_0020).unwrap().module;
        assert_eq!(module.as_deref(), Some("ext4"));
        assert_eq!(symbols.of(0xffff_ffff_c030_0000), None);
    }

    #[test]
    fn a_return_address_right_after_a_function_belongs_to_it() {
        let symbols = Symbols::parse(TEXT);
        let found = symbols.of_return(0xffff_ffff_8100_1200).unwrap();
        assert_eq!(found.name, "pipe_write");
        assert_eq!(
            (found.address, found.offset),
            (0xffff_ffff_8100_1200, 0x200)
        );
    }

    #[test]
    fn modules_have_their_base_and_size() {
        let text = "ext4 1118208 1 - Live 0xffffffffc0400000\nmbcache 16384 1 ext4, Live 0x0000\n";
        let modules = parse_modules(text);
        assert_eq!(modules.len(), 2);
        assert_eq!(modules[1].name, "ext4");
        assert_eq!(modules[1].base, 0xffff_ffff_c040_0000);
        assert_eq!(modules[1].size, 1_118_208);
    }
}
