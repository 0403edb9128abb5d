//! Preempts guests without compiled checks: the alarm's signal makes them call the engine's yield.
//!
//! Guests are compiled without any instrumentation. When the alarm fires while a guest runs, the
//! signal handler changes the interrupted context so that the thread continues in a trampoline. The
//! trampoline saves every register and calls the engine's own `new_epoch` function, as instrumented
//! code would. The engine suspends the fiber; when it is resumed, the trampoline restores the
//! registers and continues at the guest's instruction. When the alarm fires during a host call, the
//! return address of that call is exchanged for a second entry of the trampoline: the guest yields
//! at the first instruction after the call. When a fault of the guest would have to wait for a disk, the handler of the
//! fault has the context changed in the same way ([`suspend`]), and the guest repeats the access later.
//!
//! All code that changes a guest's context or stack, or calls the engine outside its interface, is
//! in this file. The reading of the engine's layout, verified before it is used, is in [`layout`];
//! the system calls of timer and signal are in [`crate::timer`] and [`alarm`]. The invariants:
//!
//! 1. *Only between two instructions of a guest's function body* is a context changed
//!    ([`GuestCode::contains`]). There no lock is held, the store is not being changed, and the
//!    stack has room for the host: the engine checks for that when a guest calls anything.
//! 2. *Only for the guest that is being polled* ([`enter`], [`leave`]): its `vmctx` is valid from
//!    before its poll until after it, because its future owns the store.
//! 3. *Everything that the guest can see is preserved*: general registers, flags, x87, vector and
//!    mask registers, and the 128 bytes below its stack pointer.
//! 4. *A changed return address lives at most as long as the poll*, there is at most one, and the
//!    original is kept. It is restored only if the changed address is still where it was put: a host
//!    call that ends with a trap or an exception does not return, and its frame may have been used
//!    for something else. Fiber stacks stay mapped when they are given back
//!    ([`leasehold_slots::stack`]).
//! 5. *A changed return address is no certainty*: the host may call the guest again before the call
//!    returns (below), and that guest may never come back. Only a changed context is certain to
//!    yield: no instruction of a guest lies between it and the engine's `new_epoch`. Until the
//!    guest has yielded the signal comes again ([`alarm`]).
//! 6. *A guest that the host calls during a host call is a guest like any other*: it runs on the
//!    same fiber, above the frames of the host, entered through the engine's own door. Its context
//!    is changed as in 1, and its calls of the host are caught as in 4, whose single place moves
//!    from the outer call to the inner one. The engine suspends such a fiber wherever instrumented
//!    code checks the epoch, including in `cabi_realloc`: its record of each entry of a guest
//!    (`CallThreadState`) is kept on the fiber, all of them are swapped out and in together, and
//!    the host frames in between hold the store as they hold it for instrumented code. When the
//!    fiber is dropped there, the inner guest is left by `raise`, the host frames return the error,
//!    and the engine's exit trampoline raises it for the outer guest: no instruction of either
//!    runs.
//! 7. *Nothing walks the frames of an interrupted guest*: in a prologue or a tail call the frame
//!    pointer is not what a walker expects. So the engine is shown a walk that ends at once; it
//!    walks only when the guest is ended there, and nothing reads that backtrace. The walk of an
//!    outer guest takes its first address from the store, never from a changed return address. So does the
//!    walk of an exception, which begins at the call of the engine that throws it.
//! 8. *Throws pass through this file*: a call of the engine that throws does not return but
//!    continues in a handler of the guest, and a guest whose handlers throw again at once has
//!    hardly an instruction of its own. The engine's `throw_ref` is therefore
//!    replaced in its table (`layout::replace_throw_ref`): the guest yields before the throw if the
//!    alarm is due, as a host call that is still to begin would.
//! 9. *The handler neither allocates nor locks*, and runs with its own signal masked.
//!
//! The host calls a guest in these places of the engine, all on the guest's fiber: `_start` and
//! `run`; start functions, during instantiation; `cabi_realloc`, while the result of a host call is
//! lowered (`LowerContext::realloc`, also for a host function that is not asynchronous); and the
//! post-return function, after `run`. A destructor of a guest's own resource is called by compiled
//! code, not by the host: no resource of a guest's type reaches the host, so that
//! `ResourceAny::resource_drop` is never called. Only `cabi_realloc` runs during a host call, and it
//! can make none but bulk operations: `may_leave` is off. So guests are nested at most twice, which
//! is what a fiber's stack has room for ([`StackClass`]). No function of a cell calls a guest itself.

