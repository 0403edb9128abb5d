//! Compiled code, the forms in which a program is compiled, and the ways in which it is entered.

use std::ops::Range;

use leasehold_lease::{Lease, SharedPages};
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};
use wasmtime::{Engine, ExternType, Module, component::Component};

use crate::bulk_instructions;
use crate::error::ProgramError;
use crate::image::Worth;
use crate::initial_segments::MostCopied;
use crate::inventory::Inventory;
use crate::limits::{DATA, DATA_PAGES, ELEMENT_PAGES, ELEMENTS};

/// The initialiser that a core module without an entry point may export.
pub const INITIALIZE: &str = "_initialize";

/// Start of the name of the interface that a command component exports.
pub(crate) const RUN: &str = "wasi:cli/run@0.2.";

/// Start of the name of the interface that a component exports which answers HTTP requests.
pub(crate) const HANDLER: &str = "wasi:http/incoming-handler@0.2.";

/// Compiled code of a program.
#[derive(Clone)]
#[allow(missing_debug_implementations)]
pub enum Code {
    /// A core module for WASI preview 1: entry point `_start`.
    Module(Module),
    /// A command component for WASI preview 2: entry point `run` of `wasi:cli/run`.
    Component(Component),
}

impl Code {
    /// The engine that compiled it.
    pub fn engine(&self) -> &Engine {
        match self {
            Code::Module(module) => module.engine(),
            Code::Component(component) => component.engine(),
        }
    }

    /// Bytes of memory that it is [mapped in](Self::range).
    pub(crate) fn bytes(&self) -> u64 {
        let range = self.range();
        (range.end.addr() - range.start.addr()) as u64
    }

    /// The memory that it is mapped in: machine code, and what the engine knows of it. Of code of the
    /// [cache](crate::artifact), what else its entry has is among them.
    pub(crate) fn range(&self) -> Range<*const u8> {
        match self {
            Code::Module(module) => module.image_range(),
            Code::Component(component) => component.image_range(),
        }
    }
}

/// Where the initial contents of a program's memory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// In the code, which copies them when it is started.
    Whole,
    /// The same, for tenants that page: any page may have to be fetched from the disk, so that no
    /// instruction touches many.
    Paged,
    /// In an [image](crate::image::Image), if they are worth it: for tenants that page, which share it.
    ImageApart,
    /// In an image, if they are worth it, which is shown in the memory of each instance: for programs of which one
    /// instance is made after the other.
    ImageShown,
}

impl Form {
    /// The form in which a tenant with this lease can page, and share what the lease lets it share.
    pub fn under(lease: &Lease) -> Self {
        match lease.memory.paging.map(|paging| paging.shared) {
            None => Self::Whole,
            Some(SharedPages::None) => Self::Paged,
            Some(SharedPages::Conserve | SharedPages::Lock | SharedPages::Auto) => Self::ImageApart,
        }
    }

    /// The contents that are worth an image of their own; `None` if none are.
    pub(crate) fn worth(self) -> Option<Worth> {
        match self {
            Self::Whole | Self::Paged => None,
            Self::ImageApart => Some(Worth::SHARED),
            Self::ImageShown => Some(Worth::SHOWN),
        }
    }

    /// Whether it is for tenants that page.
    pub fn is_for_paging(self) -> bool {
        matches!(self, Self::Paged | Self::ImageApart)
    }

    /// What the engine may copy when it makes the instances of a program with this inventory.
    pub(crate) fn most_copied(self, inventory: &Inventory) -> MostCopied {
        let evaluated = inventory.elements + inventory.passive_elements;
        // The engine makes all instances in one step: each has its share of what it may copy.
        let shares = inventory.instances.max(1);
        let (data_bytes, data_pages) = match self {
            Self::Whole | Self::ImageShown => (DATA.most / shares, DATA_PAGES.most / shares),
            Self::Paged | Self::ImageApart => (0, 0),
        };
        MostCopied {
            data_bytes: data_bytes as usize,
            data_pages,
            // Of all instances together.
            elements: match evaluated <= ELEMENTS.most {
                true => ELEMENTS.most,
                false => 0,
            },
            element_pages: match inventory.instances <= 1
                || inventory.segments <= ELEMENT_PAGES.most
            {
                true => ELEMENT_PAGES.most,
                false => 0,
            },
        }
    }

    /// Bytes of linear memory that an instruction may touch.
    pub(crate) fn bulk_bytes(self) -> u32 {
        match self {
            Self::Whole | Self::ImageShown => bulk_instructions::CHUNK,
            Self::Paged | Self::ImageApart => bulk_instructions::PAGED_CHUNK,
        }
    }
}

