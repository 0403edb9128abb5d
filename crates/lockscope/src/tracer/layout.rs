//! The bytes that the BPF programs and this crate exchange; `bpf/layout.h` is the other side.

/// Targets that a recording may have.
pub(crate) const TARGETS: usize = 16;
/// Frames of a call chain.
pub(crate) const FRAMES: usize = 24;

/// Of a probe on a lock function, beside its number: it may fail.
pub(crate) const TRIES: u64 = 1 << 16;
/// No task is switched away from while it holds one.
pub(crate) const SPINS: u64 = 1 << 17;
/// Several may hold one at a time.
pub(crate) const READS: u64 = 1 << 18;
/// The first word of a lock says which task has it.
pub(crate) const OWNED: u64 = 1 << 19;
/// Times that a calibration keeps.
pub(crate) const SAMPLES: usize = 1024;

/// A control group whose members are a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) cgroup: u64,
    pub(crate) level: u32,
    pub(crate) workload: u32,
}

/// What a program is told before it is loaded: the kernel removes what does not apply.
pub(crate) struct Config {
    pub(crate) start_ns: u64,
    pub(crate) processes: bool,
    /// What an empty probe costs.
    pub(crate) probe_ns: u64,
    pub(crate) targets: Vec<Target>,
}

impl Config {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.start_ns.to_ne_bytes());
        bytes.extend((self.targets.len() as u32).to_ne_bytes());
        bytes.extend(u32::from(self.processes).to_ne_bytes());
        bytes.extend(self.probe_ns.to_ne_bytes());
        for target in &self.targets {
            bytes.extend(target.cgroup.to_ne_bytes());
            bytes.extend(target.level.to_ne_bytes());
            bytes.extend(target.workload.to_ne_bytes());
        }
        bytes.resize(24 + 16 * TARGETS, 0);
        bytes
    }
}

/// Identity of a row of the table of uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) lock: u64,
    pub(crate) site: u64,
    pub(crate) generation: u32,
    pub(crate) primitive: u16,
    pub(crate) workload: u8,
}

impl Key {
    /// `None` if the length is not that of a key.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 24] = bytes.try_into().ok()?;
        Some(Self {
            lock: long(bytes, 0)?,
            site: long(bytes, 8)?,
            generation: u32::from_ne_bytes(bytes[16..20].try_into().ok()?),
            primitive: u16::from_ne_bytes(bytes[20..22].try_into().ok()?),
            workload: bytes[22],
        })
    }
}

/// A row of the table of uses, of one processor or of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Row {
    pub(crate) acquired: u64,
    pub(crate) contended: u64,
    pub(crate) held: u64,
    pub(crate) hold_ns: u64,
    pub(crate) hold_max_ns: u64,
    pub(crate) wait_ns: u64,
    pub(crate) wait_max_ns: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Number of a call chain.
    pub(crate) stack: Option<u32>,
}

impl Row {
    /// `None` if the length is not that of a row.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 80] = bytes.try_into().ok()?;
        let stack = long(bytes, 72)?;
        Some(Self {
            acquired: long(bytes, 0)?,
            contended: long(bytes, 8)?,
            held: long(bytes, 16)?,
            hold_ns: long(bytes, 24)?,
            hold_max_ns: long(bytes, 32)?,
            wait_ns: long(bytes, 40)?,
            wait_max_ns: long(bytes, 48)?,
            first_ns: long(bytes, 56)?,
            last_ns: long(bytes, 64)?,
            stack: stack.checked_sub(1).map(|stack| stack as u32),
        })
    }

    /// Adds what another processor counted. Counts wrap: a processor may have taken back what
    /// another one counted, so that its own is below zero.
    pub(crate) fn add(&mut self, other: &Self) {
        self.acquired = self.acquired.wrapping_add(other.acquired);
        self.contended = self.contended.wrapping_add(other.contended);
        self.held = self.held.wrapping_add(other.held);
        self.hold_ns = self.hold_ns.wrapping_add(other.hold_ns);
        self.wait_ns = self.wait_ns.wrapping_add(other.wait_ns);
        self.hold_max_ns = self.hold_max_ns.max(other.hold_max_ns);
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.first_ns = match (self.first_ns, other.first_ns) {
            (0, first) | (first, 0) => first,
            (one, two) => one.min(two),
        };
        self.stack = self.stack.or(other.stack);
    }
}

/// The object that a lock is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) object: u64,
    /// A key of the table of caches.
    pub(crate) cache: u64,
}

impl Origin {
    /// `None` if the length is not that of an origin.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 16] = bytes.try_into().ok()?;
        Some(Self {
            object: long(bytes, 0)?,
            cache: long(bytes, 8)?,
        })
    }
}

/// The name of a cache of the slab allocator whose objects are all of one kind; `None` of one that the
/// kernel merged with others, and of bytes that are none.
pub(crate) fn cache_name(bytes: &[u8]) -> Option<String> {
    let users = long(bytes, 0)?;
    let name = bytes.get(8..)?.split(|byte| *byte == 0).next()?;
    (users == 1).then(|| String::from_utf8_lossy(name).into_owned())
}

/// The lock whose holds are made longer, and by how many nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delay {
    pub(crate) lock: u64,
    pub(crate) ns: u64,
}

impl Delay {
    pub(crate) fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.lock.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.ns.to_ne_bytes());
        bytes
    }
}

/// Holds that one processor made longer, and by how many nanoseconds in sum; `None` if the length is not
/// that of such a sum.
pub(crate) fn delayed(bytes: &[u8]) -> Option<(u64, u64)> {
    let bytes: &[u8; 16] = bytes.try_into().ok()?;
    Some((long(bytes, 0)?, long(bytes, 8)?))
}

/// The counters of what was lost, in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loss {
    Acquisitions,
    Stacks,
    Times,
    Births,
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + 8)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_processor_takes_back_of_another_is_subtracted() {
        let mut sum = Row {
            acquired: 5,
            first_ns: 30,
            ..Row::default()
        };
        sum.add(&Row {
            acquired: 0u64.wrapping_sub(2),
            first_ns: 20,
            stack: Some(7),
            ..Row::default()
        });
        assert_eq!((sum.acquired, sum.first_ns, sum.stack), (3, 20, Some(7)));
    }

    #[test]
    fn a_cache_that_was_merged_has_no_name() {
        let named = |users: u64| [&users.to_ne_bytes()[..], b"dentry\0\0"].concat();
        assert_eq!(cache_name(&named(1)).as_deref(), Some("dentry"));
        assert_eq!(cache_name(&named(2)), None);
    }

    #[test]
    fn a_delay_is_its_lock_and_its_length() {
        let bytes = Delay { lock: 7, ns: 5_000 }.bytes();
        assert_eq!(delayed(&bytes), Some((7, 5_000)));
    }

    #[test]
    fn bytes_of_another_length_are_refused() {
        assert_eq!(delayed(&[0; 15]), None);
        assert_eq!(Origin::from_bytes(&[0; 15]), None);
        assert_eq!(cache_name(&[1, 0, 0]), None);
        assert_eq!(Key::from_bytes(&[0; 23]), None);
        assert_eq!(Row::from_bytes(&[0; 88]), None);
    }
}
