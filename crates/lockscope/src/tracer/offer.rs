//! What this kernel offers to the tracer, and which mode that makes.

use std::collections::HashSet;
use std::fs;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{FuncProto, Typedef};

use crate::primitive::{INIT_FUNCTIONS, LOCK_FUNCTIONS, UNLOCK_FUNCTIONS};
use crate::trace::Mode;
use crate::tracer::error::TracerError;
use crate::tracer::symbols::Symbols;

/// The tracepoints that say that an object begins or ends.
const ALLOCATOR: [&str; 4] = ["kmem_cache_alloc", "kmem_cache_free", "kmalloc", "kfree"];

/// Functions that take locks, and those that release them, of which kernels inline some.
const PAIRS: [(&str, &str); 12] = [
    ("_raw_spin_lock", "_raw_spin_unlock"),
    ("_raw_spin_lock_irq", "_raw_spin_unlock_irq"),
    ("_raw_spin_lock_irqsave", "_raw_spin_unlock_irqrestore"),
    ("_raw_spin_lock_bh", "_raw_spin_unlock_bh"),
    ("_raw_read_lock", "_raw_read_unlock"),
    ("_raw_read_lock_irq", "_raw_read_unlock_irq"),
    ("_raw_write_lock", "_raw_write_unlock"),
    ("_raw_write_lock_irq", "_raw_write_unlock_irq"),
    ("mutex_lock", "mutex_unlock"),
    ("rt_mutex_lock", "rt_mutex_unlock"),
    ("down_read", "up_read"),
    ("down_write", "up_write"),
];

/// Which mode to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModeChoice {
    /// The full mode where it is offered and safe to use, else the contended one.
    #[default]
    Auto,
    /// This one or none.
    Only(Mode),
}

/// What the kernel offers, and why not more.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The functions that the full mode can be attached to, or why there are none.
    full: Result<HashSet<&'static str>, String>,
    contended: Result<(), String>,
    mmap_lock: bool,
    /// Tracepoints of the allocator that tell when an object begins or ends.
    tracepoints: HashSet<&'static str>,
    lab: bool,
}

impl Offer {
    /// Looks at the running kernel: at its type information, its symbols and its tracing
    /// functions. Nothing is loaded yet.
    ///
    /// # Errors
    /// Not root, or the kernel's symbols are hidden: then nothing can be told.
    pub fn of_the_kernel() -> Result<Self, TracerError> {
        if !rustix::process::geteuid().is_root() {
            return Err(TracerError::NotRoot);
        }
        let symbols = Symbols::of_the_kernel()?;
        let types = Btf::from_vmlinux()
            .map_err(|error| format!("no type information (CONFIG_DEBUG_INFO_BTF): {error}"));
        let arguments = |tracepoint: &str| {
            let types = types.as_ref().ok()?;
            arguments_of(types, tracepoint)
        };
        let contended = match (&types, arguments("contention_begin")) {
            (Err(why), _) => Err(why.clone()),
            (Ok(_), None) => Err("no tracepoint lock:contention_begin (Linux 5.19)".to_owned()),
            (Ok(_), Some(_)) => Ok(()),
        };
        Ok(Self {
            full: contended.clone().and_then(|()| probeable(&symbols)),
            contended,
            tracepoints: ALLOCATOR
                .into_iter()
                .filter(|name| arguments(name).is_some())
                .collect(),
            // Before 6.13 it had the path of a memory control group as one more argument.
            mmap_lock: arguments("mmap_lock_acquire_returned") == Some(3),
            lab: fs::read_to_string("/proc/cmdline").is_ok_and(|text| text.contains("lab.share=")),
        })
    }

    /// Whether this is the lab's machine, which may hang: it is a workload's own.
    #[must_use]
    pub fn is_lab(&self) -> bool {
        self.lab
    }

    /// Whether `mmap_lock` has the tracepoints that the contended mode understands.
    pub(crate) fn has_mmap_lock(&self) -> bool {
        self.mmap_lock
    }

    /// Whether the allocator announces `tracepoint`.
    pub(crate) fn has_tracepoint(&self, tracepoint: &str) -> bool {
        self.tracepoints.contains(tracepoint)
    }

    /// Whether `function` can be probed.
    pub(crate) fn has_function(&self, function: &str) -> bool {
        self.full.as_ref().is_ok_and(|all| all.contains(function))
    }

    /// The mode to use and one sentence that says why.
    ///
    /// # Errors
    /// What was asked for is not offered.
    pub fn choose(&self, choice: ModeChoice) -> Result<(Mode, String), TracerError> {
        let refused = |mode, why: &String| TracerError::NotOffered {
            mode,
            why: why.clone(),
        };
        match (choice, &self.full, &self.contended) {
            (ModeChoice::Only(Mode::Full), Ok(_), _) => Ok((Mode::Full, "asked for".into())),
            (ModeChoice::Only(Mode::Full), Err(why), _) => Err(refused("full", why)),
            (ModeChoice::Only(Mode::Contended), _, Ok(())) => {
                Ok((Mode::Contended, "asked for".into()))
            }
            (ModeChoice::Auto, Ok(_), _) if self.lab => Ok((
                Mode::Full,
                "this kernel lets lock functions be probed, and it is the lab's".into(),
            )),
            (ModeChoice::Auto, Ok(_), Ok(())) => Ok((
                Mode::Contended,
                "this is not the lab, and probes in lock functions have frozen machines; \
                 --mode full insists"
                    .into(),
            )),
            (ModeChoice::Auto, Err(why), Ok(())) => Ok((Mode::Contended, why.clone())),
            (_, _, Err(why)) => Err(refused("contended", why)),
        }
    }

