//! A compiled program in a file: its code, then the pages of its image, then what is known of both.
//!
//! The [cache](crate::artifact) keeps programs so, and a [process that compiles](crate::compiler) returns them so. The code
//! is first, since it is mapped, and a mapping begins with a page; so do the pages of the image.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use wasmtime::{Engine, Module, component::Component};

use crate::code::{Code, Form};
use crate::compiled::Compiled;
use crate::entry_pages::EntryPages;
use crate::image::{Image, ImageFacts, PAGE};
use crate::inventory::Inventory;

/// Behind the code and the image: whether it is a component, the inventory, and what the image is, of no page if there is
/// none.
pub(crate) const FACTS_BYTES: usize = 1 + Inventory::WORDS * 8 + ImageFacts::BYTES;

/// What such a file contains.
pub(crate) struct Content {
    code: Vec<u8>,
    pages: Vec<u8>,
    facts: Vec<u8>,
}

impl Content {
    /// The content for code as the engine serialises it, of a module or a component.
    ///
    /// # Errors
    /// When the image cannot be read.
    pub(crate) fn new(
        mut code: Vec<u8>,
        is_component: bool,
        inventory: &Inventory,
        image: Option<&Image>,
    ) -> anyhow::Result<Self> {
        let (mut pages, mut shown) = (Vec::new(), [0; ImageFacts::BYTES]);
        if let Some(image) = image {
            code.resize(code.len().next_multiple_of(PAGE), 0);
            shown = image.facts().to_bytes();
            pages = vec![0; usize::try_from(image.facts().length())?];
            let (file, start) = image.place();
            file.read_exact_at(&mut pages, start)?;
        }
        let facts = [&[u8::from(is_component)][..], &inventory.to_bytes(), &shown].concat();
        Ok(Self { code, pages, facts })
    }

    /// The content for a program that was compiled here.
    ///
    /// # Errors
    /// The engine's, and as those of [`new`](Self::new).
    pub(crate) fn of(program: &Compiled) -> anyhow::Result<Self> {
        let (is_component, code) = match &program.code {
            Code::Module(module) => (false, module.serialize()),
            Code::Component(component) => (true, component.serialize()),
        };
        let code = code.map_err(|error| anyhow::anyhow!("{error:#}"))?;
        Self::new(
            code,
            is_component,
            &program.inventory,
            program.image.as_ref(),
        )
    }

    /// What the file has, one after the other.
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        [&self.code, &self.pages, &self.facts]
    }
}

/// What is kept of a program.
pub(crate) struct Kept {
    pub(crate) code: Code,
    /// The pages of the file, if it is mapped.
    pub(crate) pages: Option<EntryPages>,
    /// Its bytes, without what else is mapped with it.
    pub(crate) code_bytes: u64,
    pub(crate) inventory: Inventory,
    pub(crate) image: Option<Image>,
}

/// What is known of such a file.
pub(crate) struct Entry {
    code_bytes: u64,
    is_component: bool,
    inventory: Inventory,
    /// Of the pages behind the code.
    image: Option<ImageFacts>,
}

impl Entry {
    /// The entry with these facts, which are behind `before` bytes; `None` if they are none.
    pub(crate) fn parse(facts: &[u8], before: u64) -> Option<Self> {
        let (component, facts) = facts.split_first()?;
        let (words, image) = facts.split_at_checked(Inventory::WORDS * 8)?;
        let image = ImageFacts::from_bytes(image)?;
        Some(Self {
            code_bytes: before.checked_sub(image.length())?,
            is_component: *component == 1,
            inventory: Inventory::from_bytes(words)?,
            image: (image.length() > 0).then_some(image),
        })
    }

    /// The program in this form; `None` if this process cannot have it.
    ///
    /// # Safety
    /// The engine serialised the code in `file`, and nothing changes that.
    pub(crate) unsafe fn restore(self, engine: &Engine, file: &File, form: Form) -> Option<Kept> {
        let shown = self.image.filter(|_| form == Form::ImageShown);
        // SAFETY: as this function's.
        let (code, pages) = unsafe {
            self.mapped(engine, file, shown)
                .or_else(|| self.copied(engine, file))
        }?;
        let image = match (shown, &pages) {
            // Of an entry whose pages are locked: a program that looks at one never waits for a disk.
            (Some(facts), Some(_)) => {
                let file = file.try_clone().ok()?;
                // SAFETY: as this function's.
                unsafe { Image::within(facts, file, self.code_bytes) }.ok()
            }
            _ => None,
        };
        let image = match (image, self.image) {
            (None, Some(facts)) => Some(Image::restored(facts, file, self.code_bytes).ok()?),
            (image, _) => image,
        };
        Some(Kept {
            code,
            pages,
            code_bytes: self.code_bytes,
            inventory: self.inventory,
            image,
        })
    }

    /// The code as pages of the entry itself, locked, and with it those of the image that is `shown`; `None` if this process
    /// cannot have it so.
    ///
    /// # Safety
    /// As [`restore`](Self::restore).
    unsafe fn mapped(
        &self,
        engine: &Engine,
        file: &File,
        shown: Option<ImageFacts>,
    ) -> Option<(Code, Option<EntryPages>)> {
        // A limit is for the memory of tenants.
        if !leasehold_confine::locks_without_limit() {
            return None;
        }
        // SAFETY: as this function's.
        let code = unsafe {
            if self.is_component {
                // The engine has a function for open files of modules only.
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                Component::deserialize_file(engine, path).map(Code::Component)
            } else {
                let file = file.try_clone().ok()?;
                Module::deserialize_open_file(engine, file).map(Code::Module)
            }
        };
        let code = code.ok()?;
        let length = self.code_bytes + shown.map_or(0, ImageFacts::length);
        // SAFETY: it was mapped from the file, which as this function's nothing changes.
        let pages = unsafe { EntryPages::lock(&code, length as usize)? };
        Some((code, Some(pages)))
    }

    /// The code in memory of this process.
    ///
    /// # Safety
    /// As [`restore`](Self::restore).
    unsafe fn copied(&self, engine: &Engine, file: &File) -> Option<(Code, Option<EntryPages>)> {
        let mut code = vec![0; usize::try_from(self.code_bytes).ok()?];
        file.read_exact_at(&mut code, 0).ok()?;
        // SAFETY: as this function's.
        let code = unsafe {
            if self.is_component {
                Component::deserialize(engine, code).map(Code::Component)
            } else {
                Module::deserialize(engine, code).map(Code::Module)
            }
        };
        Some((code.ok()?, None))
    }
}
