//! What a guest can import, and programs whose imports have been resolved.

use crate::guest::Guest;
use crate::wasi::http::bindings::HandlerPre;
use leasehold_wasm::code::{Code, Entry};
use wasmtime::InstancePre;
use wasmtime_wasi::p2::bindings::CommandPre;

/// A program whose imports have been resolved.
#[derive(Clone)]
pub(crate) enum Prepared {
    Module(InstancePre<Guest>),
    Component(CommandPre<Guest>),
    /// A component whose exports are called.
    Exports(wasmtime::component::InstancePre<Guest>),
    /// A component that answers requests.
    Handler(HandlerPre<Guest>),
}

/// Everything a guest can import, for the programs of one engine.
pub(crate) struct Linkers {
    pub(crate) module: wasmtime::Linker<Guest>,
    pub(crate) component: wasmtime::component::Linker<Guest>,
}

impl Linkers {
    /// Resolves the imports of a program: tens of microseconds, and more the more imports it has.
    ///
    /// # Errors
    /// When it imports something with a type that is not the one offered.
    pub(crate) fn prepare(&self, code: &Code, entry: Entry) -> wasmtime::Result<Prepared> {
        let component = match code {
            Code::Module(module) => {
                return Ok(Prepared::Module(self.module.instantiate_pre(module)?));
            }
            Code::Component(component) => self.component.instantiate_pre(component)?,
        };
        Ok(match entry {
            Entry::Command => Prepared::Component(CommandPre::new(component)?),
            Entry::Exports => Prepared::Exports(component),
            Entry::Handler => Prepared::Handler(HandlerPre::new(component)?),
        })
    }
}