    /// The functions that release locks and cannot be probed here, though those that take them can: of
    /// such locks acquisitions are counted, and no holds are measured.
    #[must_use]
    pub fn inlined(&self) -> Vec<&'static str> {
        let Ok(functions) = &self.full else {
            return Vec::new();
        };
        let missing = PAIRS
            .iter()
            .filter(|(takes, releases)| functions.contains(takes) && !functions.contains(releases));
        missing.map(|(_, releases)| *releases).collect()
    }

    /// Lines for a person: each mode, and what is missing for it.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let full = match &self.full {
            Ok(functions) => format!("offered: {} functions of locks", functions.len()),
            Err(why) => format!("not offered: {why}"),
        };
        let contended = match (&self.contended, self.mmap_lock) {
            (Err(why), _) => format!("not offered: {why}"),
            (Ok(()), true) => "offered, and every mmap_lock".into(),
            (Ok(()), false) => "offered".into(),
        };
        let mut lines = vec![format!("full       {full}")];
        let inlined = self.inlined();
        if !inlined.is_empty() {
            let inlined = inlined.join(", ");
            lines.push(format!(
                "           no holds that end in what this kernel inlines: {inlined}"
            ));
        }
        lines.push(format!("contended  {contended}"));
        lines
    }
}

/// How many arguments `tracepoint` has, if it exists.
fn arguments_of(types: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let name = format!("btf_trace_{tracepoint}");
    let pointer = types.type_by_name::<Typedef<'_>>(&name)?.next_type()?;
    let prototype = FuncProto::try_from(pointer.next_type()?).ok()?;
    // The first one is the tracepoint's own data.
    prototype.len().checked_sub(1)
}

/// The lock functions that probes can be attached to, or why there are none.
fn probeable(symbols: &Symbols) -> Result<HashSet<&'static str>, String> {
    const LISTS: [&str; 2] = [
        "/sys/kernel/tracing/available_filter_functions",
        "/sys/kernel/debug/tracing/available_filter_functions",
    ];
    let existing = symbols.names();
    if !existing.contains("register_fprobe_ips") {
        return Err("this kernel has no fprobes (CONFIG_FPROBE)".into());
    }
    // How the programs tell an interrupt.
    if !existing.contains("__preempt_count") && !existing.contains("pcpu_hot") {
        return Err(
            "this kernel does not say where its variables are (CONFIG_KALLSYMS_ALL)".into(),
        );
    }
    // Without the list, those that exist: attaching fails if one of them cannot be probed.
    let list = LISTS.iter().find_map(|list| fs::read_to_string(list).ok());
    let listed: HashSet<_> = match &list {
        Some(list) => list
            .lines()
            .filter_map(|line| line.split_ascii_whitespace().next())
            .collect(),
        None => existing,
    };
    let wanted = all_functions().filter(|name| listed.contains(name));
    let functions: HashSet<_> = wanted.collect();
    match LOCK_FUNCTIONS
        .iter()
        .any(|lock| functions.contains(lock.name))
    {
        true => Ok(functions),
        false => Err("none of the lock functions can be probed".into()),
    }
}

/// Those that take locks, release them and initialise them.
fn all_functions() -> impl Iterator<Item = &'static str> {
    let locks = LOCK_FUNCTIONS.iter().map(|function| function.name);
    let others = UNLOCK_FUNCTIONS.iter().chain(INIT_FUNCTIONS);
    locks.chain(others.map(|(name, _)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(full: Result<HashSet<&'static str>, String>, lab: bool) -> Offer {
        Offer {
            full,
            contended: Ok(()),
            mmap_lock: true,
            tracepoints: HashSet::new(),
            lab,
        }
    }

    #[test]
    fn the_full_mode_is_chosen_in_the_lab_only() {
        let all = || Ok(all_functions().collect());
        let chosen = |offer: &Offer| offer.choose(ModeChoice::Auto).map(|(mode, _)| mode).ok();
        assert_eq!(chosen(&offer(all(), true)), Some(Mode::Full));
        assert_eq!(chosen(&offer(all(), false)), Some(Mode::Contended));
        assert_eq!(
            chosen(&offer(Err("none".into()), true)),
            Some(Mode::Contended)
        );
    }

    #[test]
    fn what_a_kernel_inlines_is_said() {
        assert!(
            offer(Ok(all_functions().collect()), true)
                .inlined()
                .is_empty()
        );
        let some = ["_raw_spin_lock", "mutex_lock", "mutex_unlock"];
        let inlines = offer(Ok(some.into()), true);
        assert_eq!(inlines.inlined(), ["_raw_spin_unlock"]);
        assert!(inlines.lines()[1].contains("inlines: _raw_spin_unlock"));
    }

    #[test]
    fn every_pair_is_of_functions_that_are_probed() {
        let all: HashSet<_> = all_functions().collect();
        for (takes, releases) in PAIRS {
            assert!(
                all.contains(takes) && all.contains(releases),
                "{takes}, {releases}"
            );
        }
    }
}
