//! The engines of a cell: one for each class of stacks that a tenant has asked for.
//!
//! The parts that an engine needs before a program runs in it take a millisecond or more to make:
//! a pool of stacks. It is made on the thread that loads the first
//! program for it, never on the cell's.

use crate::abi;
use crate::built::InUse;
use crate::engine_config::engine_config_for;
use crate::engine_parts::EngineParts;
use crate::linkers::{Link, Linkers};
use crate::mappings::{self, Mappings};
use crate::pools::Pools;
use leasehold_preempt::{Companion, Compile, Mechanism};
use leasehold_slots::stack_class::StackClass;
use leasehold_wasm::artifact::CodeCache;
use leasehold_wasm::own_module::own_module;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use wasmtime::Engine;

/// The engines of a cell.
pub(crate) struct Engines {
    mechanism: Mechanism,
    backtraces: bool,
    pools: Pools,
    capacity: usize,
    /// Where compiled modules are kept.
    cache: Option<Arc<CodeCache>>,
    making: Mutex<()>,
    made: [OnceLock<Arc<EngineParts>>; StackClass::COUNT],
}

impl Engines {
    /// Creates an empty set. Its engines preempt guests by `mechanism`, add backtraces to traps on
    /// request, and take memories and stacks from `pools`, at most `capacity` at a time.
    pub(crate) fn new(
        (mechanism, backtraces): (Mechanism, bool),
        pools: Pools,
        capacity: usize,
        cache: Option<Arc<CodeCache>>,
    ) -> Self {
        Self {
            mechanism,
            backtraces,
            pools,
            capacity,
            cache,
            making: Mutex::default(),
            made: [const { OnceLock::new() }; StackClass::COUNT],
        }
    }

    /// How the guests of all of them are preempted.
    pub(crate) fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Returns the engine of a class, if it was made.
    pub(crate) fn get(&self, class: StackClass) -> Option<&Arc<EngineParts>> {
        self.made[class.index()].get()
    }

    /// Returns the engine of a class. The first call makes it, which takes some milliseconds.
    ///
    /// # Errors
    /// When the host refuses address space, mappings, or the engine.
    pub(crate) fn get_or_make(&self, class: StackClass) -> anyhow::Result<&Arc<EngineParts>> {
        let made = &self.made[class.index()];
        if let Some(parts) = made.get() {
            return Ok(parts);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if made.get().is_none() {
            let parts = self.make(class)?;
            return Ok(made.get_or_init(|| Arc::new(parts)));
        }
        made.get()
            .ok_or_else(|| anyhow::anyhow!("an engine was made and is not there"))
    }

    fn make(&self, class: StackClass) -> anyhow::Result<EngineParts> {
        let mut config = engine_config_for(self.mechanism, class, self.backtraces);
        let capacity = self.capacity;
        let stacks = Mappings::claim(mappings::STACK * capacity as u64)
            .map_err(|error| anyhow::anyhow!("{capacity} stacks: {error}"))?;
        self.pools.configure(&mut config, class)?;
        let engine =
            Engine::new(&config).map_err(|error| anyhow::anyhow!("the wasm engine: {error:#}"))?;
        let cache = self.cache.as_deref();
        let compile: Compile<'_> = &|engine, text| own_module(engine, text, cache);
        Ok(EngineParts {
            in_use: InUse::default(),
            companion: Companion::new(&engine, self.mechanism, compile)?,
            linkers: Linkers::new(
                engine.clone(),
                Link {
                    module: abi::link_module,
                    component: abi::link_component,
                },
            ),
            engine,
            _mappings: stacks,
        })
    }
}
