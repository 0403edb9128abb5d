//! Taking the processor back from a guest: the one door behind which the mechanism hides.
//!
//! The mechanism here is the engine's epoch check: compiled guest code compares a counter at
//! every loop back edge and function entry, a ticker thread advances the counter every
//! [`QUANTUM`], and a guest that sees it advance yields its fiber to the executor. Nothing
//! outside this file knows that; a mechanism without instrumentation replaces it here.
//!
//! The ticker stays periodic while any guest may run. A tick between arming a store and
//! resuming its guest is swallowed, because a yielding guest's new deadline is set when it
//! resumes; the next period delivers it. A one-shot timer would let that guest run for ever.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::{Config, Engine, EngineWeak, Store, UpdateDeadline};

/// How long a guest runs before the executor looks at everything else.
pub const QUANTUM: Duration = Duration::from_millis(1);

/// Makes guests compiled under `config` preemptible.
pub fn configure(config: &mut Config) {
    config.epoch_interruption(true);
}

/// Makes the guest of `store` yield to the executor at the next tick, and at every tick after it
/// was resumed.
pub fn arm<T>(store: &mut Store<T>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
}

/// The state is two flags: no panic leaves them half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct State {
    ticking: bool,
    stop: bool,
}

/// The thread that ticks for one engine, while there is a guest to preempt.
pub struct Ticker {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    ticking: bool,
}

impl Ticker {
    /// Starts the ticker's thread; it sleeps until [`Ticker::run`].
    ///
    /// # Errors
    /// When the host refuses a thread.
    pub fn start(engine: &Engine) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let engine = engine.weak();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("leasehold-tick".into())
            .spawn(move || tick(&theirs, &engine))?;
        Ok(Self {
            shared,
            thread: Some(thread),
            ticking: false,
        })
    }

    /// Ticks from now on (`true`) or sleeps (`false`). Free when nothing changes.
    pub fn run(&mut self, ticking: bool) {
        if self.ticking == ticking {
            return;
        }
        self.ticking = ticking;
        lock(&self.shared.0).ticking = ticking;
        if ticking {
            self.shared.1.notify_one();
        }
    }
}

fn tick(shared: &(Mutex<State>, Condvar), engine: &EngineWeak) {
    let (state, changed) = shared;
    loop {
        {
            let mut state = lock(state);
            while !state.ticking && !state.stop {
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stop {
                return;
            }
        }
        std::thread::sleep(QUANTUM);
        match engine.upgrade() {
            Some(engine) => engine.increment_epoch(),
            None => return,
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        lock(&self.shared.0).stop = true;
        self.shared.1.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread holds nothing that could have panicked; there is no one to tell.
            let _ = thread.join();
        }
    }
}
