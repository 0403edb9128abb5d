//! The calls of an image, found in its machine code.

use std::collections::BTreeMap;

use object::{Object, ObjectSection, ObjectSymbol};

/// All near calls and jumps to functions in the text.
pub(crate) fn calls(image: &[u8]) -> BTreeMap<String, Vec<(String, u64)>> {
    let file = object::File::parse(image).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let code = text.data().unwrap();
    let functions: BTreeMap<u64, String> = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
        .map(|symbol| (symbol.address(), symbol.name().unwrap().to_owned()))
        .collect();
    let mut found: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for at in 0..code.len().saturating_sub(4) {
        if code[at] != 0xe8 && code[at] != 0xe9 {
            continue;
        }
        let distance = i32::from_le_bytes(code[at + 1..at + 5].try_into().unwrap());
        let after = text.address() + at as u64 + 5;
        let Some(callee) = functions.get(&after.wrapping_add_signed(i64::from(distance))) else {
            continue;
        };
        let (_, caller) = functions.range(..after).next_back().unwrap();
        found
            .entry(caller.clone())
            .or_default()
            .push((callee.clone(), after));
    }
    found
}
