//! The initial contents of a program's linear memory, apart from its code.
//!
//! A language engine has 10 to 40 MB of them, the same for every tenant that runs it. Data segments
//! are copied when an instance is made, so that each tenant has a copy of all of them. Outside the
//! program, in a file in memory, they can be an area: tenants page it in when they touch it, share
//! it, and copy pages when they write to them. A tenant that does not page and answers requests has the file mapped
//! into the memory of each instance.
//!
//! 1. *The meaning stays.* Only segments whose place is known are taken out, of a program with one
//!    linear memory, and all of them or none (`segments`): the code that makes the memory copies
//!    them before the program runs.
//! 2. *Only where it pays.* The first access to a shared page is a fault. Contents that are [not worth it](Worth),
//!    since they are small or scattered, are copied as before.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use wasm_encoder::RawSection;
use wasmparser::{BinaryReaderError, Parser, Payload};

use crate::core_modules::rewrite_core_modules;
use crate::data_segments::{Segment, segments};
use crate::limits::MAX_DATA_BYTES;

/// The contents that are worth an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worth {
    /// Their bytes, at least.
    pub least: usize,
    /// How many times as much memory they are scattered over, at most.
    pub spread: usize,
    /// Bytes of that memory, at most: the host holds them beside those of the tenants.
    pub most: usize,
}

impl Worth {
    /// As an area of their own. Fewer bytes are copied in less time, and each page of more memory has a frame.
    pub const SHARED: Self = Self {
        least: 64 << 10,
        spread: 2,
        most: MAX_DATA_BYTES as usize,
    };

    /// Shown in a memory. Fewer bytes are copied in less time than the first accesses to pages of a file take.
    pub const SHOWN: Self = Self {
        least: 1 << 20,
        spread: 3,
        most: 32 << 20,
    };
}

/// Bytes of a page of the host.
pub const PAGE: usize = 4096;

/// Bytes of an image that are copied at once: few enough to stay in the processor's cache.
const COPIED_AT_ONCE: usize = 256 << 10;

/// The contents of a program's linear memory before its first instruction. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Image(Arc<Contents>);

#[derive(Debug)]
struct Contents {
    facts: ImageFacts,
    /// Nothing changes its pages there, or shortens it.
    file: Arc<File>,
    /// The byte of it at which they begin.
    start: u64,
}

/// What is known of an image apart from its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageFacts {
    /// The first page of the memory that it covers.
    first: u32,
    pages: u32,
    digest: [u8; 32],
}

impl ImageFacts {
    /// Bytes of it in an entry of the cache.
    pub(crate) const BYTES: usize = 4 + 4 + 32;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.first.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pages.to_le_bytes());
        bytes[8..].copy_from_slice(&self.digest);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (first, rest) = bytes.split_first_chunk()?;
        let (pages, digest) = rest.split_first_chunk()?;
        Some(Self {
            first: u32::from_le_bytes(*first),
            pages: u32::from_le_bytes(*pages),
            digest: digest.try_into().ok()?,
        })
    }

    /// Bytes of its pages.
    pub(crate) fn length(self) -> u64 {
        u64::from(self.pages) * PAGE as u64
    }
}

/// A file in memory of so many pages, which nobody can change once `fill` has written them.
fn sealed(pages: usize, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<Arc<File>> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file: File = rustix::fs::memfd_create("leasehold-image", flags)?.into();
    file.set_len((pages * PAGE) as u64)?;
    fill(&file)?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(Arc::new(file))
}

impl Image {
    /// The image of a program, given as the bytes of a module or component; `None` if it has none
    /// that can be shared.
    ///
    /// # Errors
    /// The parser's, if they are not well-formed.
    pub fn of(wasm: &[u8]) -> Result<Option<Image>, BinaryReaderError> {
        Ok(take_image(wasm, Worth::SHARED)?.1)
    }

    /// Pages of linear memory that it covers.
    pub fn pages(&self) -> u32 {
        self.0.facts.pages
    }

    /// The first of them.
    pub fn first(&self) -> u32 {
        self.0.facts.first
    }

    /// The identity of the image: a digest of its contents and their place.
    pub fn digest(&self) -> [u8; 32] {
        self.0.facts.digest
    }

