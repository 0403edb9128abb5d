//! The preemption of one cell.

use crate::alarm::{Alarm, Interrupter, YieldBy};
use crate::epoch::{self, Epochs};
use crate::guest_code::{GuestCode, GuestProgram, Known};
use crate::injected_yield;
use crate::layout::{self, Compile};
use crate::mechanism::Mechanism;
use std::cell::RefCell;
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use wasmtime::{Engine, Module, Store, UpdateDeadline};

/// Instances that [`Preemption::arm`] may make in a store.
pub const INSTANCES: usize = 1;

/// What is called when a host step of the mechanism's own begins on the thread, so that it can be timed under its name.
#[derive(Debug, Clone, Copy)]
pub struct HostSteps {
    /// A guest yields: the step that is under way.
    pub yields: fn(),
    /// A guest throws an exception: the next step.
    pub throws: fn(),
}

impl Default for HostSteps {
    fn default() -> Self {
        fn unnamed() {}
        Self {
            yields: unnamed,
            throws: unnamed,
        }
    }
}

/// The settings that the mechanism needs of an engine whose guests it preempts.
#[derive(Debug, Clone)]
pub struct Companion {
    engine: Engine,
    /// Finds a store's context; `None` with epochs.
    module: Option<Module>,
}

impl Companion {
    /// That of an engine, configured for the mechanism.
    ///
    /// # Errors
    /// Those of `compile`.
    pub fn new(engine: &Engine, mechanism: Mechanism, compile: Compile<'_>) -> io::Result<Self> {
        let module = match mechanism {
            Mechanism::Injected => {
                Some(compile(engine, layout::COMPANION).map_err(io::Error::other)?)
            }
            Mechanism::Epochs => None,
        };
        Ok(Self {
            engine: engine.clone(),
            module,
        })
    }
}

/// The preemption of one cell, on its thread.
#[derive(Debug)]
pub struct Preemption {
    alarm: Box<Alarm>,
    /// Those of the engines whose guests run here.
    companions: RefCell<Vec<Companion>>,
    /// Names the host step of a yield.
    yields: fn(),
    /// The alarm belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

/// The data of a guest that the mechanism needs.
#[derive(Debug)]
pub struct GuestContext {
    /// The companion's `vmctx` in the guest's store; `None` with epochs.
    vmctx: Option<NonNull<c_void>>,
    /// Its code stays known as long as it may run; `None` with epochs.
    _code: Option<Rc<Known>>,
}

/// Until it is dropped, the guest that was named runs on this thread.
#[derive(Debug)]
pub struct Entered<'a> {
    guest: PhantomData<&'a GuestContext>,
    injected: bool,
}

impl Preemption {
    /// Preemption for the calling thread, which must not have it already. The mechanism must be
    /// what [`Mechanism::or_fallback`] allows, and the engine configured for it.
    ///
    /// # Errors
    /// When the system refuses a timer, or the engine to compile.
    pub fn new(engine: &Engine, mechanism: Mechanism) -> io::Result<Self> {
        let compile: Compile<'_> = &|engine, text| Module::new(engine, text);
        let companion = Companion::new(engine, mechanism, compile)?;
        Self::with_companion(companion, HostSteps::default())
    }

    /// As [`new`](Preemption::new), for guests of the companion's engine, with names for its host steps.
    ///
    /// # Errors
    /// When the system refuses a timer.
    pub fn with_companion(companion: Companion, steps: HostSteps) -> io::Result<Self> {
        let tell = match companion.module {
            Some(_) => {
                injected_yield::name_throws(steps.throws);
                YieldBy::Inject(GuestCode::new())
            }
            None => YieldBy::Epoch(Epochs::default()),
        };
        let preemption = Self {
            alarm: Alarm::new(tell)?,
            companions: RefCell::default(),
            yields: steps.yields,
            not_send: PhantomData,
        };
        preemption.add(&companion);
        Ok(preemption)
    }

