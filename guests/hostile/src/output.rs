//! Lines on standard output, each in one write.

use core::fmt::{self, Write};

use crate::wasi;

/// A line of at most 126 bytes; the rest is cut off.
pub struct Line {
    bytes: [u8; 127],
    used: usize,
}

impl Line {
    /// Prints `text` and a line feed.
    pub fn print(text: fmt::Arguments<'_>) {
        let mut line = Line {
            bytes: [0; 127],
            used: 0,
        };
        // The only error is a line too long, which is cut off.
        let _ = line.write_fmt(text);
        line.bytes[line.used] = b'\n';
        wasi::write_stdout(&line.bytes[..=line.used]);
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let last = self.bytes.len() - 1;
        let room = &mut self.bytes[self.used..last];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.used += length;
        if length == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}
