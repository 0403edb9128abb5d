//! The guests whose speed is compared: kernels that a check in the inner loop hurts most, and real
//! programs.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// A program and what it gets.
pub(super) struct Guest {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) args: Vec<String>,
    pub(super) input: Vec<u8>,
    /// Fewest bytes that it prints if it does its work.
    prints: usize,
}

/// The kernels: each is a command that computes for some tens of milliseconds.
const KERNELS: [(&str, &str); 9] = [
    ("matrix product", include_str!("matrix.wat")),
    ("vector product", include_str!("vector.wat")),
    ("loads", include_str!("loads.wat")),
    ("cipher", include_str!("cipher.wat")),
    ("recursion", include_str!("recursion.wat")),
    ("bulk memory", include_str!("bulk.wat")),
    ("tables", include_str!("tables.wat")),
    ("growth", include_str!("growth.wat")),
    ("host calls", include_str!("calls.wat")),
];

impl Guest {
    /// All of them.
    ///
    /// # Errors
    /// When a program was not built.
    pub(super) fn all(directory: &Path) -> Result<Vec<Guest>> {
        let mut guests: Vec<Guest> = KERNELS
            .iter()
            .map(|(name, text)| Guest::kernel(name, text))
            .collect();
        let real = |name: &'static str, args: &[&str], input: Vec<u8>| -> Result<Guest> {
            let program = name.split(' ').next().unwrap_or(name);
            Ok(Guest {
                name,
                bytes: built(directory, program)?,
                args: std::iter::once(&program)
                    .chain(args)
                    .map(|arg| (*arg).to_owned())
                    .collect(),
                input,
                prints: 16,
            })
        };
        guests.push(real("mandelbrot (C)", &["400"], Vec::new())?);
        guests.push(real("jsonsort (Go)", &["score"], objects(5_000))?);
        guests.push(real("wordcount (Rust)", &[], text(2_000_000))?);
        Ok(guests)
    }

    /// A command that takes nothing and prints nothing.
    pub(super) fn kernel(name: &'static str, text: &str) -> Guest {
        Guest {
            name,
            bytes: text.as_bytes().to_vec(),
            args: vec![name.into()],
            input: Vec::new(),
            prints: 0,
        }
    }

    /// Whether the program did its work.
    ///
    /// # Errors
    /// When it printed less than it must have.
    pub(super) fn check(&self, output: &[u8]) -> Result<()> {
        ensure!(
            output.len() >= self.prints,
            "{} printed {} bytes",
            self.name,
            output.len()
        );
        Ok(())
    }
}

/// The bytes of a built guest.
fn built(directory: &Path, name: &str) -> Result<Vec<u8>> {
    let path = directory.join(name).with_extension("wasm");
    std::fs::read(&path)
        .with_context(|| format!("the guest {} (guests/build makes it)", path.display()))
}

/// A JSON array of `n` objects, in no order.
fn objects(n: u32) -> Vec<u8> {
    let object = |i: u32| {
        let score = i.wrapping_mul(2_654_435_761) >> 8;
        format!("{{\"name\": \"object {i}\", \"score\": {score}, \"tags\": [\"a\", \"b\"]}}")
    };
    let list: Vec<String> = (0..n).map(object).collect();
    format!("[{}]", list.join(", ")).into_bytes()
}

/// About `bytes` of words, of which some thousand differ.
fn text(bytes: usize) -> Vec<u8> {
    let word = |i: usize| format!("word{}", i.wrapping_mul(2_654_435_761) % 4001);
    let mut text = String::with_capacity(bytes + 16);
    for i in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&word(i));
        text.push(if i % 12 == 11 { '\n' } else { ' ' });
    }
    text.into_bytes()
}
