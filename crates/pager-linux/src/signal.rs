//! SIGBUS: delivers a fault in guest memory to the pager, in the faulting thread.
//!
//! The handler runs on an alternate stack, because a guest's own may be used up, and with all
//! signals blocked that can be. A preemption that is due during a fault therefore happens
//! afterwards, in guest code, and not inside the pager. The called code locks nothing, and
//! allocates at most a block: never during another allocation, since none touches guest memory. It
//! reads and writes the store with plain system calls.

use leasehold_door::{Call, pass};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::io::{self, Write as _};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::engine::Engine;
use crate::fault::{Access, FaultPhase, Served};
use crate::refusal::{Answer, Denied};
use crate::span::Span;

/// Pages of the alternate stack, for threads that have a smaller one.
const STACK: u32 = 32;

/// What a fault has the owner of the pager do, in the signal handler.
#[derive(Debug, Clone, Copy)]
pub struct Handlers {
    /// Decides on an access that cannot be served.
    pub on_denied: fn(&Denied) -> Answer,
    /// Told of each fault that is served, before and after: how long it took is the time between.
    pub on_fault: fn(FaultPhase),
    /// Whether code that cannot be suspended may wait for the disk; else the access is denied.
    pub may_wait: fn() -> bool,
    /// Whether the interrupted code can be suspended before it goes on, as far as the context shows that the signal
    /// handler was given.
    pub can_suspend: unsafe fn(*const c_void) -> bool,
    /// Has it suspended, by changing that context. It repeats the access when it goes on.
    pub suspend: unsafe fn(*mut c_void),
}

impl Default for Handlers {
    /// Leaves what cannot be served to the handler of SIGBUS that was there before, and suspends nothing.
    fn default() -> Self {
        Self {
            on_denied: |_| Answer::Chain,
            on_fault: |_| {},
            may_wait: || true,
            can_suspend: |_| false,
            suspend: |_| {},
        }
    }
}

/// The state of a thread's handler.
pub(crate) struct ThreadPager {
    engine: UnsafeCell<Engine>,
    /// The engine is in use: a fault now would be one of the pager's own.
    busy: Cell<bool>,
    handlers: Handlers,
    /// Whether a fault that would wait for the store suspends it.
    pub(crate) suspends: Cell<bool>,
    /// The last access that was denied.
    denied: Cell<Option<Denied>>,
}

thread_local! {
    /// The pager of this thread. Without a destructor, so that signal handlers may read it.
    static THREAD_PAGER: Cell<*const ThreadPager> = const { Cell::new(ptr::null()) };
}

/// `BUS_ADRERR`: a page that is not there.
const BUS_ADRERR: libc::c_int = 2;

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void);

/// The previous action for SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

impl ThreadPager {
    pub(crate) fn new(engine: Engine, handlers: Handlers) -> Self {
        ThreadPager {
            engine: UnsafeCell::new(engine),
            busy: Cell::new(false),
            handlers,
            suspends: Cell::new(false),
            denied: Cell::new(None),
        }
    }

    /// Uses the engine.
    ///
    /// # Panics
    /// If it is in use: the pager is not reentrant.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        assert!(!self.busy.replace(true), "the pager was entered twice");
        let _idle = Idle(&self.busy);
        // SAFETY: `busy` was clear, so no other reference exists; none is made until it is clear
        // again. There is one thread: `ThreadPager` is not `Sync`, and the handler runs in the thread
        // that it is installed for.
        work(unsafe { &mut *self.engine.get() })
    }

    pub(crate) fn take_denied(&self) -> Option<Denied> {
        self.denied.take()
    }
}

/// Clears the flag even if the work panics.
struct Idle<'a>(&'a Cell<bool>);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Faults of this thread are served while this lives.
#[derive(Debug)]
pub(crate) struct Serving {
    /// The alternate stack, if the thread had none that is large enough, and the one it had.
    stack: Option<(Span, libc::stack_t)>,
}