    /// A file of nothing but its pages, which is never written to.
    ///
    /// # Errors
    /// The system's, when there are too many descriptors; `Unsupported` if it is [within](Self::place) another file.
    pub fn file(&self) -> io::Result<File> {
        match self.0.start {
            0 => self.0.file.try_clone(),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The file that has its pages, shared, so that no other descriptor is needed, and the byte of it at which they begin.
    /// Nothing changes them there, and the file does not become shorter.
    pub fn place(&self) -> (Arc<File>, u64) {
        (self.0.file.clone(), self.0.start)
    }

    /// One of its pages; `None` behind the last one.
    ///
    /// # Errors
    /// The system's.
    pub fn page(&self, page: u32) -> io::Result<Option<[u8; PAGE]>> {
        if page >= self.0.facts.pages {
            return Ok(None);
        }
        let mut bytes = [0; PAGE];
        let from = self.0.start + u64::from(page) * PAGE as u64;
        self.0.file.read_exact_at(&mut bytes, from)?;
        Ok(Some(bytes))
    }

    /// The image that these segments make, if it is worth one.
    fn from_segments(segments: &[Segment<'_>], worth: Worth) -> Option<io::Result<Image>> {
        let bytes: usize = segments.iter().map(|segment| segment.data.len()).sum();
        let start = segments.iter().map(|segment| segment.start).min()?;
        let end = segments.iter().map(Segment::end).max()?;
        let (first, last) = (start / PAGE, end.div_ceil(PAGE));
        let covered = (last - first) * PAGE;
        let is_worth = bytes >= worth.least
            && covered <= worth.spread.saturating_mul(bytes)
            && covered <= worth.most;
        is_worth.then(|| Self::write(segments, first, last - first))
    }

    fn write(segments: &[Segment<'_>], first: usize, pages: usize) -> io::Result<Image> {
        let mut digest = blake3::Hasher::new();
        let file = sealed(pages, |file| {
            // In the order of the module: where segments overlap, the last one stays.
            for segment in segments {
                file.write_all_at(segment.data, (segment.start - first * PAGE) as u64)?;
                digest.update(&(segment.start as u64).to_le_bytes());
                digest.update(&(segment.data.len() as u64).to_le_bytes());
                digest.update(segment.data);
            }
            Ok(())
        })?;
        let facts = ImageFacts {
            first: first as u32,
            pages: pages as u32,
            digest: digest.finalize().into(),
        };
        Ok(Image(Arc::new(Contents {
            facts,
            file,
            start: 0,
        })))
    }

    /// What is known of it apart from its pages.
    pub(crate) fn facts(&self) -> ImageFacts {
        self.0.facts
    }

    /// An image of which `facts` are known, whose pages are those of a file from its byte `start` on. To look at them does not
    /// change when the file was last read, for which a file system may have to wait.
    ///
    /// # Errors
    /// The system's, if this is not its user's file.
    ///
    /// # Safety
    /// Nothing changes the file.
    pub(crate) unsafe fn within(facts: ImageFacts, file: File, start: u64) -> io::Result<Image> {
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags | OFlags::NOATIME)?;
        let file = Arc::new(file);
        Ok(Image(Arc::new(Contents { facts, file, start })))
    }

    /// An image of which `facts` are known, with its pages copied from a file, where they begin at byte `from`.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` if the file ends before.
    pub(crate) fn restored(facts: ImageFacts, pages: &File, from: u64) -> io::Result<Image> {
        let mut block = vec![0; COPIED_AT_ONCE];
        let file = sealed(facts.pages as usize, |file| {
            let (mut at, end) = (0, u64::from(facts.pages) * PAGE as u64);
            while at < end {
                let bytes = (end - at).min(COPIED_AT_ONCE as u64);
                let block = &mut block[..bytes as usize];
                pages.read_exact_at(block, from + at)?;
                write_pages(file, block, at)?;
                at += bytes;
            }
            Ok(())
        })?;
        Ok(Image(Arc::new(Contents {
            facts,
            file,
            start: 0,
        })))
    }
}

/// Writes those of some whole pages that are not blank: the pages of a new file are.
fn write_pages(file: &File, mut pages: &[u8], mut at: u64) -> io::Result<()> {
    static BLANK: [u8; PAGE] = [0; PAGE];
    let is_blank = |page: &[u8]| *page == BLANK;
    while let Some(first) = pages.chunks(PAGE).next().map(is_blank) {
        let alike = pages
            .chunks(PAGE)
            .take_while(|page| is_blank(page) == first);
        let (run, rest) = pages.split_at(alike.map(<[u8]>::len).sum());
        if !first {
            file.write_all_at(run, at)?;
        }
        at += run.len() as u64;
        pages = rest;
    }
    Ok(())
}

/// The program without its image, and the image, if it is worth one; the program as it is if it has none. Valid
/// for programs that make one linear memory: with several, the one that it belongs to could not be
/// determined.
///
/// # Errors
/// The parser's, if `wasm` is not well-formed.
pub(crate) fn take_image(
    wasm: &[u8],
    worth: Worth,
) -> Result<(Cow<'_, [u8]>, Option<Image>), BinaryReaderError> {
    let mut images = Vec::new();
    let rewritten = rewrite_core_modules(wasm, &mut |module| {
        let segments = segments(module)?;
        let image = segments.as_deref();
        let image = image.and_then(|segments| Image::from_segments(segments, worth));
        match image {
            Some(Ok(image)) => {
                images.push(image);
                without_segments(module)
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "the initial memory of a program is not shared");
                Ok(module.into())
            }
            None => Ok(module.into()),
        }
    })?;
    // With two images, the instantiated one could not be determined either.
    match (images.pop(), images.is_empty()) {
        (Some(image), true) => Ok((rewritten, Some(image))),
        _ => Ok((wasm.into(), None)),
    }
}

fn without_segments(wasm: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let mut module = wasm_encoder::Module::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        let is_data = matches!(
            payload,
            Payload::DataSection(_) | Payload::DataCountSection { .. }
        );
        if let Some((id, range)) = payload.as_section()
            && !is_data
        {
            let data = &wasm[range];
            module.section(&RawSection { id, data });
        }
    }
    Ok(module.finish().into())
}

#[cfg(test)]
mod tests {
    use super::{Image, Worth, take_image};