    /// Guests of another engine run here, too. At most as many engines as there are classes of stacks; some
    /// nanoseconds if it is known.
    pub fn add(&self, companion: &Companion) {
        let mut companions = self.companions.borrow_mut();
        let is_same = |known: &Companion| Engine::same(&known.engine, &companion.engine);
        if companions.iter().any(is_same) {
            return;
        }
        if let YieldBy::Epoch(epochs) = self.alarm.yield_by() {
            epochs.add(&companion.engine);
        }
        companions.push(companion.clone());
    }

    /// Makes the guest of `store`, which runs `program`, yield when the alarm is due. To be called
    /// before the store has limits: it may make [`INSTANCES`] instances there. About a microsecond.
    ///
    /// # Errors
    /// The engine's.
    pub fn arm<T: 'static>(
        &self,
        store: &mut Store<T>,
        program: &Arc<impl GuestProgram + 'static>,
    ) -> wasmtime::Result<GuestContext> {
        let yields = self.yields;
        let companions = self.companions.borrow();
        let own = companions
            .iter()
            .find(|known| Engine::same(&known.engine, store.engine()))
            .ok_or_else(|| wasmtime::format_err!("the program is of another cell"))?;
        let (vmctx, code) = match (self.alarm.yield_by(), &own.module) {
            (YieldBy::Inject(code), Some(companion)) => {
                let known = code.add(program.clone());
                let vmctx = layout::companion(store, companion)?;
                store.epoch_deadline_callback(move |_| {
                    yields();
                    Ok(UpdateDeadline::Yield(0))
                });
                (Some(vmctx), Some(known))
            }
            _ => {
                epoch::arm(store, yields);
                (None, None)
            }
        };
        Ok(GuestContext { vmctx, _code: code })
    }

    /// Lets go of a program, unless a guest runs it: nothing of it is held here then. A program that is armed later is
    /// known again. O(n log n) in the programs that are known.
    pub fn forget(&self, program: &Arc<impl GuestProgram + 'static>) {
        if let YieldBy::Inject(code) = self.alarm.yield_by() {
            let program: Arc<dyn GuestProgram> = program.clone();
            code.remove(&program);
        }
    }

    /// Sets the alarm: the guest that runs at this time, ns of
    /// [`monotonic_ns`](crate::clock::monotonic_ns), yields; `None` switches it off. It fires
    /// once, and stays due until it is taken or set anew. Some nanoseconds, or a system call when
    /// the time is earlier than the one before.
    #[inline]
    pub fn set_timer(&self, at_ns: Option<u64>) {
        self.alarm.set(at_ns);
    }

    /// The same for a guest that must not be interrupted by an earlier timer of others: no signal
    /// arrives before that time. Makes a system call whenever the time differs from the previous
    /// one.
    #[inline]
    pub fn set_timer_exactly(&self, at_ns: Option<u64>) {
        self.alarm.set_exactly(at_ns);
    }

    /// Whether the alarm has come, or another thread has asked, since it was set or taken.
    #[inline]
    pub fn fired(&self) -> bool {
        self.alarm.fired()
    }

    /// Like [`Preemption::fired`]; the alarm is not due afterwards, and not set.
    #[inline]
    pub fn take_fired(&self) -> bool {
        self.alarm.take()
    }

    /// Returns the handle by which other threads, and host calls of the running guest, make it
    /// yield as soon as it can.
    pub fn interrupter(&self) -> Interrupter {
        self.alarm.interrupter().clone()
    }

    /// Says which guest is polled until the result is dropped. Some nanoseconds.
    ///
    /// # Safety
    /// Until then the store must exist for which [`Preemption::arm`] made `guest`, its fiber
    /// stacks must stay mapped (as those of [`leasehold_slots::stack`] do), and no guest of another store may
    /// run on this thread.
    #[inline]
    pub unsafe fn enter<'a>(&'a self, guest: &'a GuestContext) -> Entered<'a> {
        if let Some(vmctx) = guest.vmctx {
            injected_yield::enter(vmctx);
        }
        Entered {
            guest: PhantomData,
            injected: guest.vmctx.is_some(),
        }
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.injected {
            injected_yield::leave();
        }
    }
}