/// How a tenant runs a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// From its entry point, once: `_start`, or `run` of `wasi:cli/run`.
    Command,
    /// Its exported functions are called, any number of times. A core module that exports
    /// `_initialize` is initialised first.
    Exports,
    /// It answers HTTP requests: a component that exports `wasi:http/incoming-handler`. Instances
    /// are made for the requests that come.
    Handler,
}

/// The use that a program is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Purpose {
    /// How it is run.
    pub entry: Entry,
    /// Where the initial contents of its memory are.
    pub form: Form,
}

impl Purpose {
    /// A command for tenants that do not page.
    pub const COMMAND: Self = Self {
        entry: Entry::Command,
        form: Form::Whole,
    };

    /// A program that is run in this way by a tenant with this lease.
    pub fn under(lease: &Lease, entry: Entry) -> Self {
        let form = match (Form::under(lease), entry) {
            (Form::Whole, Entry::Handler) => Form::ImageShown,
            (form, _) => form,
        };
        Self { entry, form }
    }

    /// All of them.
    fn all() -> impl Iterator<Item = Self> {
        let entries = [Entry::Command, Entry::Exports, Entry::Handler];
        let forms = [Form::Whole, Form::Paged, Form::ImageApart, Form::ImageShown];
        let with = move |entry| forms.map(|form| Self { entry, form });
        entries.into_iter().flat_map(with)
    }

    /// A number for it, which processes of this program say to each other.
    pub(crate) fn to_byte(self) -> u8 {
        let nth = Self::all().position(|purpose| purpose == self);
        nth.map_or(u8::MAX, |nth| nth as u8)
    }

    /// The purpose with this number.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::all().nth(byte.into())
    }
}

/// Whether the entry point has the type with which a cell calls it.
pub(crate) fn check_entry_type(
    entry: Entry,
    engine: &Engine,
    code: &Code,
) -> Result<(), ProgramError> {
    let is_entry = |export: Option<ExternType>| {
        let ty = export.as_ref().and_then(ExternType::func);
        ty.is_some_and(|ty| ty.params().len() == 0 && ty.results().len() == 0)
    };
    match (code, entry) {
        (Code::Module(module), Entry::Command) => is_entry(module.get_export("_start"))
            .then_some(())
            .ok_or(ProgramError::EntryType("the function _start", "nothing")),
        (Code::Module(module), Entry::Exports) => module
            .get_export(INITIALIZE)
            .is_none_or(|export| is_entry(Some(export)))
            .then_some(())
            .ok_or(ProgramError::EntryType(
                "the function _initialize",
                "nothing",
            )),
        (Code::Component(_), Entry::Exports) => Ok(()),
        (Code::Module(_), Entry::Handler) => Err(ProgramError::NoHandler),
        // Its type is compared with the interface's when the imports are resolved.
        (Code::Component(component), Entry::Handler) => {
            let ty = component.component_type();
            let mut exports = ty.exports(engine);
            let found = exports.any(|(name, _)| name.starts_with(HANDLER));
            found.then_some(()).ok_or(ProgramError::NoHandler)
        }
        (Code::Component(component), Entry::Command) => {
            let ty = component.component_type();
            let mut commands = ty.exports(engine).filter(|(name, _)| name.starts_with(RUN));
            let is_entry = commands.any(|(_, export)| match export.ty {
                ComponentItem::ComponentInstance(instance) => {
                    let run = instance.get_export(engine, "run");
                    matches!(run.map(|run| run.ty), Some(ComponentItem::ComponentFunc(run)) if is_run(&run))
                }
                _ => false,
            });
            is_entry.then_some(()).ok_or(ProgramError::EntryType(
                "run of wasi:cli/run@0.2",
                "a result",
            ))
        }
    }
}

fn is_run(run: &ComponentFunc) -> bool {
    let results: Vec<Type> = run.results().collect();
    run.params().len() == 0
        && matches!(&results[..], [Type::Result(result)] if result.ok().is_none() && result.err().is_none())
}

#[cfg(test)]
mod tests {
    use super::Purpose;

    #[test]
    fn every_purpose_has_a_number_of_its_own() {
        assert_eq!(Purpose::all().count(), 12);
        for purpose in Purpose::all() {
            assert_eq!(Purpose::from_byte(purpose.to_byte()), Some(purpose));
        }
        assert_eq!(Purpose::from_byte(12), None);
    }
}