    const LEAST: usize = Worth::SHARED.least;

    /// A module whose memory holds these texts at these places, each followed by `bytes` bytes.
    fn module(places: &[(usize, char)], bytes: usize) -> Vec<u8> {
        let segments: String = places
            .iter()
            .map(|(at, byte)| {
                let data = byte.to_string().repeat(bytes);
                format!("(data (i32.const {at}) \"{data}\")")
            })
            .collect();
        wat::parse_str(format!("(module (memory 64) {segments})")).expect("a module")
    }

    fn contents(image: &Image) -> Vec<u8> {
        (0..)
            .map_while(|page| image.page(page).expect("read"))
            .flatten()
            .collect()
    }

    #[test]
    fn an_image_is_what_the_segments_would_have_written() {
        let wasm = module(&[(5000, 'a'), (5000 + LEAST, 'b'), (6000, 'c')], LEAST);
        let (rest, image) = take_image(&wasm, Worth::SHARED).expect("well-formed");
        let image = image.expect("worth sharing");
        assert_eq!((image.first(), image.pages()), (1, 33));
        let all = contents(&image);
        let at = |address: usize| all[address - 4096];
        assert_eq!([at(4999), at(5000), at(5999)], [0, b'a', b'a']);
        assert_eq!(
            [at(6000), at(5999 + LEAST)],
            [b'c', b'c'],
            "the last one stays"
        );
        assert_eq!(at(6000 + LEAST), b'b');
        let (again, none) = take_image(&rest, Worth::SHARED).expect("well-formed");
        assert!(none.is_none() && again == rest, "nothing of it is left");
        wasmparser::Validator::new()
            .validate_all(&rest)
            .expect("valid");
    }

    #[test]
    fn what_is_small_or_scattered_stays_in_the_program() {
        for wasm in [
            module(&[(0, 'a')], LEAST - 1),
            module(&[(0, 'a'), (8 * LEAST, 'b')], LEAST / 2),
        ] {
            let (same, image) = take_image(&wasm, Worth::SHARED).expect("well-formed");
            assert!(image.is_none() && same == wasm);
        }
    }

    #[test]
    fn equal_contents_are_one_image_and_others_are_not() {
        let digest = |wasm: &[u8]| Image::of(wasm).expect("well-formed").expect("one").digest();
        let first = digest(&module(&[(0, 'a')], LEAST));
        assert_eq!(first, digest(&module(&[(0, 'a')], LEAST)));
        assert_ne!(first, digest(&module(&[(0, 'b')], LEAST)));
        assert_ne!(first, digest(&module(&[(1, 'a')], LEAST)));
    }

    #[test]
    fn two_modules_with_data_have_no_image_that_could_be_told_apart() {
        let one = "(memory 4) (data (i32.const 0) \"DATA\")".replace("DATA", &"x".repeat(LEAST));
        let text = format!(
            "(component (core module $a {one}) (core module $b {one}) (core instance (instantiate \
             $a)))"
        );
        let wasm = wat::parse_str(text).expect("a component");
        let (same, image) = take_image(&wasm, Worth::SHARED).expect("well-formed");
        assert!(image.is_none() && same == wasm);
    }
}