use crate::alarm;
use crate::guest_code::GuestCode;
use crate::layout::{self, BUILTINS, STORE_CONTEXT};
use leasehold_slots::stack_class::StackClass;
use std::arch::naked_asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The guest that runs on a thread. Shared with the signal handler, which interrupts the thread.
struct Run {
    /// Its `vmctx`; zero while none runs.
    vmctx: AtomicUsize,
    /// Where the return address of a host call was changed; zero if none is.
    return_word: AtomicUsize,
    /// The address that was there.
    return_pc: AtomicUsize,
    /// Names the host step of a throw.
    throws: Cell<fn()>,
}

thread_local! {
    /// Without a destructor, so that the handler may look at any time.
    static RUN: Run = const {
        Run {
            vmctx: AtomicUsize::new(0),
            return_word: AtomicUsize::new(0),
            return_pc: AtomicUsize::new(0),
            throws: Cell::new(unnamed),
        }
    };
}

/// Room for the vector state on the guest's stack, bytes.
const VECTOR_BYTES: usize = 4096;

/// The state components that are saved: x87, SSE, AVX, and the three of AVX-512. Not the tile
/// registers, which compiled guests do not use, and not the protection keys.
const VECTOR_STATE: u32 = 0b1110_0111;

/// The longest stack that a guest may run on, bytes.
const LONGEST_STACK: usize = StackClass::LARGEST.fiber_bytes();

/// The red zone of the System V calling convention.
const RED_ZONE: usize = 128;

/// Whether the processor can save the state in the room that there is.
pub(super) fn processor_supported() -> Result<(), String> {
    const OSXSAVE: u32 = 1 << 27;
    const XSAVEC: u32 = 1 << 1;
    if __cpuid(0).eax < 0xD || __cpuid(1).ecx & OSXSAVE == 0 {
        return Err("the processor or the system does not offer XSAVE".into());
    }
    if __cpuid_count(0xD, 1).eax & XSAVEC == 0 {
        return Err("the processor does not offer XSAVEC".into());
    }
    // The legacy area and the header, then the components, each perhaps aligned to 64 bytes.
    let components = (2..32).filter(|n| VECTOR_STATE & (1 << n) != 0);
    let bytes: u32 = 512
        + 64
        + components
            .map(|n| __cpuid_count(0xD, n).eax.next_multiple_of(64))
            .sum::<u32>();
    if bytes as usize > VECTOR_BYTES {
        return Err(format!("the vector registers take {bytes} bytes"));
    }
    Ok(())
}

fn unnamed() {}

/// Before this thread's guests throw, this is called.
pub(super) fn name_throws(throws: fn()) {
    RUN.with(|run| run.throws.set(throws));
}

/// Records that the guest with this `vmctx` runs on this thread.
#[inline]
pub(super) fn enter(vmctx: NonNull<c_void>) {
    RUN.with(|run| run.vmctx.store(vmctx.as_ptr() as usize, Relaxed));
}

/// Records that no guest runs on this thread.
pub(super) fn leave() {
    RUN.with(|run| {
        // First, so that the handler changes nothing meanwhile.
        run.vmctx.store(0, Relaxed);
        run.put_back_return();
    });
}

