//! What a guest can import, and programs whose imports have been resolved.

use crate::guest::Guest;
use crate::wasi::http::bindings::HandlerPre;
use leasehold_wasm::code::{Code, Entry};
use std::fmt;
use std::sync::OnceLock;
use wasmtime::{Engine, InstancePre};
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

/// What links everything for modules, and for components.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) module: fn(&Engine) -> wasmtime::Result<wasmtime::Linker<Guest>>,
    pub(crate) component: fn(&Engine) -> wasmtime::Result<wasmtime::component::Linker<Guest>>,
}

/// Everything a guest can import, for the programs of one engine: linked when the first program of the kind is
/// prepared.
pub(crate) struct Linkers {
    engine: Engine,
    link: Link,
    module: OnceLock<wasmtime::Linker<Guest>>,
    component: OnceLock<wasmtime::component::Linker<Guest>>,
}

impl fmt::Debug for Linkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linkers").finish_non_exhaustive()
    }
}

/// What was made before, or is now. Of two threads that make it at a time, one has made it for nothing.
fn made<T>(
    place: &OnceLock<T>,
    make: impl FnOnce() -> wasmtime::Result<T>,
) -> wasmtime::Result<&T> {
    match place.get() {
        Some(made) => Ok(made),
        None => {
            let made = make()?;
            Ok(place.get_or_init(|| made))
        }
    }
}

impl Linkers {
    pub(crate) const fn new(engine: Engine, link: Link) -> Self {
        Self {
            engine,
            link,
            module: OnceLock::new(),
            component: OnceLock::new(),
        }
    }

    /// The engine whose programs they are for.
    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Resolves the imports of a program: tens of microseconds, and more the more imports it has. The first one takes
    /// a millisecond or two. Not on a cell's thread.
    ///
    /// # Errors
    /// When it imports something with a type that is not the one offered.
    pub(crate) fn prepare(&self, code: &Code, entry: Entry) -> wasmtime::Result<Prepared> {
        let component = match code {
            Code::Module(module) => {
                let linker = made(&self.module, || (self.link.module)(&self.engine))?;
                return Ok(Prepared::Module(linker.instantiate_pre(module)?));
            }
            Code::Component(component) => {
                let linker = made(&self.component, || (self.link.component)(&self.engine))?;
                linker.instantiate_pre(component)?
            }
        };
        Ok(match entry {
            Entry::Command => Prepared::Component(CommandPre::new(component)?),
            Entry::Exports => Prepared::Exports(component),
            Entry::Handler => Prepared::Handler(HandlerPre::new(component)?),
        })
    }
}
