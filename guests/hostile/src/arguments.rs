//! The arguments of a hostile guest: positions, each with a default.

use core::ffi::CStr;
use core::ptr;

use crate::Aftermath;
use crate::wasi;

/// Arguments beyond these are not read: the program then has none.
const MAX_ARGUMENTS: usize = 16;
/// Bytes of all arguments, 0 bytes included.
const MAX_BYTES: usize = 1024;

/// Where the arguments lie.
pub(crate) struct Storage {
    pointers: [*const u8; MAX_ARGUMENTS],
    bytes: [u8; MAX_BYTES],
}

impl Storage {
    pub(crate) const fn new() -> Storage {
        Storage {
            pointers: [ptr::null(); MAX_ARGUMENTS],
            bytes: [0; MAX_BYTES],
        }
    }
}

/// The arguments after the program's name.
pub struct Arguments<'a> {
    strings: [&'a str; MAX_ARGUMENTS],
    count: usize,
}

impl<'a> Arguments<'a> {
    pub(crate) fn read(storage: &'a mut Storage) -> Arguments<'a> {
        let count = wasi::read_arguments(&mut storage.pointers, &mut storage.bytes).unwrap_or(0);
        let mut strings = [""; MAX_ARGUMENTS];
        // The strings follow one another, so the pointers need not be believed.
        let mut rest = &storage.bytes[..];
        for string in &mut strings[..count] {
            let Ok(bytes) = CStr::from_bytes_until_nul(rest) else {
                break;
            };
            *string = bytes.to_str().unwrap_or("");
            rest = &rest[bytes.count_bytes() + 1..];
        }
        Arguments { strings, count }
    }

    /// The argument at `position`, the first being 0.
    #[must_use]
    pub fn text(&self, position: usize) -> Option<&'a str> {
        self.strings[..self.count].get(position + 1).copied()
    }

    /// The decimal number at `position`, or `default` if there is none.
    #[must_use]
    pub fn number(&self, position: usize, default: u64) -> u64 {
        self.text(position)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    }

    /// The aftermath named at `position`; to exit if there is none.
    #[must_use]
    pub fn aftermath(&self, position: usize) -> Aftermath {
        match self.text(position) {
            Some("spin") => Aftermath::Spin,
            Some("sleep") => Aftermath::Sleep,
            _ => Aftermath::Exit,
        }
    }
}
