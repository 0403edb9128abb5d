//! Memory that is taken in pieces, written to, and given back (LockScope §6.1.1).

use crate::{Outcome, Work};

/// Bytes of a round.
const TOTAL: usize = 16 << 20;
const PAGE: usize = 4096;

/// Takes pieces of one size.
pub(crate) struct Pieces {
    size: usize,
}

impl Pieces {
    pub(crate) fn of(size: usize) -> Self {
        Self { size }
    }
}

impl Work for Pieces {
    fn round(&mut self) -> Outcome<bool> {
        let mut pieces = Vec::with_capacity(TOTAL / self.size);
        for _ in 0..TOTAL / self.size {
            let mut piece = Piece::take(self.size)?;
            piece.touch();
            pieces.push(piece);
        }
        Ok(true)
    }
}

/// On a host: a mapping of its own.
#[cfg(unix)]
struct Piece {
    at: *mut std::ffi::c_void,
    size: usize,
}

#[cfg(unix)]
impl Piece {
    fn take(size: usize) -> Outcome<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, without references to it.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), size, access, MapFlags::PRIVATE)? };
        Ok(Self { at, size })
    }

    /// Writes to each page.
    fn touch(&mut self) {
        for offset in (0..self.size).step_by(PAGE) {
            // SAFETY: inside the mapping, which is writable and lives as long as `self`.
            unsafe { self.at.cast::<u8>().add(offset).write_volatile(1) };
        }
    }
}

#[cfg(unix)]
impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and no reference to it is left. It can only
        // fail if it is no mapping, and then there is nothing to give back.
        let _ = unsafe { rustix::mm::munmap(self.at, self.size) };
    }
}

/// In wasm: memory of the program's allocator, which cannot give any back to the host.
#[cfg(target_family = "wasm")]
struct Piece {
    bytes: Vec<u8>,
}

#[cfg(target_family = "wasm")]
impl Piece {
    fn take(size: usize) -> Outcome<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size)?;
        Ok(Self { bytes })
    }

    fn touch(&mut self) {
        for page in self.bytes.spare_capacity_mut().chunks_mut(PAGE) {
            page[0].write(1);
            std::hint::black_box(page);
        }
    }
}
