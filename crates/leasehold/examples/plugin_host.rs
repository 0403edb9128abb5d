//! A plug-in host: loads a component under a lease, calls its functions with typed values, shows what it is charged,
//! and survives a plug-in that never returns.
//!
//! `cargo run --release -p leasehold --example plugin_host`

use leasehold::{ByteSize, CallError, Costs, Error, Exit, Host, Lease, Nanoseconds, Start, wave};
use std::time::Duration;

/// A component as a plug-in's author would build it: it counts words, greets, and has a fault.
const PLUGIN: &str = include_str!("plugin.wat");

fn main() -> Result<(), Error> {
    // `Costs::measured()` in a program that keeps promises: it measures this machine once.
    let host = Host::new(Costs::none())?;
    let mut lease = Lease::default();
    lease.reclaim.budget = Nanoseconds::new(10_000_000).unwrap_or(lease.reclaim.budget);
    lease.memory.reserve = ByteSize::new(1 << 20).unwrap_or(lease.memory.reserve);
    let plugin = host.compile_plugin(PLUGIN.as_bytes(), &lease)?;
    let count = plugin.function("count-words")?;
    println!("{} takes {:?}", count.name(), count.parameters());

    let instance = host.plug_in(&plugin, Start::new())?;
    let (words,): (u32,) = instance.call("count-words", ("to be or not to be",))?;
    println!("words: {words}");
    let (length,): (u32,) = instance.call("sum", (vec![1_u32, 2, 3],))?;
    println!("sum: {length}");

    // The same as text, as `leasehold run --invoke` has it.
    let results = instance.begin_call_of_text("sum([10, 20, 30])")?;
    println!("as text: {}", wave::results(&results.wait::<Vec<_>>()?)?);

    if let Some(statement) = instance.tenant().statement() {
        println!(
            "charged: {} of {} ns",
            statement.charged.0 / 1000,
            statement.budget.0 / 1000
        );
    }

    // A fault of the plug-in is the plug-in's: it is ended, and nothing else is.
    let endless = instance.begin_call("spin", ())?;
    if endless.wait_for::<()>(Duration::from_millis(20))?.is_none() {
        instance.tenant().kill();
    }
    assert!(matches!(
        endless.wait::<()>(),
        Err(Error::Call(CallError::Ended))
    ));
    let outcome = instance.wait()?;
    assert_eq!(outcome.exit, Exit::Killed);
    println!(
        "killed, and everything is back after {} ns",
        outcome.report.reclaimed.returned.wall_ns
    );
    Ok(())
}
