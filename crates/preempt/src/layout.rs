//! The engine's internal layout as the injected yield assumes it, and its verification.
//!
//! The engine's version is pinned exactly, so that these numbers cannot change unnoticed. They are
//! still verified once in a process. A probe runs with epoch checks, and when the engine calls its
//! `new_epoch` function, the probe checks what compiled code has written, and which functions its
//! trampoline calls. After any mismatch, cells fall back to epochs.

use crate::injected_yield::{ThrowRef, instead_of};
use leasehold_slots::address_range::PAGE;
use rustix::mm::{MprotectFlags, mprotect};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use wasmtime::{AsContextMut, Config, Engine, Instance, Module, Store, UpdateDeadline};

/// Words of a `vmctx`: the store's context, and the table of the engine's functions.
pub(super) const STORE_CONTEXT: usize = 1;
pub(super) const BUILTINS: usize = 2;

/// Words of a store's context: the stack limit; the frame of the trampoline through which the
/// guest last left for the host, and where it returns to; and the frame of the trampoline through
/// which the host entered it.
const STACK_LIMIT: usize = 3;
pub(super) const EXIT_FRAME: usize = 6;
pub(super) const EXIT_PC: usize = 7;
pub(super) const ENTRY_FRAME: usize = 9;

/// Places in the table of the engine's functions.
pub(super) const NEW_EPOCH: usize = 13;
pub(super) const RAISE: usize = 41;
const THROW_REF: usize = 44;

/// The first four bytes of a `vmctx`.
const MAGIC: u32 = u32::from_le_bytes(*b"core");

/// The word of a function reference that is its `vmctx`.
const FUNCTION_VMCTX: usize = 3;

/// A module whose instance gives a store a `vmctx` that is known before anything else is
/// instantiated.
pub(super) const COMPANION: &str = "(module (func (export \"k\")))";

/// Compiles the text of a module for an engine, or takes it from where it was kept.
pub type Compile<'a> = &'a dyn Fn(&Engine, &str) -> wasmtime::Result<Module>;

/// Instantiates the [`COMPANION`] and finds its `vmctx`. About a microsecond.
///
/// # Errors
/// The engine's.
pub(super) fn companion<T>(
    store: &mut Store<T>,
    module: &Module,
) -> wasmtime::Result<NonNull<c_void>> {
    let instance = Instance::new(store.as_context_mut(), module, &[])?;
    let function = instance
        .get_func(store.as_context_mut(), "k")
        .ok_or_else(|| wasmtime::format_err!("the companion has lost its function"))?;
    let reference = function
        .to_raw(store.as_context_mut())
        .cast::<*mut c_void>();
    // SAFETY: a function reference of an instance is four words.
    let vmctx = unsafe { reference.add(FUNCTION_VMCTX).read() };
    NonNull::new(vmctx).ok_or_else(|| wasmtime::format_err!("the companion has no context"))
}

/// Whether the engine, as `config` says, is laid out as above. A few milliseconds for the first call in a process, if the
/// probe has to be compiled.
pub(super) fn verified(
    config: impl FnOnce() -> Config,
    compile: Compile<'_>,
) -> Result<(), String> {
    static VERIFIED: OnceLock<Result<(), String>> = OnceLock::new();
    VERIFIED
        .get_or_init(|| probe(config, compile).map_err(|error| format!("{error:#}"))?)
        .clone()
}

/// Replaces `throw_ref` in the engine's table by the cell's function, which all compiled code of
/// this process then calls.
///
/// # Safety
/// `vmctx` must be one that was verified. To be called once.
unsafe fn replace_throw_ref(vmctx: usize) -> Result<(), String> {
    let refused =
        |error: rustix::io::Errno| format!("the engine's table cannot be changed: {error}");
    // SAFETY: the table is the engine's only one, a constant of this process with an entry for each function, which
    // nothing but compiled code reads; it is in memory that was made read-only when the process began, like what is
    // beside it. The entry is written as a whole, while no compiled code of cells exists.
    unsafe {
        let table = (vmctx as *const usize).add(BUILTINS).read() as *mut usize;
        let entry = table.add(THROW_REF);
        let own: ThrowRef = std::mem::transmute(entry.read());
        let page = entry
            .map_addr(|address| address & !(PAGE - 1))
            .cast::<c_void>();
        mprotect(page, PAGE, MprotectFlags::READ | MprotectFlags::WRITE).map_err(refused)?;
        entry.write_volatile(instead_of(own) as usize);
        mprotect(page, PAGE, MprotectFlags::READ).map_err(refused)
    }
}

