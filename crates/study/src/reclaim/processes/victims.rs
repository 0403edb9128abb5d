//! Processes that are made to be killed, one after another, by a small single-threaded process, so
//! that only their end is measured, not the clean-up of a large parent.

use leasehold_reclaim::PAGE;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Stdio;
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{read, write};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};

use crate::harness::affinity::pin;
use crate::harness::child_command::command;
use crate::harness::clock::monotonic_ns;
use crate::harness::host::kibibytes;
use crate::harness::neighbour::Interval;

/// Role of the process that makes victims.
pub(crate) const ROLE: &str = "victims";

/// The time for the kernel's deferred work for a victim, and for recovering from the measurement.
const SETTLE: Duration = Duration::from_millis(10);

/// How victims are made and killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Mappings of each victim.
    pub(super) mappings: usize,
    /// Victims, one after another.
    pub(super) victims: usize,
    /// Processor on which they are killed and die.
    pub(super) cpu: usize,
    /// Processor on which they make their mappings.
    pub(super) workshop: usize,
    /// How long nothing happens before each is killed.
    pub(super) quiet: Duration,
}

/// The observations of one victim.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuestEnd {
    /// Kernel memory that its mappings took; the kernel's counters are not exact, so that for few
    /// mappings this may be less than nothing.
    pub(super) kernel_bytes: i64,
    /// While nothing happened.
    pub(super) quiet: Interval,
    /// From the signal until the victim was waited for.
    pub(super) dying: Interval,
}

/// Carries out `plan` in a process of its own.
pub(super) fn kill(plan: Plan) -> Result<Vec<GuestEnd>> {
    let output = command(ROLE)?
        .args([plan.mappings, plan.victims, plan.cpu, plan.workshop].map(|n| n.to_string()))
        .arg(plan.quiet.as_nanos().to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting the process that makes victims")?;
    ensure!(
        output.status.success(),
        "the process that makes victims failed: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).context("reading about victims")?;
    text.lines()
        .map(|line| GuestEnd::parse(line).with_context(|| format!("line {line:?}")))
        .collect()
}

/// The life of that process: `MAPPINGS VICTIMS CPU WORKSHOP QUIET`.
pub(super) fn child(arguments: &[&str]) -> Result<()> {
    let [mappings, victims, cpu, workshop, quiet] = arguments else {
        bail!("victims need MAPPINGS VICTIMS CPU WORKSHOP QUIET")
    };
    let plan = Plan {
        mappings: mappings.parse()?,
        victims: victims.parse()?,
        cpu: cpu.parse()?,
        workshop: workshop.parse()?,
        quiet: Duration::from_nanos(quiet.parse()?),
    };
    pin(plan.cpu)?;
    // Every mapping of every victim shows this one page, so that they take no memory but the
    // kernel's own.
    let page = memfd_create("leasehold-page", MemfdFlags::CLOEXEC).context("creating a page")?;
    ftruncate(&page, PAGE as u64).context("sizing a page")?;
    let mut out = io::stdout().lock();
    for _ in 0..plan.victims {
        writeln!(out, "{}", one(&plan, page.as_fd())?.line())?;
    }
    Ok(())
}

/// Makes a victim, waits, and kills it.
fn one(plan: &Plan, page: BorrowedFd<'_>) -> Result<GuestEnd> {
    // The kernel frees structures of the victim before only after a grace period.
    thread::sleep(SETTLE);
    let before = kernel_memory()?;
    let (ready, tell) = pipe_with(PipeFlags::CLOEXEC).context("making a pipe")?;
    // SAFETY: this process has one thread, so that the child is a whole copy of it.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        drop(ready);
        let code = match live(plan, page, tell.as_fd()) {
            Ok(()) => 0,
            Err(errno) => errno.raw_os_error(),
        };
        // SAFETY: ends the copy without running anything of the original.
        unsafe { libc::_exit(code) }
    }
    ensure!(
        forked > 0,
        "forking a victim: {}",
        io::Error::last_os_error()
    );
    drop(tell);
    let victim = Pid::from_raw(forked).context("a fork has an id")?;
    if read(&ready, &mut [0; 1]).context("waiting for the mappings")? == 0 {
        let status = waitpid(Some(victim), WaitOptions::empty()).context("asking why")?;
        let code = status
            .and_then(|(_, status)| status.exit_status())
            .unwrap_or(0);
        bail!(
            "making {} mappings: {}",
            plan.mappings,
            io::Error::from_raw_os_error(code)
        );
    }
    let kernel_bytes = kernel_memory()? - before;

    // The reading cost the neighbour time, which must not count as quiet.
    thread::sleep(SETTLE);
    let start_ns = monotonic_ns();
    thread::sleep(plan.quiet);
    let killed_ns = monotonic_ns();
    kill_process(victim, Signal::KILL).context("killing a victim")?;
    waitpid(Some(victim), WaitOptions::empty()).context("waiting for a victim")?;
    let reaped_ns = monotonic_ns();
    Ok(GuestEnd {
        kernel_bytes,
        quiet: Interval {
            start_ns,
            end_ns: killed_ns,
        },
        dying: Interval {
            start_ns: killed_ns,
            end_ns: reaped_ns,
        },
    })
}

/// The life of a victim: makes its mappings in the workshop, moves to where it will die, tells
/// that it is ready and waits to be killed. Returns only if something fails.
fn live(plan: &Plan, page: BorrowedFd<'_>, tell: BorrowedFd<'_>) -> rustix::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A pin that fails was refused to the killer before: it has proved `cpu`, and the workshop
    // matters to speed only.
    let _ = pin(plan.workshop);
    // Finds a free place for all of them. They are then mapped at unmapped addresses, which is
    // cheaper than splitting an existing mapping for each. SAFETY: the kernel chooses an unused
    // place, and no reference to it exists when it is unmapped.
    let place = unsafe {
        let bytes = plan.mappings * PAGE;
        let place = mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE)?;
        munmap(place, bytes)?;
        place.cast::<u8>()
    };
    let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE | MapFlags::POPULATE;
    for index in 0..plan.mappings {
        // Neighbouring mappings of the *same* page of a file are not a continuous view of it, so
        // the kernel cannot merge them.
        // SAFETY: replaces nothing, or else fails.
        unsafe {
            let at = place.wrapping_add(index * PAGE).cast();
            mmap(at, PAGE, ProtFlags::READ, flags, page, 0)
        }?;
    }
    let _ = pin(plan.cpu);
    write(tell, &[1])?;
    loop {
        thread::park();
    }
}