impl Run {
    /// Restores the changed return address, if it is still in its word on the stack.
    fn put_back_return(&self) {
        let word = self.return_word.swap(0, Relaxed) as *mut usize;
        if word.is_null() {
            return;
        }
        // SAFETY: the word is on a fiber stack that was in use during this poll and is mapped
        // (invariant 4). Only `catch_return` writes this value anywhere, so that either the call
        // is still to return through the word, or nothing uses the word.
        unsafe {
            if word.read() == trampoline_after_call as *const () as usize {
                word.write(self.return_pc.load(Relaxed));
            }
        }
    }

    /// Makes the guest's innermost host call, if there is one, return into the trampoline. It may
    /// never return (invariant 5).
    ///
    /// # Safety
    /// `sp` is the stack pointer of the interrupted code, on the thread of `self`.
    unsafe fn catch_return(&self, vmctx: *const usize, sp: usize, code: &GuestCode) {
        // SAFETY: the `vmctx` is valid (invariant 2) and laid out as verified. The engine writes
        // its store context on this thread, one word at a time.
        let (frame, pc) = unsafe {
            let store = vmctx.add(STORE_CONTEXT).read() as *const usize;
            (
                store.add(layout::EXIT_FRAME).read_volatile(),
                store.add(layout::EXIT_PC).read_volatile(),
            )
        };
        // The frame of the exit trampoline, if the interrupted code was called from there: then it
        // lies above the stack pointer, on the same stack. Outside of calls it is zero, or, for
        // some instructions, the frame of a call that has returned.
        let below = frame.wrapping_sub(sp);
        if frame == 0 || below == 0 || below > LONGEST_STACK || !code.contains(pc) {
            return;
        }
        let word = (frame + size_of::<usize>()) as *mut usize;
        // SAFETY: the word is above the stack pointer on a mapped stack. If it does not hold the
        // address that the call returns to, the frame is not that of a call under way, or its return
        // is caught already. If it does, it is either that of one, or of one that has returned and
        // whose stack is unused since, where writing changes nothing.
        unsafe {
            if word.read() != pc {
                return;
            }
            self.put_back_return();
            self.return_pc.store(pc, Relaxed);
            self.return_word.store(word as usize, Relaxed);
            word.write(trampoline_after_call as *const () as usize);
        }
    }
}

/// Makes the running guest yield after the alarm fired. Returns true if the yield is certain.
/// Returns false in the host and between guest and host, where the attempt must be repeated until
/// the guest has yielded.
///
/// # Safety
/// To be called in a signal handler on the thread that it interrupted, with the context that the
/// handler was given.
pub(super) unsafe fn interrupt(context: *mut c_void, code: &GuestCode) -> bool {
    RUN.with(|run| {
        let vmctx = run.vmctx.load(Relaxed) as *const usize;
        if vmctx.is_null() {
            return false;
        }
        // SAFETY: by this function's contract.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let pc = registers[libc::REG_RIP as usize] as usize;
        let sp = registers[libc::REG_RSP as usize] as usize;
        if code.contains(pc) {
            // SAFETY: the guest runs, and was interrupted in a function body.
            unsafe { redirect(registers) };
            return true;
        }
        // In a trampoline the record of the guest's exit is not written yet, or out of date.
        if !code.is_compiled(pc) {
            // SAFETY: `sp` is what was interrupted.
            unsafe { run.catch_return(vmctx, sp, code) };
        }
        false
    })
}

/// Whether a signal has interrupted the running guest between two of its instructions.
///
/// # Safety
/// As for [`interrupt`].
pub(super) unsafe fn can_suspend(context: *const c_void, code: &GuestCode) -> bool {
    let is_running = RUN.with(|run| run.vmctx.load(Relaxed) != 0);
    // SAFETY: by this function's contract.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    is_running && code.contains(registers[libc::REG_RIP as usize] as usize)
}

/// Makes that guest yield.
///
/// # Safety
/// [`can_suspend`] has said yes to this context.
pub(super) unsafe fn suspend(context: *mut c_void) {
    // SAFETY: by this function's contract; as in `interrupt`.
    unsafe { redirect(&mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs) };
}