impl Serving {
    /// Serves faults of the calling thread with `thread`.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the thread has a pager, and the system's errors.
    ///
    /// # Safety
    /// `thread` outlives what is returned, and that is dropped in this thread.
    pub(crate) unsafe fn begin(thread: *const ThreadPager) -> io::Result<Self> {
        if !THREAD_PAGER.get().is_null() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        install()?;
        let serving = Serving {
            stack: use_large_stack()?,
        };
        unblock()?;
        THREAD_PAGER.set(thread);
        Ok(serving)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        THREAD_PAGER.set(ptr::null());
        let Some((span, before)) = self.stack.take() else {
            return;
        };
        // SAFETY: the values are valid for the calls, and the stack is not in use: this is no
        // signal handler.
        unsafe {
            let mut now: libc::stack_t = std::mem::zeroed();
            let asked = libc::sigaltstack(ptr::null(), &mut now);
            if asked != 0 || now.ss_sp as usize != span.part(1, STACK).start() {
                return;
            }
            libc::sigaltstack(&before, ptr::null_mut());
        }
        let _ = span.unmap();
    }
}

/// Installs the handler, once per process.
fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *installed {
        return Ok(());
    }
    pass(Call::Signal)?;
    let done = (|| {
        // SAFETY: all-zero is a valid value of these types; all pointers are valid for the calls;
        // the handler has the signature that `SA_SIGINFO` promises. What was there before is
        // noted before the handler can be called for anything: nothing is attached yet.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as Handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigfillset(&mut action.sa_mask);
            // Blocked, these would end the process without a word if they came from here.
            for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGABRT] {
                libc::sigdelset(&mut action.sa_mask, signal);
            }
            if libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) != 0 {
                return Err(*libc::__errno_location());
            }
            let _ = BEFORE.set(before);
            if libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) != 0 {
                return Err(*libc::__errno_location());
            }
        }
        Ok(())
    })();
    *installed = done.is_ok();
    done.map_err(io::Error::from_raw_os_error)
}

/// Gives the thread an alternate stack of its own if its present one is small.
fn use_large_stack() -> io::Result<Option<(Span, libc::stack_t)>> {
    // SAFETY: as in `install`; the new stack is memory that nothing else is in.
    unsafe {
        let mut before: libc::stack_t = std::mem::zeroed();
        if libc::sigaltstack(ptr::null(), &mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        let enough = (STACK as usize / 2) * crate::span::BYTES;
        if before.ss_flags & libc::SS_DISABLE == 0 && before.ss_size >= enough {
            return Ok(None);
        }
        let span = Span::allocate(STACK)?;
        // Running over its end must not go unnoticed.
        if let Err(error) = span
            .part(0, 1)
            .forbid()
            .and_then(|()| Ok(pass(Call::Signal)?))
        {
            let _ = span.unmap();
            return Err(error);
        }
        let usable = span.part(1, STACK);
        let stack = libc::stack_t {
            ss_sp: usable.start() as *mut c_void,
            ss_flags: 0,
            ss_size: usable.bytes(),
        };
        if libc::sigaltstack(&stack, ptr::null_mut()) != 0 {
            let error = io::Error::last_os_error();
            let _ = span.unmap();
            return Err(error);
        }
        Ok(Some((span, before)))
    }
}

/// A blocked SIGBUS would kill the process at the first fault.
fn unblock() -> io::Result<()> {
    pass(Call::Signal)?;
    // SAFETY: all-zero is a valid value; the pointers are valid for the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGBUS);
        match libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: errno is the thread's, and the interrupted code keeps its value.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: a handler with `SA_SIGINFO` gets valid pointers.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: as above.
    let fault = unsafe { (*info).si_code } == BUS_ADRERR;
    let thread = THREAD_PAGER.get();
    // Failed hardware memory, or a signal that was sent, is not the pager's.
    let served = fault && !thread.is_null() && {
        // SAFETY: it outlives the pointer (`Serving::begin`).
        let thread = unsafe { &*thread };
        // SAFETY: the context is a signal handler's.
        unsafe { resolve(thread, address, context) }
    };
    // SAFETY: the arguments are those of this handler.
    unsafe {
        if !served {
            chain(signal, info, context);
        }
        *libc::__errno_location() = errno;
    }
}

/// Serves the fault; returns false if it is left to others.
///
/// # Safety
/// `context` is that of the signal handler.
unsafe fn resolve(thread: &ThreadPager, address: usize, context: *mut c_void) -> bool {
    if thread.busy.get() {
        die("leasehold: a fault inside the pager\n");
    }
    thread.with(|engine| {
        // SAFETY: the caller's promise.
        let access = unsafe { access(engine, address, context) };
        // SAFETY: the caller's promise.
        let suspends = thread.suspends.get() && unsafe { (thread.handlers.can_suspend)(context) };
        (thread.handlers.on_fault)(FaultPhase::Begins);
        let served = match suspends {
            true => engine.serve_or_wait(access),
            false if (thread.handlers.may_wait)() => {
                let before = engine.transfers();
                let served = engine.serve(access);
                if engine.transfers() != before {
                    (thread.handlers.on_fault)(FaultPhase::Waited);
                }
                served
            }
            false => engine.serve_or_deny(access),
        };
        (thread.handlers.on_fault)(FaultPhase::Over);
        let (attachment, reason) = match served {
            Served::Done => return true,
            Served::Waits => {
                // SAFETY: the caller's promise.
                unsafe { (thread.handlers.suspend)(context) };
                return true;
            }
            Served::Elsewhere => return false,
            Served::Denied(attachment, reason) => (attachment, reason),
        };
        let denied = Denied {
            address,
            attachment,
            reason,
        };
        thread.denied.set(Some(denied));
        match (thread.handlers.on_denied)(&denied) {
            Answer::Substitute => engine.substitute(address),
            Answer::Chain => false,
        }
    })
}

/// The kind of access.
///
/// # Safety
/// `context` is that of a signal handler.
#[cfg(target_arch = "x86_64")]
unsafe fn access(_: &Engine, address: usize, context: *const c_void) -> Access {
    // SAFETY: the caller's promise.
    let error = unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        context.uc_mcontext.gregs[libc::REG_ERR as usize]
    };
    // Bit 0: the page was there; bit 1: it was a write (Intel SDM 3A, §4.7).
    Access {
        address,
        write: error & 2 != 0,
        protection: error & 1 != 0,
    }
}