/// The memory that the kernel uses for its own structures and for page tables.
fn kernel_memory() -> Result<i64> {
    // Folds the counters of each processor into the total, which else lags behind by hundreds of
    // pages; only the superuser may, and the number is merely coarser otherwise.
    let _ = fs::read("/proc/sys/vm/stat_refresh");
    let meminfo = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let part = |name| kibibytes(&meminfo, name).with_context(|| format!("no {name} in meminfo"));
    // Slabs outlive the objects in them, which hides what a victim takes from those that its
    // predecessors left; the objects themselves are told of to the superuser only.
    let objects = match fs::read_to_string("/proc/slabinfo") {
        Ok(slabinfo) => slabs_in_use(&slabinfo),
        Err(_) => part("Slab")?,
    };
    Ok((objects + part("PageTables")?).cast_signed())
}

/// Bytes of the objects in use: of each cache, the name, the objects in use, all of them, and the
/// size of one. Two lines of headings have no such numbers.
fn slabs_in_use(slabinfo: &str) -> u64 {
    let cache = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let active: u64 = fields.next()?.parse().ok()?;
        let size: u64 = fields.nth(1)?.parse().ok()?;
        Some(active * size)
    };
    slabinfo.lines().filter_map(cache).sum()
}

impl GuestEnd {
    fn line(&self) -> String {
        let Self {
            kernel_bytes,
            quiet,
            dying,
        } = self;
        format!(
            "{kernel_bytes} {} {} {}",
            quiet.start_ns, dying.start_ns, dying.end_ns
        )
    }

    fn parse(line: &str) -> Result<Self> {
        let mut fields = line.split(' ');
        let mut next = || fields.next().context("a field is missing");
        let kernel_bytes = next()?.parse()?;
        let [start_ns, killed_ns, reaped_ns] =
            [next()?.parse()?, next()?.parse()?, next()?.parse()?];
        Ok(Self {
            kernel_bytes,
            quiet: Interval {
                start_ns,
                end_ns: killed_ns,
            },
            dying: Interval {
                start_ns: killed_ns,
                end_ns: reaped_ns,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{GuestEnd, slabs_in_use};

    #[test]
    fn memory_in_use_is_objects_times_their_size() {
        let text = "slabinfo - version: 2.1\n\
            # name <active_objs> <num_objs> <objsize>\n\
            vm_area_struct  1310 2835 192 21 1 : tunables 0 0 0\n\
            maple_node       725 1088 256 16 1 : tunables 0 0 0\n";
        assert_eq!(slabs_in_use(text), 1310 * 192 + 725 * 256);
        assert_eq!(slabs_in_use(""), 0);
    }

    #[test]
    fn what_was_seen_survives_the_pipe() {
        let line = "-4096 10 20 35";
        let guest_end = GuestEnd::parse(line).expect("well-formed");
        assert_eq!(guest_end.line(), line);
        assert_eq!(
            (
                guest_end.quiet.end_ns,
                guest_end.dying.end_ns - guest_end.dying.start_ns
            ),
            (20, 15)
        );
        assert!(GuestEnd::parse("1 2 3").is_err() && GuestEnd::parse("1 2 3 x").is_err());
    }
}
