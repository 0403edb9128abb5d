//! A program that is called: its execution makes the instance, and then answers one call after the other.

use super::function::Target;
use super::{Call, CallError, with_waiting};
use crate::discarded::Discarded;
use crate::exit::Exit;
use crate::guest::Guest;
use crate::host::yield_point::yield_point;
use crate::steps::{mark, step};
use leasehold_wasm::code::INITIALIZE;
use std::future::poll_fn;
use std::task::Poll;
use wasmtime::component::Val;
use wasmtime::{CallHook, Store, StoreContextMut};

/// The same for the store of such a program.
pub(crate) fn hook(context: &mut StoreContextMut<'_, Guest>, what: CallHook) {
    let lifts = context.data_mut().lifts.as_mut();
    if let Some(bytes) = lifts.and_then(|lifts| lifts.after(what)) {
        context.set_hostcall_fuel(bytes);
    }
}

/// The call that an execution is making: if it ends in it, the caller is told how.
#[derive(Default)]
pub(crate) struct Current(Option<Discarded<Call>>);

impl Current {
    /// Reports the exit of the execution to the caller of the current call, if there is one.
    pub(crate) fn failed(self, exit: &Exit) {
        if let Some(call) = self.0 {
            call.answer(Err(CallError::Failed(exit.clone())));
        }
    }
}

/// The instance of a program that is called.
pub(crate) enum Answering {
    /// A core module's.
    Module(wasmtime::Instance),
    /// A component's.
    Component(wasmtime::component::Instance),
}

/// Makes the instance of a core module, and initialises it if it asks for that.
pub(crate) async fn make_module(
    store: &mut Store<Guest>,
    module: &wasmtime::InstancePre<Guest>,
) -> wasmtime::Result<Answering> {
    let instance = module.instantiate_async(&mut *store).await?;
    if module.module().get_export(INITIALIZE).is_some() {
        let initialize = instance.get_typed_func::<(), ()>(&mut *store, INITIALIZE)?;
        initialize.call_async(&mut *store, ()).await?;
    }
    Ok(Answering::Module(instance))
}

/// Answers calls until there will be no more.
///
/// # Errors
/// When one ends in a trap, or otherwise ends the program.
pub(crate) async fn answer_calls(
    store: &mut Store<Guest>,
    instance: Answering,
    current: &mut Current,
) -> wasmtime::Result<i32> {
    let execution = store.data().execution;
    loop {
        yield_point().await;
        mark(step!("engine", "call"));
        let Some(call) = next_call(execution).await else {
            return Ok(0);
        };
        let values = make(store, &instance, current.0.insert(call)).await?;
        // From here on it cannot end in the call.
        if let Some(call) = current.0.take() {
            call.answer(Ok(values));
        }
    }
}

/// The next call; `None` if there will be none. A task has none: it waits for nothing.
async fn next_call(execution: u64) -> Option<Discarded<Call>> {
    poll_fn(|_| {
        with_waiting(|calls| match calls.get_mut(&execution) {
            None => Poll::Ready(None),
            Some(calls) => calls.poll_next(),
        })
    })
    .await
}

async fn make(
    store: &mut Store<Guest>,
    instance: &Answering,
    call: &Discarded<Call>,
) -> wasmtime::Result<Vec<Val>> {
    let Some(call) = call.value() else {
        return Err(missing());
    };
    let (function, arguments) = (&call.function, &call.arguments[..]);
    let guest = store.data_mut();
    let bytes = function.result_bytes(guest.call_bytes);
    if let Some(lifts) = &mut guest.lifts {
        lifts.results = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    let count = function.results().len();
    let mut results = Discarded::new(vec![Val::Bool(false); count]);
    match (instance, function.target()) {
        (Answering::Component(instance), Target::Component(index)) => {
            let function = instance.get_func(&mut *store, index);
            let function = function.ok_or_else(missing)?;
            let call = function.call_async(&mut *store, arguments, results.values());
            call.await?;
        }
        (Answering::Module(instance), Target::Module) => {
            let function = instance.get_func(&mut *store, function.name());
            let function = function.ok_or_else(missing)?;
            let arguments: Vec<wasmtime::Val> = arguments.iter().map(lowered).collect();
            let mut numbers = vec![wasmtime::Val::I32(0); count];
            let call = function.call_async(&mut *store, &arguments, &mut numbers);
            call.await?;
            for (result, number) in results.values().iter_mut().zip(&numbers) {
                *result = lifted(number);
            }
        }
        _ => return Err(missing()),
    }
    Ok(results.into_inner().map_or_else(Vec::new, |values| *values))
}

fn missing() -> wasmtime::Error {
    wasmtime::Error::msg("the function is another program's")
}

/// A number for a core module; the call was checked.
fn lowered(value: &Val) -> wasmtime::Val {
    match *value {
        Val::S32(number) => wasmtime::Val::I32(number),
        Val::S64(number) => wasmtime::Val::I64(number),
        Val::Float32(number) => wasmtime::Val::F32(number.to_bits()),
        Val::Float64(number) => wasmtime::Val::F64(number.to_bits()),
        _ => wasmtime::Val::I32(0),
    }
}

/// A number of a core module; functions that return anything else are not called.
fn lifted(number: &wasmtime::Val) -> Val {
    match *number {
        wasmtime::Val::I32(number) => Val::S32(number),
        wasmtime::Val::I64(number) => Val::S64(number),
        wasmtime::Val::F32(bits) => Val::Float32(f32::from_bits(bits)),
        wasmtime::Val::F64(bits) => Val::Float64(f64::from_bits(bits)),
        _ => Val::Bool(false),
    }
}
