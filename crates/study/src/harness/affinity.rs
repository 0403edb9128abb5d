//! Threads that stay on one processor.

use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds the calling thread to processor `cpu`.
///
/// # Errors
/// If there is no such processor, or this program may not use it.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    ensure!(cpu < CpuSet::MAX_CPU, "no processor {cpu}");
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("binding to processor {cpu}"))
}

/// The processors that this program may run on.
pub(crate) fn processors() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("asking for the allowed processors")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect())
}

/// Does `work` in a thread of its own, on processor `cpu` if one is given, and waits for it. What
/// that thread changes of itself (its priority, its alarms) ends with it.
///
/// # Errors
/// As [`pin`]; those of `work`; and if it panicked.
pub(crate) fn bound_to<T: Send>(
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let life = move || {
            if let Some(cpu) = cpu {
                pin(cpu)?;
            }
            work()
        };
        let thread = scope.spawn(life);
        thread
            .join()
            .map_err(|_| anyhow!("the measuring thread panicked"))?
    })
}

#[cfg(test)]
mod tests {
    use super::bound_to;
    use anyhow::bail;

    #[test]
    fn work_gives_its_result_or_why_there_is_none() {
        assert_eq!(bound_to(None, || Ok(7)).expect("done"), 7);
        let failed = bound_to::<()>(None, || bail!("no"));
        assert_eq!(failed.expect_err("failed").to_string(), "no");
        assert!(bound_to(Some(usize::MAX), || Ok(())).is_err());
    }
}