/// Makes a guest continue in the trampoline.
///
/// # Safety
/// The registers are those of the guest that runs, which a signal has interrupted in a function body.
unsafe fn redirect(registers: &mut [i64; 23]) {
    let sp = registers[libc::REG_RSP as usize] as usize - RED_ZONE - size_of::<usize>();
    // SAFETY: below the guest's stack pointer and its red zone nothing is in use, and a guest
    // leaves room for the host below its own frames (invariant 1).
    unsafe { (sp as *mut usize).write(registers[libc::REG_RIP as usize] as usize) };
    registers[libc::REG_RSP as usize] = sp as i64;
    registers[libc::REG_RIP as usize] = trampoline as *const () as i64;
}

/// Where an interrupted guest continues. On the stack: the address to go back to, and above it
/// the red zone.
///
/// # Safety
/// Never called; only a context or a return address leads here.
#[unsafe(naked)]
unsafe extern "C" fn trampoline() {
    naked_asm!(
        // `yield_guest` is given the address of these two words: frame pointer, return address.
        "push rbp",
        "pushfq",
        "push rax",
        "push rcx",
        "push rdx",
        "push rbx",
        "push rsi",
        "push rdi",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "cld",
        "lea rdi, [rsp + 15*8]",
        "mov rbx, rsp",
        "and rsp, -64",
        "sub rsp, {vector_bytes}",
        // XSAVEC writes the first 16 bytes of the header, XRSTOR wants the rest to be zero.
        "xor eax, eax",
        "mov [rsp + 512 + 16], rax",
        "mov [rsp + 512 + 24], rax",
        "mov [rsp + 512 + 32], rax",
        "mov [rsp + 512 + 40], rax",
        "mov [rsp + 512 + 48], rax",
        "mov [rsp + 512 + 56], rax",
        "xor edx, edx",
        "mov eax, {vector_state}",
        "xsavec64 [rsp]",
        "call {yield_guest}",
        "xor edx, edx",
        "mov eax, {vector_state}",
        "xrstor64 [rsp]",
        "mov rsp, rbx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdi",
        "pop rsi",
        "pop rbx",
        "pop rdx",
        "pop rcx",
        "pop rax",
        "popfq",
        "pop rbp",
        "ret {red_zone}",
        vector_bytes = const VECTOR_BYTES,
        vector_state = const VECTOR_STATE,
        red_zone = const RED_ZONE,
        yield_guest = sym yield_guest,
    )
}

/// Where a host call returns to whose return address was changed. The stack pointer is what the
/// guest expects after the call, so that the address to go back to is not on the stack: a zero
/// takes its place, for `yield_guest` to fill in.
///
/// # Safety
/// As for [`trampoline`].
#[unsafe(naked)]
unsafe extern "C" fn trampoline_after_call() {
    naked_asm!(
        // Neither changes the flags.
        "lea rsp, [rsp - {red_zone} - 8]",
        "mov qword ptr [rsp], 0",
        "jmp {trampoline}",
        red_zone = const RED_ZONE,
        trampoline = sym trampoline,
    )
}

/// The engine's `throw_ref`: records the handler of the exception. Returns false if the guest
/// continues there.
pub(super) type ThrowRef = unsafe extern "C" fn(*const usize, u32) -> bool;

/// The engine's own, once it was replaced.
static THROW_REF: AtomicUsize = AtomicUsize::new(0);

/// Returns the function that compiled code calls instead of the engine's `throw_ref`, which is
/// `own`.
pub(super) fn instead_of(own: ThrowRef) -> ThrowRef {
    THROW_REF.store(own as usize, Relaxed);
    throw_ref
}

