//! Facts about the measuring machine, without which absolute numbers have no meaning.

use std::fs;
use std::thread;

use rustix::system::uname;
use serde::Serialize;

/// The facts about a report's machine. A fact that the kernel does not provide is `None`.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// Kernel name, release and version, as `uname` has them.
    pub kernel: String,
    /// Processor model.
    pub cpu: Option<String>,
    /// Processors that this program may run on.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Whether a hypervisor runs below (the processor's own flag).
    pub virtual_machine: bool,
    /// Frequency governor of processor 0; `None` where the machine has no frequency control.
    pub governor: Option<String>,
    /// Whether hardware threads share cores.
    pub smt: Option<bool>,
    /// Mode of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Clock source of the kernel; one that is not `tsc` or paravirtual makes every stamp a trap.
    pub clock_source: Option<String>,
    /// Limit of mappings per process.
    pub max_map_count: Option<u64>,
    /// Whether this program may use the real-time policy SCHED_FIFO.
    pub fifo_allowed: bool,
    /// Compiler that built this program.
    pub rustc: &'static str,
    /// Version of the wasm engine that was built in.
    pub wasmtime: &'static str,
    /// Whether this program was built with optimisation.
    pub optimised: bool,
}

impl Host {
    /// Asks the machine. Reads a dozen small files and starts one short thread.
    pub fn probe() -> Self {
        let names = uname();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            kernel: [
                names.sysname(),
                names.release(),
                names.version(),
                names.machine(),
            ]
            .map(|name| name.to_string_lossy().into_owned())
            .join(" "),
            cpu: field(&cpuinfo, "model name").map(str::to_owned),
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes(&meminfo, "MemTotal"),
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            smt: line("/sys/devices/system/cpu/smt/active").map(|active| active == "1"),
            huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|modes| selected(&modes).map(str::to_owned)),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            max_map_count: line("/proc/sys/vm/max_map_count").and_then(|n| n.parse().ok()),
            fifo_allowed: fifo_allowed(),
            rustc: env!("LEASEHOLD_RUSTC"),
            wasmtime: env!("LEASEHOLD_WASMTIME"),
            optimised: cfg!(not(debug_assertions)),
        }
    }

    /// One line for the head of a text report.
    pub fn summary(&self) -> String {
        let gibibytes = self.memory_bytes.unwrap_or(0) as f64 / 1_073_741_824.0;
        format!(
            "{} · {} cores{} · {gibibytes:.0} GiB · {} · wasmtime {}{}",
            self.cpu.as_deref().unwrap_or("unknown processor"),
            self.cores,
            if self.virtual_machine {
                " (virtual)"
            } else {
                ""
            },
            self.kernel.split(" #").next().unwrap_or_default(),
            self.wasmtime,
            if self.optimised {
                ""
            } else {
                " · BUILT WITHOUT OPTIMISATION"
            },
        )
    }
}

/// The value of `name` in text of the form `name : value`, as most files of /proc have it.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == name).then(|| value.trim())
    })
}

/// A field of /proc/meminfo, in bytes.
pub(crate) fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let value = field(meminfo, name)?.strip_suffix(" kB")?;
    value.parse::<u64>().ok().map(|n| n * 1024)
}

/// The one line of a file of /sys or /proc/sys.
fn line(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// The word in brackets, by which /sys marks the choice in force: `always [madvise] never`.
fn selected(words: &str) -> Option<&str> {
    words
        .split_once('[')?
        .1
        .split_once(']')
        .map(|(word, _)| word)
}

/// Tries, in a thread of its own so that nothing else changes its policy.
fn fifo_allowed() -> bool {
    let attempt = thread::spawn(|| {
        let parameters = libc::sched_param { sched_priority: 1 };
        // SAFETY: `parameters` outlives the call, which only reads it; 0 names this thread.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
    });
    attempt.join().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::{Host, field, kibibytes, selected};

    #[test]
    fn fields_of_proc_files_are_found_by_their_whole_name() {
        let text =
            "MemTotal:       24689032 kB\nSlab:  10 kB\nSReclaimable: 7 kB\nHugePages_Total: 0\n";
        assert_eq!(kibibytes(text, "MemTotal"), Some(24_689_032 * 1024));
        assert_eq!(kibibytes(text, "Slab"), Some(10_240));
        assert_eq!(kibibytes(text, "HugePages_Total"), None);
        assert_eq!(
            field("model name\t: Xeon: big\n", "model name"),
            Some("Xeon: big")
        );
        assert_eq!(field(text, "Mem"), None);
    }

    #[test]
    fn the_choice_in_force_is_the_one_in_brackets() {
        assert_eq!(selected("always [madvise] never"), Some("madvise"));
        assert_eq!(selected("none"), None);
    }

    #[test]
    fn the_engine_and_the_compiler_are_known() {
        let host = Host::probe();
        assert!(host.rustc.starts_with("rustc "), "{}", host.rustc);
        assert!(
            host.wasmtime
                .chars()
                .next()
                .is_some_and(|c| c.is_ascii_digit())
        );
        assert!(host.cores > 0 && host.memory_bytes.is_some());
    }
}
