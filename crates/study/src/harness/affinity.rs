//! Threads that stay on one processor.

use std::fs;
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

/// Keeps the calling thread off the processors that cells have claimed, if there is another: a thread for which Linux
/// chooses such a processor waits there until the guests sleep, or Linux balances its processors, for up to a tenth of a
/// second. It stands for a client on another machine, which waits for no guest.
///
/// # Errors
/// If the host does not tell which processors are claimed, or refuses the others.
pub(crate) fn leave_cells() -> Result<()> {
    let sockets = fs::read_to_string("/proc/net/unix").context("reading the names of sockets")?;
    let mut others = sched_getaffinity(None).context("asking for the allowed processors")?;
    for cpu in claimed(&sockets).filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        others.unset(cpu);
    }
    if others.count() > 0 {
        sched_setaffinity(None, &others).context("leaving the processors of cells")?;
    }
    Ok(())
}

/// The processors that cells have claimed, each by the name of a socket.
fn claimed(sockets: &str) -> impl Iterator<Item = usize> {
    let names = sockets.lines().filter_map(|line| line.rsplit_once(' '));
    names.filter_map(|(_, name)| name.strip_prefix("@leasehold/core/")?.parse().ok())
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
    use super::{bound_to, claimed};
    use anyhow::bail;

    #[test]
    fn the_processors_of_cells_are_those_that_sockets_are_named_for() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            000: 00000002 00000000 00010000 0001 01 5161 @leasehold/core/1\n\
            000: 00000002 00000000 00010000 0001 01 5162 /run/a b\n\
            000: 00000003 00000000 00000000 0001 03 5163\n\
            000: 00000002 00000000 00010000 0001 01 5164 @leasehold/core/12\n";
        assert_eq!(claimed(sockets).collect::<Vec<_>>(), [1, 12]);
    }

    #[test]
    fn work_gives_its_result_or_why_there_is_none() {
        assert_eq!(bound_to(None, || Ok(7)).expect("done"), 7);
        let failed = bound_to::<()>(None, || bail!("no"));
        assert_eq!(failed.expect_err("failed").to_string(), "no");
        assert!(bound_to(Some(usize::MAX), || Ok(())).is_err());
    }
}