/// The kind of access: other processors do not tell where this can be read, but only a write faults
/// on a page that is mapped.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn access(engine: &Engine, address: usize, _: *const c_void) -> Access {
    let mapped = engine.is_accessible(address, false);
    Access {
        address,
        write: mapped,
        protection: mapped,
    }
}

/// Does what the handler before this one would have done.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the caller's promise, and what the kernel said was installed.
    unsafe {
        say(signal, (*info).si_addr() as usize);
        match BEFORE.get() {
            Some(before) => call(before, signal, info, context),
            None => default(signal),
        }
    }
}

/// # Safety
/// As for [`chain`]; `action` is an installed one.
unsafe fn call(
    action: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    let handler = action.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // A fault cannot be ignored: it would come again at once.
        default(signal);
    } else if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with `SA_SIGINFO` it is a function of this type.
        let handler: Handler = unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: without, it is one of this type.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
}

/// Lets the fault happen again, with the default action.
fn default(signal: libc::c_int) {
    // SAFETY: all-zero is the default action; the signal is unblocked when the handler returns.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &action, ptr::null_mut());
        libc::raise(signal);
    }
}

/// Says where a fault was that is not the pager's: the process is likely to end, and without a word.
fn say(signal: libc::c_int, address: usize) {
    let mut line = [0; 128];
    let mut rest = &mut line[..];
    let known = match THREAD_PAGER.get().is_null() {
        true => "a thread without a pager",
        false => "memory that no tenant has",
    };
    let _ = writeln!(rest, "leasehold: signal {signal} at {address:#x}: {known}");
    let unused = rest.len();
    // SAFETY: the bytes are valid for the call, which is allowed in signal handlers.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len() - unused) };
}

fn die(message: &str) -> ! {
    // SAFETY: the message is valid for the call; both calls are allowed in signal handlers.
    unsafe {
        libc::write(2, message.as_ptr().cast(), message.len());
        libc::abort()
    }
}
