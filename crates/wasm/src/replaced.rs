//! Instructions that are replaced by calls of functions appended to their module.
//!
//! Nothing else changes: no index shifts, and all bytes but those of the replaced instructions are copied as they are.

use std::collections::BTreeMap;
use std::ops::Range;

use wasm_encoder::{Encode, Function, Instruction};
use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

/// The bytes of an instruction, and what replaces it.
type Site<K> = (Range<usize>, K);

/// The instructions of a module that are replaced; a function is appended for each `K`.
pub(crate) struct Replaced<K> {
    bodies: Vec<(Range<usize>, Vec<Site<K>>)>,
    /// The functions that the module has.
    functions: u32,
    /// The index of each appended function.
    calls: BTreeMap<K, u32>,
}

impl<K: Copy + Ord> Replaced<K> {
    /// Finds those for which `which` has a replacement, in a module of so many functions.
    ///
    /// # Errors
    ///
    /// The parser's, if `wasm` is not well-formed.
    pub(crate) fn find(
        wasm: &[u8],
        functions: u32,
        which: impl Fn(&Operator<'_>) -> Option<K>,
    ) -> Result<Self, BinaryReaderError> {
        let mut found = Self {
            bodies: Vec::new(),
            functions,
            calls: BTreeMap::new(),
        };
        for payload in Parser::new(0).parse_all(wasm) {
            if let Payload::CodeSectionEntry(body) = payload? {
                let sites = sites(&body, &which)?;
                for &(_, it) in &sites {
                    found.append(it);
                }
                found.bodies.push((body.range(), sites));
            }
        }
        Ok(found)
    }

    /// Appends a function for `it`, unless there is one, and returns its index.
    pub(crate) fn append(&mut self, it: K) -> u32 {
        let next = self.functions + self.calls.len() as u32;
        *self.calls.entry(it).or_insert(next)
    }

    /// What is appended, in the order of the functions' indices.
    pub(crate) fn appended(&self) -> Vec<K> {
        let mut appended: Vec<(u32, K)> = self.calls.iter().map(|(&it, &at)| (at, it)).collect();
        appended.sort_unstable();
        appended.into_iter().map(|(_, it)| it).collect()
    }

    /// The code section: the bodies with calls in place of the instructions, and the appended functions.
    pub(crate) fn code(&self, wasm: &[u8], function: impl Fn(K) -> Function) -> Vec<u8> {
        let appended = self.appended();
        let mut data = Vec::new();
        ((self.bodies.len() + appended.len()) as u32).encode(&mut data);
        for (body, sites) in &self.bodies {
            let mut code = Vec::with_capacity(body.len());
            let mut copied = body.start;
            for (site, it) in sites {
                code.extend_from_slice(&wasm[copied..site.start]);
                Instruction::Call(self.calls[it]).encode(&mut code);
                copied = site.end;
            }
            code.extend_from_slice(&wasm[copied..body.end]);
            code.encode(&mut data);
        }
        for it in appended {
            function(it).encode(&mut data);
        }
        data
    }
}

/// The replaced instructions of a function body, in order.
fn sites<K>(
    body: &FunctionBody<'_>,
    which: impl Fn(&Operator<'_>) -> Option<K>,
) -> Result<Vec<Site<K>>, BinaryReaderError> {
    let mut sites = Vec::new();
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        let start = operators.original_position();
        let operator = operators.read()?;
        if let Some(it) = which(&operator) {
            sites.push((start..operators.original_position(), it));
        }
    }
    Ok(sites)
}