/// The engine's `throw_ref`, after a yield if one is due.
///
/// # Safety
/// As for the engine's own: for compiled code.
unsafe extern "C" fn throw_ref(vmctx: *const usize, exception: u32) -> bool {
    let guest = RUN.with(|run| run.vmctx.load(Relaxed) as *const usize);
    // Another engine of this process has guests of its own, and no alarm is set for them.
    if !guest.is_null() && alarm::fired() {
        // SAFETY: a guest runs, so that its `vmctx` is valid (invariant 2) and laid out as
        // verified. Compiled code has called, and the engine has not begun: the last exit is
        // recorded, and the store is not borrowed. The exit of this call is restored, so that the
        // engine finds the handler.
        unsafe {
            let store = guest.add(STORE_CONTEXT).read() as *mut usize;
            let frame = store.add(layout::EXIT_FRAME).read_volatile();
            let pc = store.add(layout::EXIT_PC).read_volatile();
            yield_at(guest, store, pc);
            store.add(layout::EXIT_FRAME).write_volatile(frame);
            store.add(layout::EXIT_PC).write_volatile(pc);
        }
    }
    // The yield is host code of its own, and would have taken the name.
    if !guest.is_null() {
        RUN.with(|run| run.throws.get())();
    }
    let own = THROW_REF.load(Relaxed);
    // SAFETY: what was in the engine's table, where only this function is now; called as compiled code would.
    unsafe {
        let own: ThrowRef = std::mem::transmute(own);
        own(vmctx, exception)
    }
}

/// The engine's `new_epoch`: yields, and returns `u64::MAX` when the guest is to be ended.
type NewEpoch = unsafe extern "C" fn(*const usize) -> u64;

/// The engine's `raise`: leaves the guest for the host that called it; does not return.
type Raise = unsafe extern "C" fn(*const usize);

/// Yields to the executor, on the stack of the guest. `frame` points to the guest's frame pointer
/// and the address to go back to, which is zero when a host call returned.
///
/// # Safety
/// Only for the trampoline.
unsafe extern "C" fn yield_guest(frame: *mut usize) {
    let (vmctx, after_call) = RUN.with(|run| {
        // SAFETY: two words that the trampoline has written.
        let after_call = unsafe { frame.add(1).read() == 0 };
        if after_call {
            run.return_word.store(0, Relaxed);
            // SAFETY: as above.
            unsafe { frame.add(1).write(run.return_pc.load(Relaxed)) };
        }
        (run.vmctx.load(Relaxed) as *const usize, after_call)
    });
    if after_call && !alarm::fired() {
        // The alarm was set anew during the call.
        return;
    }
    // SAFETY: a guest runs, so that the `vmctx` is valid (invariant 2) and laid out as verified.
    // The two functions are called in the state in which the engine's own trampoline would call
    // them: guest code is on the stack, the store is not borrowed, and the last exit is recorded.
    unsafe {
        let store = vmctx.add(STORE_CONTEXT).read() as *mut usize;
        yield_at(vmctx, store, frame.add(1).read());
        // The guest runs: it is in no host call.
        store.add(layout::EXIT_FRAME).write_volatile(0);
        store.add(layout::EXIT_PC).write_volatile(0);
    }
}

/// Yields to the executor, and ends the guest on request. Overwrites its last exit.
///
/// # Safety
/// `vmctx` is that of the guest that runs and `store` its store's context; guest code that
/// continues at `pc` is on the stack, and the store is not borrowed.
unsafe fn yield_at(vmctx: *const usize, store: *mut usize, pc: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        let builtins = vmctx.add(BUILTINS).read() as *const usize;
        // A walk of the frames starts at the frame that this one names: the one that it ends at.
        // The second word is not `pc`, so that `catch_return` takes it for no call.
        let exit = [store.add(layout::ENTRY_FRAME).read(), 0];
        store
            .add(layout::EXIT_FRAME)
            .write_volatile(exit.as_ptr() as usize);
        store.add(layout::EXIT_PC).write_volatile(pc);
        let new_epoch: NewEpoch = std::mem::transmute(builtins.add(layout::NEW_EPOCH).read());
        if new_epoch(vmctx) == u64::MAX {
            let raise: Raise = std::mem::transmute(builtins.add(layout::RAISE).read());
            raise(vmctx);
            // The engine guarantees that this is unreachable; continuing would run an ended guest.
            std::process::abort();
        }
        // The engine read it by its address.
        std::hint::black_box(&exit);
    }
}