/// Runs the probe. The outer result has the engine's errors, the inner one a mismatch.
fn probe(
    config: impl FnOnce() -> Config,
    compile: Compile<'_>,
) -> wasmtime::Result<Result<(), String>> {
    let engine = Engine::new(&config())?;
    let module = compile(&engine, COMPANION)?;
    let mut store = Store::new(&engine, ());
    let vmctx = companion(&mut store, &module)?.as_ptr() as usize;
    // SAFETY: the companion's context exists as long as the store.
    if let Err(reason) = unsafe { check_at_rest(vmctx) } {
        return Ok(Err(reason));
    }
    let instance = Instance::new(&mut store, &module, &[])?;
    let function = instance.get_typed_func::<(), ()>(&mut store, "k")?;
    let text = module.text().as_ptr_range();
    let text = text.start as usize..text.end as usize;
    let (sender, found) = std::sync::mpsc::channel();
    let called = Arc::new(AtomicBool::new(false));
    let calls = called.clone();
    store.set_epoch_deadline(0);
    store.epoch_deadline_callback(move |_| {
        calls.store(true, Ordering::Relaxed);
        // SAFETY: compiled code has just called the engine, in the store of this context.
        let _ = sender.send(unsafe { check_in_call(vmctx, &text) });
        Ok(UpdateDeadline::Continue(u64::MAX / 2))
    });
    function.call(&mut store, ())?;
    if !called.load(Ordering::Relaxed) {
        return Ok(Err("the probe was not interrupted".into()));
    }
    let looked = found.recv();
    let looked = looked.unwrap_or_else(|_| Err("the probe did not look".into()));
    // SAFETY: it was verified just now, and this is called once in a process.
    Ok(looked.and_then(|()| unsafe { replace_throw_ref(vmctx) }))
}

fn expect(holds: bool, what: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("this engine differs from the one expected: {what}"))
    }
}

/// # Safety
/// `vmctx` must be one whose store is not running.
unsafe fn check_at_rest(vmctx: usize) -> Result<(), String> {
    // SAFETY: a context starts with its magic number.
    let magic = unsafe { (vmctx as *const u32).read() };
    expect(magic == MAGIC, "a context's magic number")?;
    let context = vmctx as *const usize;
    // SAFETY: the first words of every context with this magic number; a store's context is at
    // least this long.
    let (limit, calls) = unsafe {
        let store = context.add(STORE_CONTEXT).read() as *const usize;
        expect(!store.is_null(), "a context's store")?;
        let calls = [EXIT_FRAME, EXIT_PC, ENTRY_FRAME].map(|word| store.add(word).read());
        (store.add(STACK_LIMIT).read(), calls)
    };
    expect(limit == usize::MAX, "the stack limit of a store at rest")?;
    expect(calls == [0; 3], "the frames of a store at rest")
}

/// # Safety
/// To be called by the engine, when the function at [`NEW_EPOCH`] was called by compiled code that
/// the host had called directly, in the store of `vmctx`. `text` is that code.
unsafe fn check_in_call(vmctx: usize, text: &Range<usize>) -> Result<(), String> {
    // SAFETY: these words were checked at rest.
    let [exit, pc, entry] = unsafe {
        let store = (vmctx as *const usize).add(STORE_CONTEXT).read() as *const usize;
        [EXIT_FRAME, EXIT_PC, ENTRY_FRAME].map(|word| store.add(word).read())
    };
    // SAFETY: the address of a local variable.
    let here = (&raw const exit) as usize;
    let near = |frame: usize| frame > here && frame < here + (1 << 20);
    expect(near(exit) && near(entry), "the frames of a call")?;
    expect(text.contains(&pc), "where a call returns to")?;
    // SAFETY: a frame on this stack, above this function's.
    let (guest, returns) = unsafe {
        let frame = exit as *const usize;
        (frame.read(), frame.add(1).read())
    };
    expect(returns == pc, "the frame of a call")?;
    expect(near(guest), "the frame of a guest")?;
    // SAFETY: as above.
    let outer = unsafe { (guest as *const usize).read() };
    expect(
        outer == entry,
        "the frame through which a guest was entered",
    )?;
    // SAFETY: compiled code is readable.
    unsafe { check_trampoline(pc, text) }
}

/// Reads the code of the trampoline that was called just before `pc`: it calls the functions at
/// [`NEW_EPOCH`] and, if that says so, at [`RAISE`].
///
/// # Safety
/// `text` must be readable.
unsafe fn check_trampoline(pc: usize, text: &Range<usize>) -> Result<(), String> {
    const CALL: u8 = 0xE8;
    const CALL_BYTES: usize = 5;
    const LONGEST: usize = 160;
    expect(pc - text.start >= CALL_BYTES, "where a call returns to")?;
    let offset = pc - text.start;
    // SAFETY: by this function's contract.
    let code = unsafe { std::slice::from_raw_parts(text.start as *const u8, text.len()) };
    let call = &code[offset - CALL_BYTES..offset];
    expect(call[0] == CALL, "how a guest calls the engine")?;
    let distance = i32::from_le_bytes([call[1], call[2], call[3], call[4]]);
    let target = offset.wrapping_add_signed(distance as isize);
    expect(target < code.len(), "how a guest calls the engine")?;
    let trampoline = &code[target..code.len().min(target + LONGEST)];
    // A load with an eight-bit displacement, and the call of what was loaded.
    let new_epoch = (NEW_EPOCH * size_of::<usize>()) as u8;
    let calls = |window: &[u8]| {
        window[0] == new_epoch
            && (window[1] == 0xFF && window[2] & 0xF8 == 0xD0
                || window[1] == 0x41 && window[2] == 0xFF && window[3] & 0xF8 == 0xD0)
    };
    expect(trampoline.windows(4).any(calls), "where new_epoch is")?;
    // One with a displacement of 32 bits.
    let raise = ((RAISE * size_of::<usize>()) as u32).to_le_bytes();
    expect(
        trampoline.windows(4).any(|window| window == raise),
        "where raise is",
    )
}

#[cfg(test)]
mod tests {
    use super::{NEW_EPOCH, RAISE, STORE_CONTEXT, THROW_REF, check_at_rest, verified};
    use crate::mechanism::Mechanism;
    use crate::testing::engine_config;

    #[test]
    fn the_engine_is_laid_out_as_expected() {
        let compile = |engine: &wasmtime::Engine, text: &str| wasmtime::Module::new(engine, text);
        let config = || engine_config(Mechanism::Epochs);
        assert_eq!(verified(config, &compile), Ok(()));
    }

    #[test]
    fn the_numbers_are_those_of_the_compiler() {
        use wasmtime_environ::{BuiltinFunctionIndex, PtrSize};
        let index = |builtin: BuiltinFunctionIndex| builtin.index() as usize;
        assert_eq!(index(BuiltinFunctionIndex::new_epoch()), NEW_EPOCH);
        assert_eq!(index(BuiltinFunctionIndex::raise()), RAISE);
        assert_eq!(index(BuiltinFunctionIndex::throw_ref()), THROW_REF);
        let word = |offset: u8| usize::from(offset) / 8;
        let size: u8 = 8;
        assert_eq!(word(size.vmcontext_store_context()), STORE_CONTEXT);
        assert_eq!(word(size.vmcontext_builtin_functions()), super::BUILTINS);
        let store = size.vm_store_context();
        assert_eq!(word(store.stack_limit()), super::STACK_LIMIT);
        assert_eq!(
            word(store.last_wasm_exit_trampoline_fp()),
            super::EXIT_FRAME
        );
        assert_eq!(word(store.last_wasm_exit_pc()), super::EXIT_PC);
        assert_eq!(word(store.last_wasm_entry_fp()), super::ENTRY_FRAME);
        assert_eq!(wasmtime_environ::VMCONTEXT_MAGIC, super::MAGIC);
        assert_eq!(word(size.vm_func_ref().vmctx()), super::FUNCTION_VMCTX);
    }

    #[test]
    fn a_context_that_is_laid_out_differently_is_refused() {
        let magic = u64::from(super::MAGIC);
        let at_rest = |word: usize| {
            if word == super::STACK_LIMIT {
                u64::MAX
            } else {
                0
            }
        };
        let store: [u64; 16] = std::array::from_fn(at_rest);
        let check = |magic: u64, store: &[u64; 16]| {
            let context = [magic, store.as_ptr() as u64, 0, 0];
            // SAFETY: laid out as a context and a store's context that are not running.
            unsafe { check_at_rest(context.as_ptr() as usize) }
        };
        assert_eq!(check(magic, &store), Ok(()));
        assert!(check(magic + 1, &store).is_err());
        for word in [
            super::STACK_LIMIT,
            super::EXIT_FRAME,
            super::EXIT_PC,
            super::ENTRY_FRAME,
        ] {
            let mut moved = store;
            moved[word] ^= 8;
            assert!(check(magic, &moved).is_err(), "word {word}");
        }
        let no_store = [magic, 0, 0, 0];
        // SAFETY: as above; it is refused before the store is looked at.
        assert!(unsafe { check_at_rest(no_store.as_ptr() as usize) }.is_err());
    }
}
